"""Moves slots by itself, by load: looks every so often, decides (:mod:`topom.balance.deciding`), and begins moves.

What it begins goes the way of an operator's plan (:class:`topom.balance.rebalancing.Rebalancing`). It is one event. A
decision to do nothing is an event only if its reason is another one than before, and for one reason at most once an
hour. Everything else about it is what the loop says, and :attr:`AutoRebalance.decision`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sized
from dataclasses import replace
from functools import partial
from typing import ClassVar

import structlog

from slots.table import SlotTable
from topom.balance import deciding, measured
from topom.balance.deciding import Decision, Picture, Rules, Why
from topom.balance.measured import MeasuredLoads
from topom.balance.rebalancing import Rebalancing, sizes_of
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import KnownSizes
from topom.cluster.events import What
from topom.cluster.hours import Halt
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import Move
from topom.errors import TopomError
from topom.periodic import Look, Loop, never_held
from topom.reasons import Reason

log = structlog.get_logger(__name__)

LOOKS = 5
"""So often it looks in the time for which a group has to have too much."""
NOTE_SECONDS = 3600.0
"""For this long at least, one reason to do nothing is no event again."""
TRIES = 4
"""So many plans are made at most until one moves slots only to groups that can take them."""
AT_ONCE = 16
"""Groups that are looked at side by side."""
MOST_AGE_SECONDS = 30.0
"""A decision is begun at most so long after it was made: a process that was paused has old figures."""
UNSAID = frozenset({Why.EVEN, Why.IDLE, Why.NOT_SUSTAINED, Why.NOT_MEASURED, Why.MOVING, Why.MANUAL, Why.MOVES})
"""Reasons that are no event: they come and go by themselves."""
MANUAL = Decision(0.0, Why.MANUAL, 'rebalance = "manual": slots move only when an operator asks for it')

NOTHING_YET = Decision(0.0, Why.NOT_MEASURED, "this topom has decided nothing yet")


class AutoRebalance(Loop):
    """Rebalances one topom's slots by itself.

    Args:
        halt: why no keys move; None if they may.
        failed: gives the servers, of all in the table, that do not answer.
        check: raises a TopomError if slots of one group could not begin to move to another one.
        held: as for :class:`topom.periodic.Loop`.
        on: whether slots may move by themselves; if not, the loop ends at once.
        clock: seconds since 1970.
    """

    name = "rebalance"
    first_seconds: ClassVar[float] = 1.0

    def __init__(
        self,
        ledger: Ledger,
        rebalancing: Rebalancing,
        loads: MeasuredLoads,
        sizes: SizeBook,
        halt: Callable[[], Halt | None],
        failed: Callable[[], Collection[str]],
        check: Callable[[int, int, Collection[int]], Awaitable[None]],
        held: Callable[[], Reason | None] = never_held,
        on: bool = True,
        rules: Rules = deciding.RULES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._rebalancing = rebalancing
        self._loads = loads
        self._sizes = sizes
        self._halt = halt
        self._failed = failed
        self._check = check
        self._hands_off = held
        self._on = on
        self.rules = rules
        self._clock = clock
        self._above: Mapping[int, float] = {}
        self._noted: dict[Why, float] = {}
        self._last_noted: Why | None = None
        self.decision = NOTHING_YET if on else MANUAL
        """The last decision."""

    async def look(self) -> Look:
        """Decide, and begin what was decided."""
        if not self._on:
            return Look(over=True)
        state, now = self._ledger.state, self._clock()
        decision = await self._decided(state, now)
        self._above = decision.above
        if decision.moves and not await self._rebalancing.begin(
            decision.moves, state.table, decision.text, partial(self._allowed, now)
        ):
            decision = Decision(
                decision.at,
                Why.CHANGED,
                "something changed while the decision was made",
                greatest=decision.greatest,
                above=decision.above,
            )
        self.decision = decision
        self._note(decision)
        # What is disturbed is named; in the other sentences that end in no move, only figures differ.
        about = "" if decision.why in {Why.MOVES, *deciding.DISTURBED} else decision.why
        return Look(decision.text, self.rules.sustained_seconds / LOOKS, about=about)

    async def _decided(self, state: ClusterState, now: float) -> Decision:
        """The decision, with moves only to groups that can take them: others would wait, and hold up all."""
        waits, measured_seconds = self._why_not(state), self._loads.whole_seconds
        refusals: dict[int, str] = {}
        for _ in range(TRIES):
            closed = frozenset(refusals)
            # The largest fleets take a quarter of a second, and topom has to serve others meanwhile.
            decision = await asyncio.to_thread(self._decide, state, now, measured_seconds, waits, closed)
            found = await self._refusals(decision.moves)
            if not found:
                break
            refusals |= found
        else:
            decision = replace(decision, why=Why.NO_PLAN, moves=(), expected=None, text="no group is left for a plan")
        if refusals and not decision.moves:
            group_id, reason = min(refusals.items())
            decision = replace(decision, text=f"{decision.text}; group {group_id} can take no slots: {reason}")
        return decision

    async def _refusals(self, moves: Collection[Move]) -> dict[int, str]:
        """Why groups cannot take what is to move to them, by group.

        A large plan has hundreds of pairs, so each is asked only for the group that gives it most slots.
        """
        pairs: dict[tuple[int, int], list[int]] = {}
        for move in moves:
            pairs.setdefault((move.source, move.target), []).append(move.slot)
        most = {target_id: (source_id, slots) for (source_id, target_id), slots in sorted(pairs.items(), key=_length)}
        places = asyncio.Semaphore(AT_ONCE)
        found: dict[int, str] = {}

        async def check(source_id: int, target_id: int, slots: Collection[int]) -> None:
            async with places:
                try:
                    await self._check(source_id, target_id, slots)
                except TopomError as error:
                    found[target_id] = str(error)

        async with asyncio.TaskGroup() as group:
            for target_id, (source_id, slots) in most.items():
                group.create_task(check(source_id, target_id, slots))
        return found

    def _decide(
        self,
        state: ClusterState,
        now: float,
        measured_seconds: float,
        waits: tuple[Why, str] | None,
        closed: frozenset[int],
    ) -> Decision:
        """Runs on a thread."""
        loads = measured.slot_loads(self._loads)
        weights = state.last_plan.capacity if state.last_plan is not None else {}
        picture = Picture(
            table=state.table,
            now=now,
            measured_seconds=measured_seconds,
            loads=loads,
            hot_keys=measured.hottest(self._loads),
            bytes=_believed(self._sizes.fresh(), state.table, loads),
            moved=state.moved,
            departures=state.departures,
            waits=waits,
            # An operator who has weighed groups differently wants them so.
            capacity={group_id: weight for group_id, weight in weights.items() if group_id in state.table.groups},
            closed=closed,
        )
        return deciding.decide(picture, self._above, self.rules)

    def _why_not(self, state: ClusterState) -> tuple[Why, str] | None:
        held = self._hands_off()
        if held is not None:
            return Why.HELD, str(held)
        return deciding.waits(state, self._halt(), self._failed(), self.rules, self._clock())

    def _allowed(self, decided_at: float, state: ClusterState) -> bool:
        return (
            abs(self._clock() - decided_at) <= MOST_AGE_SECONDS
            and self._loads.whole_seconds >= self.rules.sustained_seconds
            and self._why_not(state) is None
        )

    def _note(self, decision: Decision) -> None:
        """Have an event stored about a new reason to do nothing."""
        why = decision.why
        if why is Why.MOVES:
            self._last_noted = None
        if why in UNSAID or why is self._last_noted:
            return
        now = self._clock()
        if abs(now - self._noted.get(why, -NOTE_SECONDS)) < NOTE_SECONDS:
            return
        self._noted[why] = now
        self._last_noted = why
        self._ledger.note(What.REBALANCE_WAITS, f"no slot moves by itself: {decision.text}", wait=1.0)


def _length(entry: tuple[object, Sized]) -> int:
    return len(entry[1])


def _believed(sizes: KnownSizes, table: SlotTable, busy: Container[int]) -> dict[int, int]:
    """Bytes by slot. A slot that clients ask for is not empty: a size of 0 is from before it had keys.

    Otherwise it would cost nothing to move, and the budget would hold nothing back.
    """
    known = {slot: size for slot, size in sizes.slots.items() if size.bytes or slot not in busy}
    found = sizes_of(KnownSizes(known), table)[0]
    return found if any(found.values()) else {}
