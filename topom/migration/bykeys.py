"""The way of a batch whose keys move one by one, after the lock, while proxies move those that clients ask for.

``migrating`` lasts until the mover says that **complete** holds. Its scan begins after the barrier.

A migrating batch that is cancelled is turned round. While it is locked no mover moves a key, and nothing that was sent
can still arrive; then source and target are exchanged. It goes back through the same states.
"""

import asyncio
from collections.abc import Collection
from functools import partial

import structlog

from migrator.errors import MigrationError
from slots import ranges
from slots.beginning import Beginning
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.cluster import topology
from topom.cluster.events import What
from topom.errors import Unavailable
from topom.migration.batches import Batch
from topom.migration.interfaces import Mover
from topom.migration.lock import Lock
from topom.migration.samemasters import MasterChanged, same_masters
from topom.migration.stored import StoredBatches
from topom.reasons import Kind

log = structlog.get_logger(__name__)


class TurnTimeout(Unavailable):
    """Slots that were locked to be turned round had to be unlocked before they were."""

    kind = Kind.SERVER


class ByKeys:
    """The steps in ``migrating``."""

    def __init__(self, stored: StoredBatches, lock: Lock, mover: Mover) -> None:
        self._stored = stored
        self._lock = lock
        self._mover = mover

    async def migrate(self, batch: Batch) -> None:
        """Move all keys, and store ``finished``."""
        source = self._stored.source_of(batch)
        target = self._stored.target_of(batch)
        if source is not None:
            require = same_masters(lambda: self._stored.table, batch, source, target)
            require()
            # complete: the mover's scan begins here, after the barrier, and covers every database.
            # by-action: slots whose actions began otherwise are in another batch.
            beginnings = {action.beginning for action in self._stored.actions(batch)}
            beginning = beginnings.pop() if len(beginnings) == 1 else Beginning(back=batch.course is Course.BACK)
            batch.progress.tell_servers = partial(self._tell_restarted, batch, source, target, beginning)
            with self._stored.speeds.by_keys.following(batch.progress):
                await self._mover.move(source, target, batch.slots, batch.progress, beginning, require)
        await self._stored.observe("complete")
        await self._finish(batch, source)

    def _tell_restarted(
        self, batch: Batch, source: str, target: str, beginning: Beginning, source_run_id: str, target_run_id: str
    ) -> None:
        """Say once of each process that is not the one which the move began at: it may have keys again that have left
        it."""
        left = [(source, beginning.source, source_run_id, batch.target_id)]
        if beginning.back:
            # Keys had left the one that takes them now, before the slots were turned round.
            left.append((target, beginning.target, target_run_id, batch.source_id))
        for server, began_at, run_id, other in left:
            if not began_at or run_id == began_at or run_id in batch.restarted_as:
                continue
            batch.restarted_as.add(run_id)
            batch.restarted[server] = said = (
                f"{server} was restarted while keys moved; if its data are older, keys that clients have deleted at "
                f"group {other} may be alive again"
            )
            log.warning("source_restarted", source=server, run_id=run_id, slots=ranges.show(batch.slots))
            self._stored.note(What.SOURCE_RESTARTED, f"{said}; slots {ranges.show(batch.slots)}")

    async def _finish(self, batch: Batch, source: str | None) -> None:
        def finish(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            # complete: the server that was scanned must still be the source.
            now = table.master_of(batch.source_id)
            if now != source:
                raise MasterChanged(f"the master of group {batch.source_id} is {now} by now; its keys are moved, too")
            return topology.advance(table, epoch, slots, SlotState.MIGRATING, SlotState.FINISHED)

        await self._stored.change(batch, finish)
        batch.state = SlotState.FINISHED
        await self._stored.advanced(batch)

    async def turn(self, batch: Batch) -> None:
        """Exchange source and target, while no proxy uses the slots. The mover does not run."""
        source = self._stored.source_of(batch)
        target = self._stored.target_of(batch)
        assert source is not None, "a slot that comes from no server does not migrate"
        await self._lock.wait_for_everyone(batch)
        await self._stored.observe("turning acknowledged")
        # Servers that do not answer are found before the lock, and cost clients nothing.
        for server in (target, source):
            await self._mover.check(None, server, 0.0)
        async with self._lock.one_at_a_time():
            await self._stored.change(batch, topology.turn, turns=True)
            batch.state = SlotState.PREPARED
            log.info("slots_turning", slots=ranges.show(batch.slots), epoch=self._stored.table.epoch)
            await self._stored.observe("turn stored")
            still_held = await self._lock.hold(batch)
            try:
                # one-way: if a key was taken for the other way and is placed late, no proxy looks for it.
                async with asyncio.timeout(self._lock.seconds):
                    await self._mover.withdraw(source, target)
            except (MigrationError, TimeoutError) as error:
                await self._lock.unlock(batch)
                if isinstance(error, MigrationError):
                    raise
                raise TurnTimeout(
                    f"the permit to move keys from {source} to {target} was not withdrawn within "
                    f"{self._lock.seconds:g} s; the slots are unlocked, and it is tried again"
                ) from None
            await self._stored.observe("turn withdrawn")
            await self._lock.hand_over(batch, SlotState.MIGRATING, still_held)

    async def let_go(self, batch: Batch) -> None:
        """Give back what the mover has claimed, for the proxies that go on moving keys of skipped slots.

        The claim on a big key ends with a call of the mover, and no call follows.
        """
        source, target = self._stored.source_of(batch), self._stored.table.master_of(batch.target_id)
        if source is None or target is None:
            return
        try:
            await self._mover.withdraw(source, target)
        except MigrationError as error:
            # This is not tried again: other batches wait for the groups, and perhaps the slots were skipped because a
            # server does not answer.
            log.warning("claims_left", source=source, target=target, reason=str(error))
