"""The steps of one batch of slots, each from one stored state to the next.

    pending -> preparing -> prepared -> migrating -> finished -> at rest
    pending -> copying -> preparing -> prepared -> finished -> at rest

- ``pending``: the servers are checked, and the target is swept (:mod:`topom.migration.begin`).
- ``copying`` and ``migrating`` belong to the two ways of moving keys: :mod:`topom.migration.bycopy` and
  :mod:`topom.migration.bykeys`.
- ``preparing`` waits until all proxies have it, so that the lock after it lasts only for what is in flight. If a server
  is then another process than the one that was checked, all begins anew. The servers are watched until the slots are
  handed over.
- ``prepared`` is the lock (:mod:`topom.migration.lock`).
- ``finished`` waits until no proxy looks at the source (:mod:`topom.migration.arrival`).
"""

import asyncio
import time
from collections.abc import Callable, Collection

from migrator.checks import Findings, Watch
from slots.states import Course, SlotState
from topom.cluster.ledger import Ledger
from topom.cluster.speed import Speeds
from topom.errors import TopomError
from topom.migration.arrival import Arrivals
from topom.migration.batches import Batch
from topom.migration.begin import Beginnings
from topom.migration.bycopy import ByCopy
from topom.migration.bykeys import ByKeys
from topom.migration.interfaces import Mover, Observer, Sweep
from topom.migration.lock import Lock
from topom.migration.samemasters import same_masters
from topom.migration.stored import StoredBatches
from topom.migration.streamed import StreamedCopies
from topom.migration.ways import Choice
from topom.proxies.barrier import Barrier
from topom.reasons import Reason


class Steps:
    """Takes batches further, a step at a time.

    Args:
        barrier_seconds: how long slots may stay locked, and how long each wait for a barrier takes at most.
        not_halted: set unless an operator has paused the migration, or its hours are over.
        halt: gives which of these it is.
        waits: is called with a batch that waits, and the reason.
        choose: the way of a batch that begins.
        speeds: measures the moves.
        on_step: is called with each step.
        clock: seconds since 1970.
        sweep: sweeps a target.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        mover: Mover,
        barrier_seconds: float,
        not_halted: asyncio.Event,
        halt: Callable[[], Reason | None],
        waits: Callable[[Batch, Reason | TopomError], object],
        choose: Callable[[Batch, Findings], Choice],
        speeds: Speeds,
        on_step: Observer | None = None,
        clock: Callable[[], float] = time.time,
        sweep: Sweep | None = None,
    ) -> None:
        self.copies = StreamedCopies(mover, choose)
        self.speeds = speeds
        self._ledger = ledger
        self._mover = mover
        self._not_halted = not_halted
        self._halt = halt
        self._waits = waits
        sweep = sweep or _nothing_to_sweep
        self.stored = StoredBatches(ledger, speeds, on_step, clock)
        self._lock = Lock(self.stored, barrier, barrier_seconds, waits)
        self._beginnings = Beginnings(self.stored, mover, sweep, self.copies)
        self._by_copy = ByCopy(self.stored, self._lock, self._beginnings, self.copies)
        self._by_keys = ByKeys(self.stored, self._lock, mover)
        self._arrivals = Arrivals(self.stored, self._lock, mover, sweep)

    @property
    def slots_moved(self) -> int:
        """How many slots have arrived at their targets."""
        return self._arrivals.slots_moved

    async def check(self, source_id: int, target_id: int, slots: Collection[int]) -> None:
        """As :meth:`topom.migration.begin.Beginnings.check`."""
        await self._beginnings.check(source_id, target_id, slots)

    async def follow_store(self, batch: Batch) -> bool:
        """Make the batch what the store says. False if no slot is left, or the batch is at rest."""
        had = batch.slots
        state = await self.stored.follow(batch)
        if not batch.slots:
            if batch.state is SlotState.MIGRATING and not state.skipped.keys().isdisjoint(had):
                await self._by_keys.let_go(batch)
            return False
        self.copies.keep_only_slots(batch)
        return True

    async def take(self, batch: Batch) -> bool:
        """Take the batch one step further; gives whether another step follows. The store has every state that it
        passes.

        Raises:
            CheckFailed: the slots are still pending.
            BarrierFailed: they are unlocked.
            MigrationError, TopomError: they are in the state that they were in.
        """
        match batch.state:
            case SlotState.PENDING:
                if batch.copies_lost:
                    # A copy that ended in a pause, or by it, would cost the source a snapshot beside the hours.
                    await self._unhalted(batch)
                await self._beginnings.begin(batch)
            case SlotState.COPYING:
                if await self._by_copy.stands(batch):
                    await self._by_copy.copy(batch)
            case SlotState.PREPARING:
                if await self._by_copy.stands(batch):
                    await self._prepare(batch)
            case SlotState.PREPARED:
                # The step that locked was broken off, by the store or an error: unlock, and begin again.
                await self._lock.unlock(batch)
            case SlotState.MIGRATING if batch.course is Course.TURNING:
                await self._by_keys.turn(batch)
            case SlotState.MIGRATING:
                await self._by_keys.migrate(batch)
            case SlotState.FINISHED:
                await self.copies.leave(batch)
                await self._arrivals.come_to_rest(batch)
                return False
        return True

    async def _prepare(self, batch: Batch) -> None:
        await self._lock.wait_for_everyone(batch)
        await self.stored.observe("preparing acknowledged")
        await self._unhalted(batch)
        await self._by_copy.ready(batch)
        source, target = self.stored.source_of(batch), self.stored.target_of(batch)
        async with self._mover.watch(source, target) as watch:
            if not self._are_as_begun(batch, watch):
                await self._beginnings.begin_anew(batch, "a server was restarted or replaced")
                return
            # level: from this look on until the slots are handed over, both groups have these masters. A failover may
            # come first to the lock.
            require = (
                same_masters(lambda: self._ledger.table, batch, source, target) if source is not None else _nothing
            )
            await self._lock_and_hand_over(batch, source, watch, require)

    async def _unhalted(self, batch: Batch) -> None:
        """Return once no operator has paused the migration, and its hours are not over."""
        if not self._not_halted.is_set():
            if (halt := self._halt()) is not None:
                self._waits(batch, halt)
            await self._not_halted.wait()

    def _are_as_begun(self, batch: Batch, watch: Watch) -> bool:
        """Whether both masters are the processes that were checked, and swept, before ``preparing`` was stored."""
        actions = self.stored.actions(batch)
        return all((action.source_run_id, action.target_run_id) == watch.run_ids for action in actions)

    async def _lock_and_hand_over(
        self, batch: Batch, source: str | None, watch: Watch, require: Callable[[], None]
    ) -> None:
        async with self._lock.one_at_a_time():
            # owned: from here on, what the target has of these slots belongs to them.
            await self.stored.store(batch, SlotState.PREPARED, require)
            still_held = await self._lock.hold(batch)
            try:
                await self._by_copy.settle(batch)
                # owned, by-action: if a server was restarted, it may have keys again that a sweep had deleted. If
                # it restarts after this point, it is known that the action began with another process
                # (:mod:`slots.beginning`).
                await watch.same()
            except Exception:
                await self._lock.unlock(batch)
                raise
            moves_keys = source is not None and self.copies.of(batch) is None
            state = SlotState.MIGRATING if moves_keys else SlotState.FINISHED
            await self._lock.hand_over(batch, state, still_held, require)


def _nothing() -> None:
    """Used if there is nothing to require."""


async def _nothing_to_sweep(group_id: int) -> None:
    """Used if no sweep is given: then servers have no foreign keys."""
