"""Whether topom moves slots by itself, and which: one decision, as a pure function.

It plans by load (:mod:`topom.balance.planners.load`) once a group has had too much for a while, and takes no more than
the budget allows. What it must not do stands in one list, :func:`waits`; it is asked again, of the state as it is then,
in the same change that begins the moves. So an operator who acts between the decision and its beginning is heeded.

Nothing goes back and forth: whoever moved a slot, it does not come back to a group within a day of leaving it
(:mod:`topom.cluster.departures`), and stays where it is for some hours (:attr:`Rules.rest_seconds`). It may move on
after that: otherwise the slots that cost least to move would be used up. The state says all this, so it holds after a
change of the leader, too. So does the quiet after an operator's act, which the events tell. How long a group has had
too much is not stored: a topom that has just come to lead waits as if everything had begun with it. So does one after a
failure: while a server does not answer, the others have a larger part of the load than they are to have.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from slots.counting import counted
from slots.group import Group
from slots.table import SlotTable
from topom.balance.planners import limits
from topom.balance.planners import load as by_load
from topom.balance.planners.request import REQUEST_BYTES, PlanRequest, SlotLoad, loads_of
from topom.balance.planners.shares import shares
from topom.balance.sizes import duration
from topom.cluster import departures
from topom.cluster.departures import Departures
from topom.cluster.events import What, is_topom
from topom.cluster.hours import Halt
from topom.cluster.state import ClusterState
from topom.cluster.topology import Move

ACTS = frozenset(
    {
        *(What.SLOTS_CANCELLED, What.SLOTS_SKIPPED, What.SLOTS_RETRIED, What.SLOTS_PENDING),
        *(What.SLOTS_OFFLINE, What.REBALANCE_PLANNED, What.MIGRATION_SET),
    }
)
"""What an operator does that is about which slots move or how they move. A slot that no group owned moves nowhere when
it is given to one, so that is none of these."""
QUIET_TIMES = 12
"""For so many times as long as a group has to have too much, nothing is begun after an operator's act."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When slots move by themselves. Times are in seconds; loads are parts of a group's share.

    Attributes:
        enter: a group has to have more than that to give slots away.
        leave: a group has too much above that. A plan brings it to that or less.
        sustained_seconds: how long a group has to have too much, and load has to be measured.
        quiet_seconds: how long nothing is begun after an operator's act.
        rest_seconds: how long a slot stays where it is after a move.
        budget: the part of all bytes that may move in an hour; of all slots, if no sizes are known.
        worth: how large a part of all load a plan brings under the limit, at least, for each part of all bytes that it
            moves.
    """

    enter: float = 1.13
    leave: float = 1.12
    sustained_seconds: float = 300.0
    quiet_seconds: float = 3600.0
    rest_seconds: float = 14_400.0
    budget: float = 0.05
    worth: float = 0.1

    @classmethod
    def after(cls, seconds: float) -> "Rules":
        """The rules by which slots move once a group has had too much for so long."""
        return cls(sustained_seconds=seconds, quiet_seconds=QUIET_TIMES * seconds)


RULES = Rules()
HOUR = 3600.0
LEAST_SHARE = 20
"""Requests a second that are a group's share at least. Of fewer, one client's turn or chance makes groups uneven, and
no server has much to do."""
SAID = 3
"""Servers that a sentence names."""


class Why(StrEnum):
    """The reason of a decision."""

    MANUAL = "manual"
    HELD = "held"
    HOURS = "hours"
    FAILED = "failed"
    MOVING = "moving"
    OPERATOR = "operator"
    NOT_MEASURED = "not_measured"
    IDLE = "idle"
    EVEN = "even"
    NOT_SUSTAINED = "not_sustained"
    NO_PLAN = "no_plan"
    BUDGET = "budget"
    NOT_WORTH = "not_worth"
    CHANGED = "changed"
    MOVES = "moves"


DISTURBED = frozenset({Why.HELD, Why.FAILED})
"""While one of these holds, load says nothing: servers may be missing, and nobody may look after them."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known at one moment.

    Attributes:
        table: the slot table.
        now: seconds since 1970.
        measured_seconds: how long every proxy has told its load.
        loads, hot_keys, bytes: as in :class:`~topom.balance.planners.request.PlanRequest`; ``bytes`` is empty if no
            sizes are known.
        moved: when slots came to rest after a move, in seconds since 1970.
        departures: which groups they left, and when.
        waits: why nothing may be begun (:func:`waits`); None if it may.
        capacity, closed: as in :class:`~topom.balance.planners.request.PlanRequest`.
    """

    table: SlotTable
    now: float
    measured_seconds: float
    loads: Mapping[int, SlotLoad]
    bytes: Mapping[int, int] = field(default_factory=dict)
    moved: Mapping[int, float] = field(default_factory=dict)
    departures: Departures = field(default_factory=dict)
    hot_keys: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    waits: tuple[Why, str] | None = None
    capacity: Mapping[int, float] = field(default_factory=dict)
    closed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done.

    Attributes:
        at: when it was made, in seconds since 1970.
        text: a sentence, without a full stop.
        moves: by ascending slot; empty unless ``why`` is ``moves``.
        greatest: the greatest load of a group, as a multiple of its share; None if load is not known.
        expected: likewise after the moves.
        above: the groups that have too much, and since when, in seconds since 1970: what the next decision needs.
    """

    at: float
    why: Why
    text: str
    moves: tuple[Move, ...] = ()
    greatest: float | None = None
    expected: float | None = None
    above: Mapping[int, float] = field(default_factory=dict)


def waits(
    state: ClusterState, halt: Halt | None, failed: Collection[str], rules: Rules, now: float
) -> tuple[Why, str] | None:
    """Why nothing may be begun in this state; None if it may.

    Args:
        halt: why no keys move.
        failed: servers that do not answer.
    """
    if halt is not None:
        return (Why.HOURS if halt.until is not None else Why.HELD), halt.what
    if failed:
        named = ", ".join(sorted(failed)[:SAID])
        return Why.FAILED, f"{counted(len(failed), 'server does', 'servers do')} not answer everybody: {named}"
    locked = [group.id for group in state.table.groups.values() if group.locked]
    if locked:
        return Why.FAILED, f"group {locked[0]} is getting another master"
    if state.fenced:
        return Why.FAILED, f"{counted(len(state.fenced), 'lost proxy is', 'lost proxies are')} being fenced off"
    moving = sum(slot.action is not None for slot in state.table.slots)
    if moving:
        return Why.MOVING, f"{counted(moving, 'slot is on its', 'slots are on their')} way"
    if state.leaving:
        # A node that is emptied changes masters, and has replicas filled.
        one = min(state.leaving.values(), key=lambda one: one.since)
        return Why.MOVING, f"{one.kind} {one.id} is leaving"
    if state.placement.run is not None:
        return Why.MOVING, "a placement is under way"
    return _quiet(state, rules, now)


def _quiet(state: ClusterState, rules: Rules, now: float) -> tuple[Why, str] | None:
    """Says that an operator has acted a short time ago, or that what an operator began has ended then."""
    acts = [(event.at, event.who, str(event.what)) for event in state.events if event.what in ACTS]
    last = state.last_plan
    if last is not None:  # its events may be dropped already, if it had many steps
        acts.append((last.at, last.by, str(What.REBALANCE_PLANNED)))
    acts = [act for act in acts if not is_topom(act[1])]
    if acts and state.moved and (last is None or not is_topom(last.by) or last.at < max(acts)[0]):
        # What came to rest since, topom has not begun. A group that was emptied for hours is not filled at once.
        acts.append((max(state.moved.values()), *max(acts)[1:]))
    # By a clock that was set, an act may be ahead.
    recent = [act for act in acts if abs(now - act[0]) < rules.quiet_seconds]
    if not recent:
        return None
    at, who, what = max(recent)
    left = duration(rules.quiet_seconds - max(0.0, now - at))
    return Why.OPERATOR, f"{who} has acted ({what}), so nothing is begun for another {left}"


def decide(picture: Picture, above: Mapping[int, float], rules: Rules = RULES) -> Decision:
    """What to do now.

    Args:
        above: as the decision before has it.
    """
    if picture.measured_seconds < rules.sustained_seconds:
        needed = duration(rules.sustained_seconds)
        text = f"every proxy has told its load for {duration(picture.measured_seconds)}, and {needed} are needed"
        return Decision(picture.now, Why.NOT_MEASURED, text)
    request = _request(picture, rules)
    has = _relative(picture.table, request, ())
    disturbed = picture.waits is not None and picture.waits[0] in DISTURBED
    nothing = Decision(
        picture.now,
        Why.EVEN,
        f"the greatest load of a group is {max(has.values(), default=0.0):.2f} times its share",
        greatest=round(max(has.values(), default=0.0), 4),
        # Time counts from the lower bound on: of many groups whose load rises slowly, some would pass the limit else.
        above={
            group_id: min(above.get(group_id, picture.now), picture.now)
            for group_id, one in has.items()
            if not disturbed and one > rules.leave
        },
    )
    if picture.waits is not None:
        return replace(nothing, why=picture.waits[0], text=picture.waits[1])
    requests = sum(loads_of(request).values()) / REQUEST_BYTES
    if requests < LEAST_SHARE * len(has):
        text = f"{requests:.0f} requests a second, or bytes that cost as much, are too few for {len(has)} groups"
        return replace(nothing, why=Why.IDLE, text=text, above={})
    high = {group_id for group_id in nothing.above if has[group_id] > rules.enter}
    due = {group_id for group_id in high if picture.now - nothing.above[group_id] >= rules.sustained_seconds}
    if not high:
        return nothing
    if not due:
        text = (
            f"{_several(len(high), 'group')} above {rules.enter:g} times a share, {nothing.greatest:.2f} at most, "
            f"and none has been above {rules.leave:g} for {duration(rules.sustained_seconds)} yet"
        )
        return replace(nothing, why=Why.NOT_SUSTAINED, text=text)
    return _planned(picture, request, due, nothing, rules)


def _planned(picture: Picture, request: PlanRequest, due: set[int], nothing: Decision, rules: Rules) -> Decision:
    """The decision once groups had too much for long enough."""
    table = picture.table
    before = max(_relative(table, request, ()).values())
    moves, why = _moves(table, request, due)
    if not moves:
        return replace(nothing, why=Why.NO_PLAN, text=why)
    left = _left(picture, rules)
    moves = tuple(_within(moves, picture, request, left))
    if not moves:
        text = f"{rules.budget:.0%} of all {_counted(picture)} may move in an hour, and "
        text += "that is used up" if left < rules.budget else "each slot that would help is more than that"
        return replace(nothing, why=Why.BUDGET, text=text)
    gain, cost = _gain(table, request, moves), _part(picture, (move.slot for move in moves))
    after = max(_relative(table, request, moves).values())
    if gain < rules.worth * cost or after > before:
        text = (
            f"a plan would bring {gain:.2%} of all load under the limit, and move {cost:.2%} of all "
            f"{_counted(picture)} for it, which is not worth it"
        )
        return replace(nothing, why=Why.NOT_WORTH, text=text, expected=round(after, 4))
    text = (
        f"{_several(len(moves), 'slot')} to move by load: the greatest load of a group is {nothing.greatest:.2f} times "
        f"its share, and is to be {after:.2f}"
    )
    return replace(nothing, why=Why.MOVES, text=text, moves=moves, expected=round(after, 4))


def _moves(table: SlotTable, request: PlanRequest, due: set[int]) -> tuple[tuple[Move, ...], str]:
    """The moves of a plan by which groups that are due come under their limits, and why there are no more."""
    planned = by_load.plan(usable(table), table.slots, request)
    # Slots that no group owns are the operator's to place.
    owned = tuple(move for move in planned.moves if move.source in table.groups)
    # A group that was given a slot may give another one back: those are one exchange.
    moves = tuple(move for move in owned if due & {move.source, move.target})
    if max(_relative(table, request, moves).values()) > max(_relative(table, request, ()).values()):
        moves = owned
    return moves, planned.reasons[0] if planned.reasons else "no plan helps"


def usable(table: SlotTable) -> list[Group]:
    """The groups that can own slots, by ascending id."""
    return [group for _, group in sorted(table.groups.items()) if group.servers]


def _request(picture: Picture, rules: Rules) -> PlanRequest:
    resting = {slot for slot, at in picture.moved.items() if abs(picture.now - at) < rules.rest_seconds}
    return PlanRequest(
        loads=picture.loads,
        hot_keys=picture.hot_keys,
        bytes=picture.bytes,
        capacity=picture.capacity,
        tolerance=rules.leave - 1,
        even_memory=False,
        keep=frozenset(resting),
        closed=picture.closed,
        barred={group_id: departures.recent(left, picture.now) for group_id, left in picture.departures.items()},
    )


def _relative(table: SlotTable, request: PlanRequest, moves: Iterable[Move]) -> dict[int, float]:
    """The load of each group as a multiple of its share."""
    load = loads_of(request)
    share = shares(usable(table), table.slots, request, load)
    has = dict.fromkeys(share, 0)
    target = {move.slot: move.target for move in moves}
    for slot in table.slots:
        group_id = target.get(slot.id, slot.destination_id)
        if group_id in has:
            has[group_id] += load.get(slot.id, 0)
    return {group_id: has[group_id] / one if one else 0.0 for group_id, one in share.items()}


def _gain(table: SlotTable, request: PlanRequest, moves: Collection[Move]) -> float:
    """The part of all load that is above the limits now, and not after these moves."""
    limit = 1 + request.tolerance
    above = [
        math.fsum(max(0.0, one - limit) for one in _relative(table, request, done).values()) for done in ((), moves)
    ]
    return (above[0] - above[1]) / max(1, len(usable(table)))


def _part(picture: Picture, slots: Iterable[int]) -> float:
    """The part of all bytes in these slots; of all slots, if no sizes are known."""
    if not picture.bytes:
        return sum(1 for _ in slots) / len(picture.table.slots)
    return sum(picture.bytes.get(slot, 0) for slot in slots) / max(1, sum(picture.bytes.values()))


def _counted(picture: Picture) -> str:
    return "bytes" if picture.bytes else "slots"


def _left(picture: Picture, rules: Rules) -> float:
    """The part of all bytes that may still move in this hour. What came to rest in the last hour counts."""
    recent = (slot for slot, at in picture.moved.items() if abs(picture.now - at) < HOUR)
    return rules.budget - _part(picture, recent)


def _within(moves: Sequence[Move], picture: Picture, request: PlanRequest, left: float) -> list[Move]:
    """Those of these moves for which the budget is enough, the most helpful first."""
    if left <= 0:
        return []
    load = loads_of(request)
    share = shares(usable(picture.table), picture.table.slots, request, load)
    bands = {group_id: (0, most) for group_id, most in by_load.load_limits(share, request.tolerance).items()}
    if picture.bytes:
        limited = replace(request, most_bytes=int(left * sum(picture.bytes.values())))
    else:
        limited = replace(request, most_slots=int(left * len(picture.table.slots)))
    return limits.by_help(moves, bands, picture.table.slots, limited, load)


def _several(count: int, thing: str) -> str:
    return f"{count} {thing} is" if count == 1 else f"{count} {thing}s are"
