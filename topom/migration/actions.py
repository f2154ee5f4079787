"""Which batches of slots run, side by side and one after the other, and what becomes of one that fails.

Each state of a batch is stored before anything follows from it (:mod:`topom.migration.steps`), and proxies hear of it
only then. So a topom that is killed at any point goes on from the store: a batch that was locked is unlocked and locked
again, and one that was migrating begins its scan again.

What fails is tried again with growing waits, and an operator sees why. A batch whose check fails has touched no slot:
it ends, its groups are free for other batches, and its pair of groups is tried again (:mod:`topom.migration.deferral`).
So does one that cannot begin beside others of its source (:mod:`topom.migrators.gathering`); it waits for its turn.
What they have learned of their copies is kept.

Only one batch is locked at a time, so a proxy's refusal of a table concerns that lock and no other. An operator may
take slots from a batch at any time (:mod:`topom.cluster.cancelling`). Then its step is broken off, which does no harm
at any point, and it goes on with the slots that the store still has as its own.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import structlog

from migrator.progress import Progress, Totals, summed
from slots import ranges
from slots.backoff import Backoff
from slots.states import SlotState
from topom.cluster.hours import Halt
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.speed import PairSpeed, Speeds
from topom.cluster.state import ClusterState, MigrationSettings
from topom.migration.batches import Batch, Pair, next_batches, pending_slots
from topom.migration.begin import CheckFailed
from topom.migration.choosing import Choosing
from topom.migration.deferral import Deferral
from topom.migration.interfaces import Mover, Observer, Sweep
from topom.migration.levelling import Levelling
from topom.migration.steps import Steps
from topom.migration.ways import Way
from topom.migrators.gathering import OutOfTurn
from topom.periodic import Look, Loop
from topom.proxies.barrier import Barrier, BarrierFailed
from topom.reasons import Kind, Reason, Reasons

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 10.0


class Actions(Loop):
    """Runs the batches of one topom."""

    name = "batches"
    pause_seconds: ClassVar[float | None] = 0.0

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        mover: Mover,
        configured: MigrationSettings,
        barrier_seconds: float,
        on_step: Observer | None = None,
        sweep: Sweep | None = None,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._mover = mover
        self._configured = configured
        self._not_halted = asyncio.Event()
        speeds = Speeds()
        self.choosing = Choosing(ledger, mover, lambda: self.settings, speeds)
        self.steps = Steps(
            ledger,
            barrier,
            mover,
            barrier_seconds,
            self._not_halted,
            self.halted,
            self._wait,
            self.choosing.of_batch,
            speeds,
            on_step,
            sweep=sweep,
        )
        self._running: dict[asyncio.Task[None], Batch] = {}
        self._deferral = Deferral(self.wake)
        self._former: dict[Pair, tuple[Batch, bool]] = {}
        self._reasons = Reasons[Batch]("batch_waits")
        self.levelling = Levelling()
        self._halts = Reasons[str]("migration_halted", level="info")
        self._ended_batches = Totals(0, 0, 0.0, 0)
        self.last_batch_seconds: float | None = None
        """How long the batch took that ended last, in seconds; None before the first."""

    @property
    def slots_moved(self) -> int:
        """How many slots have arrived at their targets since this topom started."""
        return self.steps.slots_moved

    @property
    def settings(self) -> MigrationSettings:
        """The settings that hold now."""
        return self._ledger.state.migration(self._configured)

    def configure(self, configured: MigrationSettings) -> None:
        """Let other settings hold from now on, but for what an operator has set over them."""
        self._configured = configured
        self._apply_settings()
        self.wake()

    @property
    def halt(self) -> Halt | None:
        """Why only keys move now that clients ask for; None if all may move."""
        return self._ledger.state.halt(self._configured)

    @property
    def batches(self) -> list[Batch]:
        """The batches under way."""
        return sorted(self._running.values(), key=lambda batch: batch.slots)

    @property
    def deferred(self) -> list[tuple[Pair, list[int], Reason]]:
        """Pairs of groups whose target cannot take slots, the slots that wait for it, and why; pairs with a batch are
        left out.
        """
        running = {batch.pair for batch in self._running.values()}
        found = (
            (pair, pending_slots(self._ledger.state, pair), reason)
            for pair in self._deferral.pairs()
            if pair not in running and (reason := self._deferral.reason(pair)) is not None
        )
        return [entry for entry in found if entry[1]]

    @property
    def speed(self) -> PairSpeed | None:
        """How fast a pair of groups moved keys one by one lately, by this topom or else an earlier leader; None while
        that is unknown.
        """
        return self.steps.speeds.by_keys.latest or self._ledger.state.speed

    def reason(self, batch: Batch) -> Reason | None:
        """What a batch waits for; None if it does not wait."""
        known = self._reasons.get(batch)
        return known or (self._deferral.reason(batch.pair) if batch.state is SlotState.PENDING else None)

    def reasons(self) -> dict[int, Reason]:
        """Why actions do not go on, by slot. Actions that go on, or wait for their turn, are left out."""
        found = {slot: reason for _, slots, reason in self.deferred for slot in slots}
        for batch in self._running.values():
            if (reason := self.reason(batch)) is not None:
                found.update(dict.fromkeys(batch.slots, reason))
        return found | dict(self._ledger.state.skipped)

    def halted(self) -> Reason | None:
        """As :attr:`halt`, with the time since when that is so."""
        halt = self.halt
        if halt is None:
            self._halts.over("")
            return None
        return self._halts.waits("", Reason(halt.kind, halt.what, halt.since, halt.to_do), until=halt.until)

    def retry(self) -> None:
        """Try at once what has failed and waits to be tried again."""
        self._deferral.retry()
        for batch in self._running.values():
            if batch.resting:
                batch.changed.set()

    def forget_failures(self) -> None:
        """Let slots that are yet to begin be copied as if no copy had failed: an operator has seen to that."""
        self.choosing.forget_given_up()
        for batch in (*(former for former, _ in self._former.values()), *self._running.values()):
            if batch.state is SlotState.PENDING:
                batch.forget_copies()

    @property
    def totals(self) -> Totals:
        """Progress of all batches since this topom started; rate and remainder are those of the batches under way."""
        now = summed(batch.progress for batch in self._running.values())
        return replace(
            now,
            keys_moved=now.keys_moved + self._ended_batches.keys_moved,
            bytes_moved=now.bytes_moved + self._ended_batches.bytes_moved,
        )

    async def run(self) -> None:
        """As :meth:`topom.periodic.Loop.run`; batches under way end with it."""
        self._apply_settings()
        self._ledger.listen(self._changed)
        try:
            await super().run()
        finally:
            tasks = list(self._running)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            self._deferral.close()

    async def look(self) -> Look:
        """Start the batches that are possible now."""
        self._start_batches()
        slots = sum(len(batch.slots) for batch in self._running.values())
        move, batches = "slot moves" if slots == 1 else "slots move", "batch" if len(self._running) == 1 else "batches"
        return Look(f"{slots} {move} in {len(self._running)} {batches}" if self._running else "")

    def _start_batches(self) -> None:
        settings = self.settings
        state = self._ledger.state
        for pair in self._deferral.pairs():
            if not pending_slots(state, pair):
                self._deferral.passed(pair)
        for pair in list(self._former):
            if not pending_slots(state, pair):
                del self._former[pair]
        for batch in next_batches(
            state,
            self._running.values(),
            settings.parallel_slots,
            begin=self._not_halted.is_set(),
            deferred=self._deferral.waiting,
            share=settings.way != Way.KEYS,
            alone=[pair for pair, (_, alone) in self._former.items() if alone],
        ):
            former, _ = self._former.pop(batch.pair, (None, False))
            if former is not None:
                batch.goes_on_from(former)
            task = asyncio.create_task(self._carry(batch), name=f"batch {batch.source_id}-{batch.target_id}")
            self._running[task] = batch
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        batch = self._running.pop(task)
        self._reasons.over(batch)
        self._ended_batches = summed_with(self._ended_batches, batch.progress)
        self.wake()

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.migration_changes is not new.migration_changes or old.pause is not new.pause:
            self._apply_settings()
        if old.table is not new.table or old.skipped is not new.skipped:
            for batch in self._running.values():
                if any(old.table.master_of(group) != new.table.master_of(group) for group in batch.groups):
                    # complete: its keys are at another server now, or have to go to another one.
                    batch.changed.set()
                if batch.writing:
                    batch.writing = False
                elif batch.remaining(new) != batch.slots:
                    batch.changed.set()
        self.wake()

    def _apply_settings(self) -> None:
        halted = self.halted() is not None
        self._mover.set_pace(replace(self.settings, paused=halted))
        if halted:
            self._not_halted.clear()
        else:
            self._not_halted.set()

    def _wait(self, batch: Batch, why: Reason | BaseException) -> Reason:
        return self._reasons.waits(batch, why, state=batch.state, **_described(batch))

    def follow_clock(self) -> None:
        """Halt or go on by the hours of migration, and measure how fast keys move (:mod:`topom.migration.clock`)."""
        halted = self.halted() is not None
        self.steps.speeds.look(halted)
        self._look_at_copies(halted)
        if self._not_halted.is_set() == halted:
            if not halted:
                log.info("migration_goes_on")
            self._apply_settings()
            self.wake()

    def lags(self) -> dict[Batch, int | None]:
        """For each batch that is copied, how many bytes are missing at its target; None while that is not known."""
        found = {batch: self.steps.copies.of(batch) for batch in self._running.values()}
        return {batch: copy.lag for batch, copy in found.items() if copy is not None}

    def _look_at_copies(self, halted: bool) -> None:
        """Say which copies do not get level. While keys may not move, none is expected to."""
        before = self.levelling.stuck
        self.levelling.look({} if halted else self.lags())
        for batch, reason in before.items():
            said = self._reasons.get(batch)
            if batch not in self.levelling.stuck and said is not None and said.what == reason.what:
                self._reasons.over(batch)
        for batch, reason in self.levelling.stuck.items():
            self._wait(batch, reason)

    async def _carry(self, batch: Batch) -> None:
        """Take one batch to rest, and end what it has begun."""
        try:
            await self._take_to_rest(batch)
        finally:
            await self.steps.copies.leave(batch)
            # Others may go key by key from here on.
            batch.gathering.leave(batch)

    async def _take_to_rest(self, batch: Batch) -> None:
        """Take one batch to rest. What fails is tried again with growing waits; only a lost place in the store ends
        that.
        """
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        loop = asyncio.get_running_loop()
        began = loop.time()
        log.info("batch_began", state=batch.state, **_described(batch))
        while True:
            batch.changed.clear()
            try:
                going_on = await self.steps.follow_store(batch) and await self._unless_changed(
                    batch, self.steps.take(batch)
                )
            except LostPlace:
                return
            except CheckFailed as error:
                self._deferral.defer(batch.pair, error, **_described(batch))
                # bounded: a target that ends each copy, and then fails its check, costs the source no more snapshots.
                self._former[batch.pair] = batch, False
                return
            except OutOfTurn as error:
                log.info("batch_waits_for_its_turn", reason=error.what, **_described(batch))
                self._deferral.passed(batch.pair)
                self._former[batch.pair] = batch, error.alone
                return
            except BarrierFailed as error:
                what = f"unlocked again, will be tried anew: {error.what}"
                self._wait(batch, Reason(error.kind, what, to_do=error.to_do))
                await self._rest(batch, backoff.next())
            except Exception as error:
                # The operator sees errors of the store and of the migrator, and most of them pass. No other error is
                # expected, but an action must not stop silently for any error.
                reason = self._wait(batch, error)
                if reason.kind is Kind.FAULT:
                    log.error("batch_failed", exc_info=error, **_described(batch))
                seconds = backoff.next()
                # bounded: proxies hold requests for locked slots, so these are unlocked as soon as that is possible.
                await self._rest(batch, FIRST_WAIT_SECONDS if batch.state is SlotState.PREPARED else seconds)
            else:
                if not going_on:
                    self.last_batch_seconds = loop.time() - began
                    log.info("batch_ended", keys_moved=batch.progress.keys_moved, **_described(batch))
                    return
                self._reasons.over(batch)
                self._deferral.passed(batch.pair)
                if batch.state != SlotState.PREPARING:  # unlocking and locking again later is not progress
                    backoff.reset()

    async def _unless_changed(self, batch: Batch, step: Coroutine[Any, Any, bool]) -> bool:
        """Take a step to its end, or break it off if the batch's slots change: then another step follows."""
        task = asyncio.create_task(step)
        change = asyncio.create_task(batch.changed.wait())
        try:
            await asyncio.wait((task, change), return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            if not task.done():
                task.cancel()
                # The mover finishes a step of its own that is under way.
                await asyncio.wait((task,))
                if not task.cancelled():
                    task.exception()  # a step that is broken off has no use for it
        return True if task.cancelled() else task.result()

    async def _rest(self, batch: Batch, seconds: float) -> None:
        """Wait before another attempt, but no longer than until an operator wants it at once, or the batch's slots
        change.
        """
        batch.resting = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await batch.changed.wait()
        finally:
            batch.resting = False


def summed_with(totals: Totals, progress: Progress) -> Totals:
    """``totals``, with the keys and bytes of one more batch that is over."""
    return replace(
        totals,
        keys_moved=totals.keys_moved + progress.keys_moved,
        bytes_moved=totals.bytes_moved + progress.bytes_moved,
    )


def _described(batch: Batch) -> dict[str, object]:
    return {"source": batch.source_id, "target": batch.target_id, "slots": ranges.show(batch.slots)}
