"""The end of a batch, whichever way its keys went: its slots come to rest at their target.

``finished`` waits until all proxies send to the target only, so that no proxy looks at the source. Then the permit to
move keys is withdrawn. A source that does not answer keeps no slot from coming to rest: clients need it no more.

After a copy there is no permit, and the source still has its keys of the slots. They are swept once the slots are at
rest, and that waits for the target's replicas.
"""

import structlog

from migrator.errors import MigrationError, SourceUnavailable, TooFewReplicas
from slots import ranges
from slots.states import Course
from topom.cluster import topology
from topom.errors import TopomError
from topom.migration.batches import Batch
from topom.migration.interfaces import Mover, Sweep
from topom.migration.lock import Lock
from topom.migration.stored import StoredBatches

log = structlog.get_logger(__name__)


class Arrivals:
    """The arrivals of one topom's batches."""

    def __init__(self, stored: StoredBatches, lock: Lock, mover: Mover, sweep: Sweep) -> None:
        self._stored = stored
        self._lock = lock
        self._mover = mover
        self._sweep = sweep
        self.slots_moved = 0
        """How many slots have arrived at their targets."""

    async def come_to_rest(self, batch: Batch) -> None:
        """Take a finished batch to rest."""
        await self._lock.wait_for_everyone(batch)
        await self._stored.observe("finished acknowledged")
        source = self._stored.source_of(batch)
        copied = any(action.copy for action in self._stored.actions(batch))
        doubted = None
        if copied:
            await self._spread(batch)
            if not await self._is_as_level(batch):
                doubted = batch.source_id
        withdrawn = copied or source is None or await self._withdraw(source, self._stored.target_of(batch))
        await self._stored.change(
            batch, topology.come_to_rest, arrives=source is not None, doubted=doubted, left=not withdrawn
        )
        if batch.course is Course.FORWARD:
            self.slots_moved += len(batch.slots)
        log.info("slots_moved", slots=ranges.show(batch.slots), epoch=self._stored.table.epoch)
        await self._stored.observe("at rest")
        if copied and doubted is None:
            await self._clean(batch.source_id)

    async def _withdraw(self, source: str, target: str) -> bool:
        """Have no step of this move place a key at the target any more; gives whether none can delete one at the source
        either.

        A source that does not answer, and may be lost for good, keeps its permit: it has no key of the slots
        (**complete**), and they come back only after the permit is withdrawn (:mod:`topom.cluster.leftovers`).
        """
        try:
            # one-way: before the slot may come back, nothing from this move may still move keys this way.
            await self._mover.withdraw(source, target)
        except SourceUnavailable as error:
            await self._mover.withdraw(None, target)
            log.warning("permit_left", source=source, target=target, reason=str(error))
            return False
        return True

    async def _spread(self, batch: Batch) -> None:
        """Wait until all replicas that follow the target have what it got, within a limit: until then the source's keys
        are all that is left if the target is lost.

        A target without replicas is not waited for. Its next save may be an hour away, and no other slots could move to
        the group meanwhile. It has these keys as safely as those that clients write there.
        """
        try:
            await self._mover.confirm(self._stored.target_of(batch), None)
        except TooFewReplicas as error:
            log.warning("replicas_behind", slots=ranges.show(batch.slots), reason=str(error))

    async def _is_as_level(self, batch: Batch) -> bool:
        """Whether the target is the process that was level. Another one may lack what only the source has besides."""
        async with self._mover.watch(None, self._stored.target_of(batch)) as watch:
            return all(action.target_run_id == watch.run_ids[1] for action in self._stored.actions(batch))

    async def _clean(self, source_id: int) -> None:
        """Have the source's keys of slots that have left it deleted. What fails here is tried again as any sweep is."""
        try:
            await self._sweep(source_id)
        except (MigrationError, TopomError) as error:
            log.warning("source_not_cleaned", group=source_id, reason=str(error))
        await self._stored.observe("cleaned")
