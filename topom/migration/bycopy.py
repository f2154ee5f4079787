"""The way of a batch whose keys are copied before the lock, by the replication stream (:mod:`migrator.stream`).

``copying`` lasts until the target has a copy that is nearly level with the source. Clients are at the source.

**level**: the target becomes the owner within the lock, only after it has all that the source has. The copy belongs to
this process: if it ends, or the copy is void, the slots are ``pending`` again, and whatever the target has of them is
swept before they begin anew.

If replicas have to have the keys (``min_replicas`` of the action), they have all before the target becomes the owner.
They are waited for before the lock as well, so that little is left within it.
"""

from slots.states import SlotState
from topom.migration.batches import Batch
from topom.migration.begin import Beginnings
from topom.migration.lock import Lock
from topom.migration.stored import StoredBatches
from topom.migration.streamed import StreamedCopies


class ByCopy:
    """The steps of batches that go by a copy; for others, its methods return at once."""

    def __init__(self, stored: StoredBatches, lock: Lock, beginnings: Beginnings, copies: StreamedCopies) -> None:
        self._stored = stored
        self._lock = lock
        self._beginnings = beginnings
        self._copies = copies

    async def stands(self, batch: Batch) -> bool:
        """Whether the copy that the stored actions tell of is this process's, and both masters are those of its
        beginning; if not, all begins anew. True if there is to be no copy."""
        if void := self._copies.why_void(batch, self._stored.actions(batch)):
            await self._beginnings.begin_anew(batch, void)
        return not void

    async def copy(self, batch: Batch) -> None:
        """Wait until the copy is nearly level, and store ``preparing``."""
        with self._stored.speeds.by_stream.following(batch.progress):
            await self.nearly_level(batch)
        await self._stored.store(batch, SlotState.PREPARING)

    async def nearly_level(self, batch: Batch) -> None:
        """Return once the copy is nearly level; if it is void, all begins anew."""
        try:
            await self._copies.nearly_level(batch)
        except Exception as error:
            await self._beginnings.begin_anew(batch, str(error))
            raise

    async def ready(self, batch: Batch) -> None:
        """Return once little is left to do within the lock: the copy is nearly level, and enough replicas have it.

        Raises as :meth:`nearly_level`, and MigrationError for the replicas; then the copy goes on.
        """
        if self._copies.of(batch) is not None:
            await self._copies.confirm(self._stored.target_of(batch), self._stored.actions(batch))
            # Since it was, much may have been written, and servers may have closed what was idle.
            await self.nearly_level(batch)

    async def settle(self, batch: Batch) -> None:
        """Return once **level** holds for the slots, which are locked, also at enough replicas. Whatever it raises, the
        copy is void."""
        if self._copies.of(batch) is not None:
            target, actions = self._stored.target_of(batch), self._stored.actions(batch)
            await self._copies.settle(batch, target, actions, self._lock.seconds)
            await self._stored.observe("level")
