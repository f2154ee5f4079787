"""Rebalancing: makes a plan, says what it costs, and begins its moves.

A plan may take a second, so it is made on a thread, from a table that may change meanwhile. Its moves begin only if the
plan still fits the table in the ledger (**epochs**). If not, it is made anew.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from slots.slot import OFFLINE
from slots.table import SlotTable
from topom.balance import measured, planners
from topom.balance.measured import MeasuredLoads
from topom.balance.planners.forecast import Forecast, forecast
from topom.balance.planners.request import DEFAULT_TOLERANCE, Plan, PlanRequest
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import HOW_TO_MEASURE, KnownSizes, NoSizes, moment
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.events import Said, What, actor
from topom.cluster.ledger import Ledger
from topom.cluster.speed import PairSpeed
from topom.cluster.state import ClusterState, LastPlan, MigrationSettings, leaving_groups
from topom.cluster.topology import Move
from topom.errors import Conflict
from topom.migration.actions import Actions
from topom.migration.batches import Pair
from topom.migration.choosing import Ways

log = structlog.get_logger(__name__)

BY_NUMBER = "codis"
"""The policy that needs only the table."""
BY_BYTES = "bytes"
"""The policy that needs sizes."""
BY_LOAD = "load"
"""The policy that needs measured load."""
Allowed = Callable[[ClusterState], bool]
"""Whether something may be begun in a state."""
TRIES = 5
"""How many plans are made at most until one still fits when it is done."""


class UndoesPlan(Conflict):
    """A plan by number would undo what the last plan, by bytes or load, has done; nothing was begun."""


class TableChanging(Conflict):
    """Slots were sent to other groups again and again while a plan was made."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What an operator asks of a plan; the fields are those of :class:`~topom.balance.planners.request.PlanRequest`."""

    policy: str = BY_NUMBER
    tolerance: float = DEFAULT_TOLERANCE
    most_slots: int | None = None
    most_bytes: int | None = None
    drain: frozenset[int] = frozenset()
    capacity: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rate:
    """Keys and bytes per second of several moves together; None if that is unknown."""

    keys: float | None
    bytes: float | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, with the data from which it was made.

    Attributes:
        cost: the cost of its moves.
        rate: the rate of all its moves together, which gives the time.
        warnings: sentences that say which sizes are uncertain, whether load is, and which moves have to wait.
    """

    plan: Plan
    table: SlotTable
    cost: Forecast
    rate: Rate
    warnings: tuple[str, ...]


class Rebalancing:
    """Makes plans for one topom's table, one at a time, and begins them.

    Args:
        sizes: the sizes of slots.
        actions: knows how fast keys move, and the limits for that.
        loads: the measured load of slots.
        has_failed: whether a server counts as failed (:mod:`topom.servers.detector`).
    """

    def __init__(
        self,
        ledger: Ledger,
        sizes: SizeBook,
        actions: Actions,
        loads: MeasuredLoads,
        has_failed: Callable[[str], bool],
    ) -> None:
        self._ledger = ledger
        self._has_failed = has_failed
        self._sizes = sizes
        self._actions = actions
        self._loads = loads
        self._one_plan = asyncio.Lock()

    async def rebalance(self, options: PlanOptions, dry_run: bool, confirmed: bool = False) -> Planned:
        """Plan, and begin every move, unless ``dry_run``.

        Args:
            confirmed: begin it also if it undoes what the last plan, by bytes or load, has done.

        Raises:
            NoSizes: the plan is by bytes, or by load with a limit of bytes, and the size of no slot is known.
            NotMeasured: the plan is by load, and load was not measured for long enough.
            UndoesPlan: as it says.
            TableChanging: no plan still fitted when it was made; nothing was begun.
            UnknownPolicy, InvalidPlanRequest, NoGroup: as :func:`topom.balance.planners.plan`.
        """
        async with self._one_plan:
            for _ in range(TRIES):
                planned = await self._plan(options, forecast_ways=dry_run)
                if not (dry_run or confirmed):
                    _require_no_undoing(planned.plan, options, self._ledger.state.last_plan)
                weights = None if options.policy == BY_NUMBER else options.capacity
                if dry_run or await self._begin(planned.plan.moves, planned.table, options.policy, weights):
                    break
            else:
                raise TableChanging(
                    f"slots were sent elsewhere each of the {TRIES} times while a plan was made, so none was begun; "
                    "try again when fewer changes are made"
                )
        moves = planned.plan.moves
        log.info(
            "rebalance_planned" if dry_run else "rebalance_began",
            policy=options.policy,
            moves=len(moves),
            offline=sum(move.source == OFFLINE for move in moves),
        )
        return planned

    async def empty(self, groups: frozenset[int]) -> None:
        """Begin the moves of the slots at rest in these groups to other groups; by bytes if sizes are known.

        Raises:
            NoGroup: no other group can take them.
            TableChanging: as :meth:`rebalance`.
        """
        options = PlanOptions(BY_BYTES if self._sizes.known.slots else BY_NUMBER, drain=groups)
        async with self._one_plan:
            for _ in range(TRIES):
                planned = await self._plan(options)
                # The other moves of the plan are not wanted.
                moves = tuple(move for move in planned.plan.moves if move.source in groups)
                if await self._begin(moves, planned.table, options.policy, noted=False):
                    log.info("groups_are_emptied", groups=sorted(groups), moves=len(moves), policy=options.policy)
                    return
        raise TableChanging(f"slots were sent elsewhere each of the {TRIES} times while a plan was made")

    async def begin(self, moves: Sequence[Move], table: SlotTable, text: str, allowed: Allowed) -> bool:
        """Begin moves that were planned by load from a table; whether that was done.

        It is not if the table is another one by then, or if ``allowed`` says no of the state as it is then.
        """
        async with self._one_plan:
            return await self._begin(moves, table, BY_LOAD, text=text, allowed=allowed)

    async def _plan(self, options: PlanOptions, forecast_ways: bool = False) -> Planned:
        """``forecast_ways``: look at the servers, and tell how the slots would move."""
        state = self._ledger.state
        table = state.table
        known = self._sizes.known
        if options.policy == BY_BYTES and not known.slots:
            raise NoSizes(f"the sizes of slots are not known, so nothing can be planned by bytes; {HOW_TO_MEASURE}")
        by_load = options.policy == BY_LOAD
        if by_load:
            measured.require(self._loads)
            if options.most_bytes is not None and not known.slots:
                raise NoSizes(f"the sizes of slots are not known, so no limit of bytes can be kept; {HOW_TO_MEASURE}")
        speed, settings = self._actions.speed, self._actions.settings

        def make() -> tuple[PlanRequest, Plan, Rate]:
            count_of, keys_of = sizes_of(known, table)
            request = PlanRequest(
                loads=measured.slot_loads(self._loads) if by_load else {},
                hot_keys=measured.hottest(self._loads) if by_load else {},
                bytes=count_of,
                keys=keys_of,
                capacity=options.capacity,
                tolerance=options.tolerance,
                most_slots=options.most_slots,
                most_bytes=options.most_bytes,
                drain=options.drain | (leaving_groups(state) & table.groups.keys()),
            )
            plan = planners.plan(options.policy, table.groups.values(), table.slots, request)
            return request, plan, rate_of(plan.moves, keys_of, speed, settings)

        request, plan, rate = await asyncio.to_thread(make)
        ways = Ways()
        if forecast_ways:
            by_pair: dict[Pair, list[int]] = {}
            for move in plan.moves:
                by_pair.setdefault((move.source, move.target), []).append(move.slot)
            ways = await self._actions.choosing.of_pairs(by_pair)
        cost = await asyncio.to_thread(
            forecast,
            table.groups.values(),
            table.slots,
            plan.moves,
            request,
            keys_per_second=rate.keys,
            bytes_per_second=rate.bytes,
            ways=ways.choices,
            limits=(settings.keys_per_second, settings.bytes_per_second),
        )
        warnings = list(self._sizes.freshness(self._ledger.state).warnings) if known.slots else []
        if by_load:
            warnings += measured.doubts(self._loads)
        warnings += ways.warnings
        warnings += _waiting(plan.moves, table, self._has_failed)
        return Planned(plan, table, cost, rate, tuple(warnings))

    async def _begin(
        self,
        moves: Sequence[Move],
        planned: SlotTable,
        policy: str,
        capacity: Mapping[int, float] | None = None,
        text: str = "",
        allowed: Allowed = lambda state: True,
        noted: bool = True,
    ) -> bool:
        """Begin moves if they fit and are allowed; whether they did.

        Args:
            capacity: the weights of groups from then on; None to leave them as they are.
            noted: whether it counts as the last plan.
        """
        fits = False
        count = len(moves)
        text = text or f"{count} {'slot is' if count == 1 else 'slots are'} to move by a plan of policy {policy}"
        made = LastPlan(policy, actor.get() or "topom", time.time())

        def begin(state: ClusterState, epoch: int) -> ClusterState:
            nonlocal fits
            fits = (
                still_fits(moves, planned, state.table)
                and not leaving_groups(state) & {move.target for move in moves}
                and allowed(state)
            )
            before = state.last_plan.capacity if state.last_plan is not None else {}
            weights = before if capacity is None else dict(capacity)
            if not fits or not (moves or weights != before):
                return state
            if noted:
                state = replace(state, last_plan=replace(made, capacity=weights))
            if not moves:
                return state
            return interventions.with_table(state, topology.apply_moves(state.table, epoch, moves))

        await self._ledger.change(begin, [Said(What.REBALANCE_PLANNED, text)])
        return fits


def _require_no_undoing(plan: Plan, options: PlanOptions, last: LastPlan | None) -> None:
    undone = [move for move in plan.moves if move.source != OFFLINE and move.source not in options.drain]
    if options.policy == BY_NUMBER and last is not None and last.policy != BY_NUMBER and undone:
        raise UndoesPlan(
            f"the last plan was by {last.policy}, begun by {last.by} at {moment(last.at)}. A plan by number would move "
            f"{len(undone)} slots, and undo what that has done",
            f"plan with --policy {last.policy}, or go on with --yes (confirm=true)",
        )


def _waiting(moves: Iterable[Move], table: SlotTable, has_failed: Callable[[str], bool]) -> list[str]:
    """A sentence for each group whose master has failed, so that moves from and to it have to wait."""
    busy = sorted({group_id for move in moves for group_id in (move.source, move.target)} - {OFFLINE})
    masters = {group_id: table.groups[group_id].master for group_id in busy}
    return [
        f"the master of group {group_id}, {master}, has failed: slots from and to this group wait until it answers "
        "again, or a replica has taken its place"
        for group_id, master in masters.items()
        if master is not None and has_failed(master)
    ]


def still_fits(moves: Iterable[Move], planned: SlotTable, now: SlotTable) -> bool:
    """Whether moves that were planned from one table are right for a later one.

    They are if every slot still comes to rest in the same group, the same groups have servers, and the slots to move
    are at rest. So actions that were under way may have gone on.
    """
    if planned is now:
        return True
    with_servers = [{group.id for group in table.groups.values() if group.servers} for table in (planned, now)]
    return (
        with_servers[0] == with_servers[1]
        and all(
            before is after or before.destination_id == after.destination_id
            for before, after in zip(planned.slots, now.slots, strict=True)
        )
        and all(now.slots[move.slot] == planned.slots[move.slot] for move in moves)
    )


def rate_of(
    moves: Iterable[Move], keys: Mapping[int, int], speed: PairSpeed | None, settings: MigrationSettings
) -> Rate:
    """How fast several moves go together.

    Pairs of groups move side by side, and a group takes part in one batch at a time (:mod:`topom.migration.batches`).
    So the busiest group sets the time. All moves together are faster than one pair by this factor: all keys, divided by
    the keys of the busiest group. The configured limits hold for all together. If nothing was measured yet, they are
    the rate.

    Args:
        keys: the number of keys, by slot.
        speed: the speed of one pair.
    """
    busy: dict[int, int] = {}
    total = 0
    for move in moves:
        if move.source != OFFLINE:
            count = keys.get(move.slot, 0)
            total += count
            for group_id in (move.source, move.target):
                busy[group_id] = busy.get(group_id, 0) + count
    at_once = total / max(busy.values()) if total else 1.0

    def limited(rate: float | None, limit: int) -> float | None:
        return min((one for one in (rate, float(limit)) if one), default=None)

    return Rate(
        limited(speed.keys * at_once if speed else None, settings.keys_per_second),
        limited(speed.bytes * at_once if speed else None, settings.bytes_per_second),
    )


def sizes_of(known: KnownSizes, table: SlotTable) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes and keys by slot. A slot that was not measured counts as the mean of the measured ones.

    If it counted as empty, all other slots would move to the group whose server could not be measured.
    """
    found = {slot: (size.bytes, size.keys) for slot, size in known.slots.items()}
    if not found:
        return {}, {}
    mean = tuple(sum(size[part] for size in found.values()) // len(found) for part in (0, 1))
    sizes = {slot.id: found.get(slot.id, mean) for slot in table.slots if slot.id in found or slot.group_id != OFFLINE}
    return {slot: size[0] for slot, size in sizes.items()}, {slot: size[1] for slot, size in sizes.items()}
