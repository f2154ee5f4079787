"""Rebalancing: a plan, what it costs, and its moves put on their way.

A plan may take a second, so it is made on a thread, from a table that may change meanwhile. Its moves begin only if
the table in the ledger is still one that it fits (**epochs**): else it is made anew.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from slots.table import OFFLINE, SlotTable
from topom import interventions, planners, topology
from topom.errors import Conflict
from topom.ledger import Ledger
from topom.planners.request import DEFAULT_TOLERANCE, Plan, PlanRequest
from topom.sizes import HOW_TO_MEASURE, Freshness, KnownSizes, NoSizes
from topom.state import ClusterState
from topom.topology import Move

log = structlog.get_logger(__name__)

BY_BYTES = "bytes"
"""The policy that needs sizes."""
TRIES = 5
"""Plans that are made before it is given up that one still fits when it is done."""


class TableChanging(Conflict):
    """Slots were bound for other groups again and again while a plan was made."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator asks of a plan; the fields are those of :class:`~topom.planners.request.PlanRequest`."""

    policy: str = "codis"
    tolerance: float = DEFAULT_TOLERANCE
    most_slots: int | None = None
    most_bytes: int | None = None
    drain: frozenset[int] = frozenset()
    capacity: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was made from.

    Attributes:
        warnings: what of the sizes is to be taken with care, in sentences.
    """

    plan: Plan
    table: SlotTable
    request: PlanRequest
    warnings: tuple[str, ...]


class Rebalancing:
    """Makes plans of one topom's table, one at a time, and begins them.

    Args:
        known: gives the sizes that are known.
        freshness: says how far they can be trusted.
    """

    def __init__(self, ledger: Ledger, known: Callable[[], KnownSizes], freshness: Callable[[], Freshness]) -> None:
        self._ledger = ledger
        self._known = known
        self._freshness = freshness
        self._one_plan = asyncio.Lock()

    async def rebalance(self, wish: Wish, dry_run: bool) -> Planned:
        """Plan, and unless ``dry_run`` put every move on its way.

        Raises:
            NoSizes: by bytes, when the size of no slot is known.
            TableChanging: no plan fitted any more when it was made; nothing was begun.
            UnknownPolicy, InvalidPlanRequest, NoGroup: as :func:`topom.planners.plan`.
        """
        async with self._one_plan:
            for _ in range(TRIES):
                planned = await self._plan(wish)
                if dry_run or await self._begin(planned):
                    break
            else:
                raise TableChanging(
                    f"slots were sent elsewhere each of the {TRIES} times while a plan was made, so none was begun; "
                    "try again when fewer changes are made"
                )
        moves = planned.plan.moves
        log.info(
            "rebalance_planned" if dry_run else "rebalance_began",
            policy=wish.policy,
            moves=len(moves),
            offline=sum(move.source == OFFLINE for move in moves),
        )
        return planned

    async def _plan(self, wish: Wish) -> Planned:
        table = self._ledger.table
        known = self._known()
        if wish.policy == BY_BYTES and not known.slots:
            raise NoSizes(f"the sizes of slots are not known, so nothing can be planned by bytes; {HOW_TO_MEASURE}")
        count_of, keys_of = _sizes(known, table)
        request = PlanRequest(
            bytes=count_of,
            keys=keys_of,
            capacity=wish.capacity,
            tolerance=wish.tolerance,
            most_slots=wish.most_slots,
            most_bytes=wish.most_bytes,
            drain=wish.drain,
        )
        plan = await asyncio.to_thread(planners.plan, wish.policy, table.groups.values(), table.slots, request)
        return Planned(plan, table, request, tuple(self._freshness().warnings) if known.slots else ())

    async def _begin(self, planned: Planned) -> bool:
        fits = False

        def begin(state: ClusterState, epoch: int) -> ClusterState:
            nonlocal fits
            fits = still_fits(planned.plan.moves, planned.table, state.table)
            if not fits:
                return state
            return interventions.with_table(state, topology.apply_moves(state.table, epoch, planned.plan.moves))

        await self._ledger.change(begin)
        return fits


def still_fits(moves: Iterable[Move], planned: SlotTable, now: SlotTable) -> bool:
    """Whether moves planned from one table are right for a later one.

    They are if every slot still comes to rest where it did, the same groups have servers, and what is to move is at
    rest. So actions that were under way may have gone on.
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


def _sizes(known: KnownSizes, table: SlotTable) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes and keys by slot. One that was not measured counts as the mean of those that were.

    As empty, it would have everything else moved to the group whose server could not be measured.
    """
    found = {slot: (size.bytes, size.keys) for slot, size in known.slots.items()}
    if not found:
        return {}, {}
    mean = tuple(sum(size[part] for size in found.values()) // len(found) for part in (0, 1))
    sizes = {slot.id: found.get(slot.id, mean) for slot in table.slots if slot.id in found or slot.group_id != OFFLINE}
    return {slot: size[0] for slot, size in sizes.items()}, {slot: size[1] for slot, size in sizes.items()}
