"""The lock of a batch's slots, and their handing over, whichever way their keys go.

**drained**: the state in which the target owns the slots is stored only after every proxy acknowledged the lock. If a
proxy refuses or takes too long, all slots are unlocked.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

import structlog

from slots import ranges
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.cluster import topology
from topom.migration.batches import Batch, servers_of
from topom.migration.samemasters import MasterChanged
from topom.migration.stored import StoredBatches
from topom.proxies.barrier import Barrier, BarrierFailed
from topom.reasons import Reason

log = structlog.get_logger(__name__)


class Lock:
    """The locks of one topom.

    Args:
        seconds: how long slots may stay locked, and how long each wait for a barrier takes at most.
        waits: is called with a batch that waits, and the reason.
    """

    def __init__(
        self,
        stored: StoredBatches,
        barrier: Barrier,
        seconds: float,
        waits: Callable[[Batch, Reason | BarrierFailed], object],
    ) -> None:
        self.seconds = seconds
        self._stored = stored
        self._barrier = barrier
        self._waits = waits

    def one_at_a_time(self) -> AbstractAsyncContextManager[None]:
        """Only one batch or group is locked at a time."""
        return self._barrier.locking()

    async def wait_for_everyone(self, batch: Batch) -> None:
        """Wait until every proxy applies the batch's state, however long that takes: no request waits for it."""
        while True:
            table = self._stored.table
            servers = servers_of(table, batch.source_id, batch.target_id)
            try:
                await self._barrier.reach(table.epoch, servers, self.seconds, stop_at_refusal=False)
            except BarrierFailed as error:
                self._waits(batch, error)
            else:
                return

    async def hold(self, batch: Batch) -> Callable[[], bool]:
        """Return once every proxy holds the lock that was stored; unlock if that is not possible.

        Gives a function that tells later whether that still holds.
        """
        table = self._stored.table
        servers = servers_of(table, batch.source_id, batch.target_id)
        try:
            # drained: each proxy that could send to the source has locked the slots and had its replies, or is fenced.
            await self._barrier.reach(table.epoch, servers, self.seconds, stop_at_refusal=True)
            await self._stored.observe("prepared acknowledged")
        except BarrierFailed:
            await self.unlock(batch)
            raise
        return lambda: self._barrier.passed(table.epoch, servers)

    async def hand_over(
        self,
        batch: Batch,
        state: SlotState,
        still_held: Callable[[], bool],
        require: Callable[[], None] = lambda: None,
    ) -> None:
        """Store the state in which the target owns the slots; unlock if a proxy does not hold the lock, or ``require``
        raises MasterChanged."""

        def advance(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            # drained: a proxy that registered meanwhile may have got the locking table and failed to drain. No proxy
            # can register between this look and the write.
            if not still_held():
                raise BarrierFailed("a proxy registered after the others had locked, and has not locked itself")
            # level: what the target has is that of these two masters.
            require()
            return topology.advance(table, epoch, slots, SlotState.PREPARED, state)

        try:
            await self._stored.change(batch, advance)
        except (BarrierFailed, MasterChanged):
            await self.unlock(batch)
            raise
        batch.state = state
        await self._stored.advanced(batch)

    async def unlock(self, batch: Batch) -> None:
        """Store the state from before the lock."""
        back = batch.course is Course.BACK
        await self._stored.change(batch, topology.unlock, turns=back)
        batch.state = SlotState.MIGRATING if back else SlotState.PREPARING
        log.info("slots_unlocked", slots=ranges.show(batch.slots), epoch=self._stored.table.epoch)
        await self._stored.observe(f"{batch.state} stored")
