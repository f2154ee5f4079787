"""The lock of a group while another of its servers becomes its master, and which groups are being worked on now.

**drained**, **one-owner**: a lock counts once every proxy that could send to the master has acknowledged it, or is
fenced. The lock is stored together with the change that it is for, so that the next leader can end it
(:mod:`topom.masters.endings`).
"""

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from topom.cluster import topology
from topom.cluster.cancelling import with_table
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Promotion
from topom.errors import NotReady
from topom.proxies.barrier import Barrier, BarrierFailed

log = structlog.get_logger(__name__)

Observer = Callable[[str], Awaitable[None]]
"""Is called with the name of each step, before the next one."""


class GroupLocks:
    """The locked groups of one topom.

    Args:
        on_step: is called with each step.
    """

    def __init__(self, ledger: Ledger, barrier: Barrier, on_step: Observer | None) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self.on_step = on_step
        self.busy: set[int] = set()
        """Groups that a task is giving another master just now: no other task ends their changes."""
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever another task may go on with a group."""
        self._listeners.append(listener)

    @contextmanager
    def held_by_this(self, group_id: int) -> Iterator[None]:
        """Keep other tasks from going on with a group inside the ``with`` block."""
        self.busy.add(group_id)
        try:
            yield
        finally:
            self.busy.discard(group_id)
            for listener in self._listeners:
                listener()

    async def lock(self, group_id: int, promotion: Promotion, lost: bool = False) -> None:
        """Store that a group is locked for this change.

        Args:
            lost: whether its master is gone.

        Raises:
            NotReady: the group has another master now, or the server is not in it.
            GroupNotFound, GroupLocked, SlotsInAction, StoreError, LostPlace, NotLeading.
        """

        def lock(state: ClusterState, epoch: int) -> ClusterState:
            group = topology.group_of(state.table, group_id)
            if group.master != promotion.former or promotion.server not in group.servers:
                raise NotReady(f"group {group_id} was changed meanwhile; look at it, and try again")
            new = with_table(state, topology.lock_group(state.table, epoch, group_id, lost))
            return with_promotion(new, group_id, promotion)

        state = await self._ledger.change(lock)
        log.info("group_locked", group=group_id, server=promotion.server, lost=lost, epoch=state.table.epoch)
        await self.observe("lock stored")

    def require_held(self, epoch: int, servers: Collection[str]) -> None:
        """Raises BarrierFailed if not every proxy has the lock of this epoch, although the barrier was reached."""
        if not self._barrier.passed(epoch, servers):
            raise BarrierFailed("a proxy registered after the others had locked, and has not locked itself")

    async def observe(self, step: str) -> None:
        """Tell the observer that this step is done."""
        if self.on_step is not None:
            await self.on_step(step)


def with_promotion(state: ClusterState, group_id: int, promotion: Promotion) -> ClusterState:
    """The state in which this promotion has begun. It remembers the servers of an earlier one that is not over."""
    before = state.promotions.get(group_id)
    if before is not None:
        others = before.concerned.intersection(state.table.groups[group_id].servers) - promotion.concerned
        promotion = replace(promotion, earlier=tuple(sorted(others)))
    return replace(state, promotions={**state.promotions, group_id: promotion})
