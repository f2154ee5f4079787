"""The slot state machine: takes batches of slots from ``pending`` to rest at their target.

    pending -> preparing -> prepared -> migrating -> finished -> at rest

Each state is stored before anything follows from it, and proxies hear of it only then, so a topom that is
killed at any point goes on from what the store says: a batch that was locked is unlocked and locked again, one
that was migrating starts its scan afresh.

- ``preparing`` waits until all proxies have it, so that the lock that follows lasts only for what is in flight.
- ``prepared`` is the lock. **drained**: the next state is stored only after every proxy acknowledged this one.
  If one refuses or takes too long, all go back to ``preparing`` and it is tried again after a while.
- ``migrating`` lasts until the mover says that **complete** holds. Its scan begins after the barrier.
- ``finished`` waits until all proxies send to the target only, so that nobody looks at the source any more.

One batch is locked at a time: a proxy's refusal of a table then concerns that lock and no other one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import structlog

from migrator.progress import Progress, Totals, summed
from slots import ranges
from slots.states import SlotState
from slots.table import SlotTable
from topom import topology
from topom.backoff import Backoff
from topom.barrier import Barrier, BarrierFailed
from topom.batches import Batch, next_batches, servers_of
from topom.errors import Unavailable
from topom.ledger import Ledger, LostPlace
from topom.state import ClusterState, MigrationSettings

log = structlog.get_logger(__name__)

Observer = Callable[[str], Awaitable[None]]
"""Told of each step a batch takes, by name, before the next one; what it raises is the batch's to handle."""

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 10.0


class TargetWithoutServer(Unavailable):
    """Slots are on their way to a group that has lost its servers."""


class Mover(Protocol):
    """What is needed of the migrator."""

    async def move(self, source: str, target: str, slots: Sequence[int], progress: Progress) -> None:
        """Move every key of ``slots`` between these masters; return once **complete** holds. May be cancelled."""

    def set_pace(self, settings: MigrationSettings) -> None:
        """Let these settings hold from now on."""


class Actions:
    """Runs the batches of one topom."""

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        mover: Mover,
        configured: MigrationSettings,
        barrier_seconds: float,
        on_step: Observer | None = None,
    ) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self._mover = mover
        self._configured = configured
        self._barrier_seconds = barrier_seconds
        self._on_step = on_step
        self._running: dict[asyncio.Task[None], Batch] = {}
        self._wake = asyncio.Event()
        self._locking = asyncio.Lock()
        self._not_paused = asyncio.Event()
        self._settled = Totals(0, 0, 0.0, 0)
        self.slots_moved = 0
        """Slots that came to rest at their target since this topom started."""

    @property
    def settings(self) -> MigrationSettings:
        """What holds now."""
        return self._ledger.state.migration(self._configured)

    @property
    def batches(self) -> list[Batch]:
        """Those under way."""
        return sorted(self._running.values(), key=lambda batch: batch.slots)

    @property
    def totals(self) -> Totals:
        """Progress of all batches since this topom started; rate and remainder are those of the ones under way."""
        now = summed(batch.progress for batch in self._running.values())
        return replace(
            now,
            keys_moved=now.keys_moved + self._settled.keys_moved,
            bytes_moved=now.bytes_moved + self._settled.bytes_moved,
        )

    async def run(self) -> None:
        """Start batches as they become possible, until cancelled."""
        self._apply_settings()
        self._ledger.listen(self._changed)
        try:
            while True:
                self._wake.clear()
                self._start_batches()
                await self._wake.wait()
        finally:
            tasks = list(self._running)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    def _start_batches(self) -> None:
        settings = self.settings
        for batch in next_batches(
            self._ledger.table, self._running.values(), settings.parallel_slots, begin=not settings.paused
        ):
            task = asyncio.create_task(self._carry(batch), name=f"batch {batch.source_id}-{batch.target_id}")
            self._running[task] = batch
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        batch = self._running.pop(task)
        self._settled = summed_with(self._settled, batch.progress)
        self._wake.set()

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.migration_changes is not new.migration_changes:
            self._apply_settings()
        if old.table is not new.table or old.migration_changes is not new.migration_changes:
            self._wake.set()

    def _apply_settings(self) -> None:
        settings = self.settings
        self._mover.set_pace(settings)
        if settings.paused:
            self._not_paused.clear()
        else:
            self._not_paused.set()

    async def _carry(self, batch: Batch) -> None:
        """Take one batch to rest. Whatever fails is tried again with growing waits; only losing the store ends it."""
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        describe = {"source": batch.source_id, "target": batch.target_id, "slots": ranges.show(batch.slots)}
        log.info("batch_began", state=batch.state, **describe)
        while True:
            try:
                going_on = await self._follow_store(batch) and await self._step(batch)
            except LostPlace:
                batch.message = "another topom has taken over"
                return
            except BarrierFailed as error:
                batch.message = f"unlocked again, will be tried anew: {error}"
                log.warning("slots_unlocked", reason=str(error), **describe)
                await asyncio.sleep(backoff.next())
            except Exception as error:
                # Errors of the store and of the migrator are for the operator to see and mostly pass; nothing
                # else is expected, and an action must not stop silently whatever it is.
                batch.message = str(error) or type(error).__name__
                log.error(
                    "batch_failed", state=batch.state, reason=batch.message, kind=type(error).__name__, **describe
                )
                await asyncio.sleep(backoff.next())
            else:
                if not going_on:
                    log.info("batch_ended", keys_moved=batch.progress.keys_moved, **describe)
                    return
                batch.message = ""
                if batch.state != SlotState.PREPARING:  # unlocking, to lock again, is no progress
                    backoff.reset()

    async def _follow_store(self, batch: Batch) -> bool:
        """Take the state that is stored for the batch's own: a write that failed may be in the store all the same.

        False when the batch is at rest.
        """
        await self._ledger.confirm()
        if batch.state != SlotState.PENDING:
            action = self._ledger.table.slots[batch.slots[0]].action
            if action is None:
                return False
            batch.state = action.state
        return True

    async def _step(self, batch: Batch) -> bool:
        """Take the batch one step on; whether there is another one. The store has every state it passes."""
        match batch.state:
            case SlotState.PENDING:
                return await self._begin(batch)
            case SlotState.PREPARING:
                await self._wait_for_everyone(batch)
                await self._observe("preparing acknowledged")
                if not self._not_paused.is_set():
                    batch.message = "migration is paused"
                    await self._not_paused.wait()
                await self._lock_and_hand_over(batch)
            case SlotState.PREPARED:
                # The step that locked was broken off, by the store or an error: begin again unlocked.
                await self._store(batch, SlotState.PREPARING)
            case SlotState.MIGRATING:
                await self._migrate(batch)
            case SlotState.FINISHED:
                await self._wait_for_everyone(batch)
                await self._observe("finished acknowledged")
                await self._ledger.change(
                    lambda state, epoch: replace(state, table=topology.settle(state.table, epoch, batch.slots))
                )
                self.slots_moved += len(batch.slots)
                log.info("slots_moved", slots=ranges.show(batch.slots), epoch=self._ledger.table.epoch)
                await self._observe("settled")
                return False
        return True

    async def _begin(self, batch: Batch) -> bool:
        """Store ``preparing`` for those slots that no operator has given another target meanwhile."""
        wanted = batch.slots

        def begin(state: ClusterState, epoch: int) -> ClusterState:
            batch.slots = tuple(slot for slot in wanted if _waits(state.table, slot, batch))
            if not batch.slots:
                return state
            return replace(
                state,
                table=topology.advance(state.table, epoch, batch.slots, SlotState.PENDING, SlotState.PREPARING),
            )

        await self._ledger.change(begin)
        if not batch.slots:
            return False
        batch.state = SlotState.PREPARING
        await self._observe("preparing stored")
        return True

    async def _lock_and_hand_over(self, batch: Batch) -> None:
        async with self._locking:
            await self._store(batch, SlotState.PREPARED)
            epoch = self._ledger.table.epoch
            servers = servers_of(self._ledger.table, batch.source_id, batch.target_id)
            try:
                # drained: whoever could send to the source has locked the slots and had its replies, or is fenced.
                await self._barrier.reach(epoch, servers, self._barrier_seconds, stop_at_refusal=True)
                await self._observe("prepared acknowledged")
            except BarrierFailed:
                await self._store(batch, SlotState.PREPARING)
                raise
            has_keys_to_move = self._ledger.table.master_of(batch.source_id) is not None
            await self._store(batch, SlotState.MIGRATING if has_keys_to_move else SlotState.FINISHED)

    async def _migrate(self, batch: Batch) -> None:
        source = self._ledger.table.master_of(batch.source_id)
        target = self._ledger.table.master_of(batch.target_id)
        if target is None:
            raise TargetWithoutServer(
                f"group {batch.target_id} has no server to take the slots; give it one with 'slotferry server add'"
            )
        if source is not None:
            # complete: the mover's scan begins here, after the barrier, and covers every database.
            await self._mover.move(source, target, batch.slots, batch.progress)
        await self._observe("complete")
        await self._store(batch, SlotState.FINISHED)

    async def _wait_for_everyone(self, batch: Batch) -> None:
        """Wait until every proxy applies the batch's state, however long: nobody is held up by it."""
        while True:
            table = self._ledger.table
            servers = servers_of(table, batch.source_id, batch.target_id)
            try:
                await self._barrier.reach(table.epoch, servers, self._barrier_seconds, stop_at_refusal=False)
            except BarrierFailed as error:
                batch.message = str(error)
                log.warning("batch_waits", state=batch.state, slots=ranges.show(batch.slots), reason=str(error))
            else:
                return

    async def _store(self, batch: Batch, state: SlotState) -> None:
        before = batch.state
        await self._ledger.change(
            lambda stored, epoch: replace(
                stored, table=topology.advance(stored.table, epoch, batch.slots, before, state)
            )
        )
        batch.state = state
        log.info("slots_advanced", slots=ranges.show(batch.slots), state=state, epoch=self._ledger.table.epoch)
        await self._observe(f"{state} stored")

    async def _observe(self, step: str) -> None:
        if self._on_step is not None:
            await self._on_step(step)


def summed_with(totals: Totals, progress: Progress) -> Totals:
    """``totals`` and the keys and bytes of one more migration that is over."""
    return replace(
        totals,
        keys_moved=totals.keys_moved + progress.keys_moved,
        bytes_moved=totals.bytes_moved + progress.bytes_moved,
    )


def _waits(table: SlotTable, slot_id: int, batch: Batch) -> bool:
    slot = table.slots[slot_id]
    return (
        slot.group_id == batch.source_id
        and slot.action is not None
        and slot.action.state == SlotState.PENDING
        and slot.action.target_id == batch.target_id
    )
