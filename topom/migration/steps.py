"""The steps of one batch of slots, each from one stored state to the next.

    pending -> preparing -> prepared -> migrating -> finished -> at rest
    pending -> copying -> preparing -> prepared -> finished -> at rest

The second way is that by the replication stream (:mod:`migrator.stream`).

- First the servers are checked, so that a target that cannot take the slots is found while no slot is touched.
- ``copying`` lasts until the target has a copy that is nearly level with the source. Clients are at the source.
- ``preparing`` waits until all proxies have it, so that the lock after it lasts only for what is in flight. If a server
  is then another process than the one that was checked, all begins anew. The servers are watched until the slots are
  handed over.
- ``prepared`` is the lock. **drained**: the next state is stored only after every proxy acknowledged this one. If a
  proxy refuses or takes too long, all slots are unlocked.
- **level**: with a copy, ``finished`` follows at once, stored only after the target has all that the source has. The
  copy belongs to this process: if it ends, or the copy is void, the slots are ``pending`` again, and whatever the
  target has of them is swept before they begin anew.
- ``migrating`` lasts until the mover says that **complete** holds. Its scan begins after the barrier.
- ``finished`` waits until all proxies send to the target only, so that no proxy looks at the source.

A migrating batch that is cancelled is turned round. While it is locked no mover moves a key, and nothing that was sent
can still arrive; then source and target are exchanged. It goes back through the same states.

Every change concerns the slots that the batch still has when its turn in the ledger comes. So a step may be broken off
anywhere, and an operator may take slots from the batch at any time.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

import structlog

from migrator.checks import Findings, Watch
from migrator.errors import MigrationError
from migrator.progress import Progress
from migrator.sweep import Swept, Warrant
from slots import ranges
from slots.beginning import Beginning
from slots.states import Course, SlotState
from slots.table import Action, SlotTable
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.speed import Speed
from topom.cluster.state import ClusterState, MigrationSettings
from topom.errors import Conflict, TopomError, Unavailable
from topom.migration.batches import Batch, servers_of, share_of
from topom.migration.streamed import Copier, StreamedCopies
from topom.proxies.barrier import Barrier, BarrierFailed
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)

Observer = Callable[[str], Awaitable[None]]
"""Is called with the name of each step of a batch, before the next one. The batch handles what it raises."""


Sweep = Callable[[int], Awaitable[None]]
"""Returns once a group's master is swept (:mod:`topom.migration.sweeping`). Raises MigrationError and TopomError."""


class TargetWithoutServer(Unavailable):
    """Slots are on their way to a group that has lost its servers."""

    kind = Kind.OPERATOR


class MasterChanged(Unavailable):
    """A group has another master than the one whose keys were moved."""

    kind = Kind.BUSY


class TurnTimeout(Unavailable):
    """Slots that were locked to be turned round had to be unlocked before they were."""

    kind = Kind.SERVER


class CheckFailed(Unavailable):
    """The slots cannot be moved to their target now; none was touched."""

    kind = Kind.SERVER


class Mover(Copier, Protocol):
    """What is needed of the migrator."""

    async def check(self, source: str | None, target: str, share: float) -> Findings:
        """See whether the target can take ``share`` of the source's keys, and touch no slot. ``source`` is None if
        there are no keys.

        Raises :class:`~migrator.errors.MigrationError`.
        """

    def watch(self, source: str | None, target: str) -> AbstractAsyncContextManager[Watch]:
        """Which processes these servers are now, and whether they stay so (None: there is no source).

        Entering raises :class:`~migrator.errors.MigrationError`.
        """

    async def move(
        self,
        source: str,
        target: str,
        slots: Sequence[int],
        progress: Progress,
        beginning: Beginning,
        require: Callable[[], None],
    ) -> None:
        """Move every key of ``slots`` between these masters; return once **complete** holds. May be cancelled.

        ``beginning`` is the one of :class:`slots.table.Action`. ``require`` is called right before keys are dropped at
        the source, and what it raises ends the move.
        """

    async def confirm(self, source: str, target: str) -> None:
        """Return once as many replicas of the target as have to have keys have all that the target has.

        Raises :class:`~migrator.errors.MigrationError`.
        """

    async def withdraw(self, source: str, target: str) -> None:
        """Return once nothing that any mover took from the source can still be placed at the target, or dropped.

        Called while no migrator and no proxy moves keys this way, except proxies that do so for skipped slots; these
        get themselves another permit. Raises :class:`~migrator.errors.MigrationError`.
        """

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        """Return once a server has no keys of slots that it does not own, and its data is known by this id.

        Raises :class:`~migrator.errors.MigrationError`, and what ``warrant`` raises.
        """

    async def stop_sweeping(self, server: str) -> None:
        """Return once no earlier sweep can delete anything there. Raises MigrationError."""

    def set_pace(self, settings: MigrationSettings) -> None:
        """Let these settings hold from now on."""


class Steps:
    """Takes batches further, a step at a time.

    Args:
        barrier_seconds: how long slots may stay locked, and how long each wait for a barrier takes at most.
        not_halted: set unless an operator has paused the migration, or its hours are over.
        halt: gives which of these it is.
        waits: is called with a batch that waits, and the reason.
        on_step: is called with each step.
        clock: seconds since 1970.
        sweep: sweeps a target.
        by_stream: whether a batch that begins goes by the replication stream.
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
        on_step: Observer | None = None,
        clock: Callable[[], float] = time.time,
        sweep: Sweep | None = None,
        by_stream: Callable[[Batch], bool] = lambda batch: False,
    ) -> None:
        self.copies = StreamedCopies(mover, by_stream)
        self._ledger = ledger
        self._barrier = barrier
        self._mover = mover
        self._barrier_seconds = barrier_seconds
        self._not_halted = not_halted
        self._halt = halt
        self._waits = waits
        self._clock = clock
        self._sweep = sweep or _nothing_to_sweep
        self.on_step = on_step
        self.slots_moved = 0
        """How many slots have arrived at their targets."""
        self.speed = Speed()
        """The speed of moves."""

    async def follow_store(self, batch: Batch) -> bool:
        """Make the batch what the store says: which slots it still has, and their state.

        A write that failed may be in the store all the same, and one that was broken off may still be under way. False
        if no slot is left, or the batch is at rest.
        """
        state = await self._ledger.change(lambda stored, epoch: stored)
        batch.writing = False
        had = batch.slots
        states = {slot: action.state for slot in batch.remaining(state) if (action := state.table.slots[slot].action)}
        # The slots that left `pending` did so together, by a write of this batch that failed or was broken off.
        begun = {slot: found for slot, found in states.items() if found is not SlotState.PENDING}
        batch.slots = tuple(begun or states)
        if not batch.slots:
            if batch.state is SlotState.MIGRATING and not state.skipped.keys().isdisjoint(had):
                await self._let_go(batch)
            return False
        if begun:
            batch.state = begun[batch.slots[0]]
        self.copies.keep_only_slots(batch)
        return True

    async def _let_go(self, batch: Batch) -> None:
        """Give back what the mover has claimed, for the proxies that go on moving keys of skipped slots.

        The claim on a big key ends with a call of the mover, and no call follows.
        """
        source, target = self._ledger.table.master_of(batch.source_id), self._ledger.table.master_of(batch.target_id)
        if source is None or target is None:
            return
        try:
            await self._mover.withdraw(source, target)
        except MigrationError as error:
            # This is not tried again: other batches wait for the groups, and perhaps the slots were skipped because a
            # server does not answer.
            log.warning("claims_left", source=source, target=target, reason=str(error))

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
                await self._begin(batch)
            case SlotState.COPYING:
                if await self._has_its_copy(batch):
                    await self._copy(batch)
            case SlotState.PREPARING:
                if not await self._has_its_copy(batch):
                    return True
                await self._wait_for_everyone(batch)
                await self._observe("preparing acknowledged")
                if not self._not_halted.is_set():
                    if (halt := self._halt()) is not None:
                        self._waits(batch, halt)
                    await self._not_halted.wait()
                if self.copies.of(batch) is not None:
                    # Since it was, much may have been written, and servers may have closed what was idle.
                    await self._nearly_level(batch)
                source = self._ledger.table.master_of(batch.source_id)
                async with self._mover.watch(source, self._target_of(batch)) as watch:
                    if self._are_as_begun(batch, watch):
                        await self._lock_and_hand_over(batch, watch)
                    else:
                        await self._begin_anew(batch)
            case SlotState.PREPARED:
                # The step that locked was broken off, by the store or an error: unlock, and begin again.
                await self._unlock(batch)
            case SlotState.MIGRATING if batch.course is Course.TURNING:
                await self._turn(batch)
            case SlotState.MIGRATING:
                await self._migrate(batch)
            case SlotState.FINISHED:
                await self.copies.leave(batch)
                await self._wait_for_everyone(batch)
                await self._observe("finished acknowledged")
                source = self._ledger.table.master_of(batch.source_id)
                if source is not None:
                    # one-way: before the slot may come back, nothing from this move may still move keys this way.
                    await self._mover.withdraw(source, self._target_of(batch))
                copied = any(action.copy for action in self._actions(batch))
                doubted = None
                if source is not None and copied:
                    await self._mover.confirm(source, self._target_of(batch))
                    if not await self._is_as_level(batch, source):
                        doubted = batch.source_id
                await self._change(batch, topology.come_to_rest, arrives=source is not None, doubted=doubted)
                if batch.course is Course.FORWARD:
                    self.slots_moved += len(batch.slots)
                log.info("slots_moved", slots=ranges.show(batch.slots), epoch=self._ledger.table.epoch)
                await self._observe("at rest")
                if copied and doubted is None:
                    await self._clean(batch.source_id)
                return False
        return True

    async def _is_as_level(self, batch: Batch, source: str) -> bool:
        """Whether the target is the process that was level. Another one may lack what only the source has besides."""
        async with self._mover.watch(source, self._target_of(batch)) as watch:
            return all(action.target_run_id == watch.run_ids[1] for action in self._actions(batch))

    async def _clean(self, source_id: int) -> None:
        """Have the source's keys of slots that have left it deleted. What fails here is tried again as any sweep is."""
        try:
            await self._sweep(source_id)
        except (MigrationError, TopomError) as error:
            log.warning("source_not_cleaned", group=source_id, reason=str(error))
        await self._observe("cleaned")

    async def check(self, source_id: int, target_id: int, slots: Collection[int]) -> None:
        """Look whether slots of one group could begin to move to another one. Raises :class:`CheckFailed`."""
        table = self._ledger.table
        source, target = table.master_of(source_id), table.master_of(target_id)
        if target is None:
            raise CheckFailed(f"group {target_id} has no server", "add one")
        try:
            await self._mover.check(source, target, share_of(table, source_id, slots))
        except MigrationError as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error

    async def _begin(self, batch: Batch) -> None:
        """Check the servers, and store ``preparing``."""
        table = self._ledger.table
        source = table.master_of(batch.source_id)
        share = share_of(table, batch.source_id, batch.slots)
        try:
            target = self._target_of(batch)
            found = await self._mover.check(source, target, share)
            # owned: keys of these slots that it already has are old, and would be alive again.
            await self._sweep(batch.target_id)
        except (MigrationError, TargetWithoutServer) as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error
        batch.notes = found.notes
        await self._observe("checked")
        copy = self.copies.id_for(batch) if source is not None else ""
        if copy:
            await self._make_known(batch.source_id)

        def begin(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            # run-id: what the check found holds for these two masters only.
            if (table.master_of(batch.source_id), table.master_of(batch.target_id)) != (source, target):
                raise MasterChanged("a group has another master than the one that was looked at; it is looked at again")
            return topology.begin(
                table, epoch, slots, found.min_replicas, found.source_run_id, found.target_run_id, copy
            )

        await self._change(batch, begin)
        batch.state = SlotState.COPYING if copy else SlotState.PREPARING
        if source is not None and copy:
            await self.copies.begin(batch, source, target, copy)
        await self._advanced(batch)

    async def _make_known(self, source_id: int) -> None:
        """Have the source's data known before its slots leave: after the switch its keys of them are foreign there, and
        only those of known data are deleted without an operator."""
        try:
            await self._sweep(source_id)
        except MigrationError as error:
            raise CheckFailed(error.what, error.to_do, kind=error.kind) from error

    async def _has_its_copy(self, batch: Batch) -> bool:
        """Whether the copy that the stored actions tell of is this process's, and both masters are those of its
        beginning; if not, all begins anew. True if there is to be no copy."""
        if self.copies.stands(batch, self._actions(batch)):
            return True
        await self._begin_anew(batch)
        return False

    async def _copy(self, batch: Batch) -> None:
        with self.speed.following(batch.progress):
            await self._nearly_level(batch)
        await self._store(batch, SlotState.PREPARING)

    async def _nearly_level(self, batch: Batch) -> None:
        """Return once the copy is nearly level; if it is void, all begins anew."""
        try:
            await self.copies.nearly_level(batch)
        except Exception:
            await self._begin_anew(batch)
            raise

    def _are_as_begun(self, batch: Batch, watch: Watch) -> bool:
        """Whether both masters are the processes that were checked, and swept, before ``preparing`` was stored."""
        return all((action.source_run_id, action.target_run_id) == watch.run_ids for action in self._actions(batch))

    async def _begin_anew(self, batch: Batch) -> None:
        await self.copies.leave(batch)
        before = batch.state
        await self._change(batch, lambda table, epoch, slots: topology.begin_anew(table, epoch, slots, before))
        batch.state = SlotState.PENDING
        log.info("slots_begin_anew", slots=ranges.show(batch.slots), reason="a server was restarted or replaced")
        await self._observe("pending again")

    async def _lock_and_hand_over(self, batch: Batch, watch: Watch) -> None:
        async with self._barrier.locking():
            # owned: from here on, what the target has of these slots belongs to them.
            await self._store(batch, SlotState.PREPARED)
            still_held = await self._hold_lock(batch)
            source = self._ledger.table.master_of(batch.source_id)
            copied = source is not None and self.copies.of(batch) is not None
            require = self._still(batch, source, self._target_of(batch)) if source is not None and copied else _nothing
            try:
                if copied:
                    await self.copies.settle(batch, self._barrier_seconds)
                    await self._observe("level")
                # owned, by-action: if a server was restarted, it may have keys again that a sweep had deleted. If
                # it restarts after this point, it is known that the action began with another process
                # (:mod:`slots.beginning`).
                await watch.same()
            except Exception:
                await self._unlock(batch)
                raise
            moves_keys = source is not None and not copied
            await self._hand_over(batch, SlotState.MIGRATING if moves_keys else SlotState.FINISHED, still_held, require)

    async def _turn(self, batch: Batch) -> None:
        """Exchange source and target, while no proxy uses the slots. The mover does not run."""
        source = self._ledger.table.master_of(batch.source_id)
        target = self._target_of(batch)
        assert source is not None, "a slot that comes from no server does not migrate"
        await self._wait_for_everyone(batch)
        await self._observe("turning acknowledged")
        # Servers that do not answer are found before the lock, and cost clients nothing.
        for server in (target, source):
            await self._mover.check(None, server, 0.0)
        async with self._barrier.locking():
            await self._change(batch, topology.turn, turns=True)
            batch.state = SlotState.PREPARED
            log.info("slots_turning", slots=ranges.show(batch.slots), epoch=self._ledger.table.epoch)
            await self._observe("turn stored")
            still_held = await self._hold_lock(batch)
            try:
                # one-way: if a key was taken for the other way and is placed late, no proxy looks for it.
                async with asyncio.timeout(self._barrier_seconds):
                    await self._mover.withdraw(source, target)
            except (MigrationError, TimeoutError) as error:
                await self._unlock(batch)
                if isinstance(error, MigrationError):
                    raise
                raise TurnTimeout(
                    f"the permit to move keys from {source} to {target} was not withdrawn within "
                    f"{self._barrier_seconds:g} s; the slots are unlocked, and it is tried again"
                ) from None
            await self._observe("turn withdrawn")
            await self._hand_over(batch, SlotState.MIGRATING, still_held)

    async def _hold_lock(self, batch: Batch) -> Callable[[], bool]:
        """Return once every proxy holds the lock that was stored; unlock if that is not possible.

        Gives a function that tells later whether that still holds.
        """
        table = self._ledger.table
        servers = servers_of(table, batch.source_id, batch.target_id)
        try:
            # drained: each proxy that could send to the source has locked the slots and had its replies, or is fenced.
            await self._barrier.reach(table.epoch, servers, self._barrier_seconds, stop_at_refusal=True)
            await self._observe("prepared acknowledged")
        except BarrierFailed:
            await self._unlock(batch)
            raise
        return lambda: self._barrier.passed(table.epoch, servers)

    async def _hand_over(
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
            await self._change(batch, advance)
        except (BarrierFailed, MasterChanged):
            await self._unlock(batch)
            raise
        batch.state = state
        await self._advanced(batch)

    async def _unlock(self, batch: Batch) -> None:
        back = batch.course is Course.BACK
        await self._change(batch, topology.unlock, turns=back)
        batch.state = SlotState.MIGRATING if back else SlotState.PREPARING
        log.info("slots_unlocked", slots=ranges.show(batch.slots), epoch=self._ledger.table.epoch)
        await self._observe(f"{batch.state} stored")

    async def _migrate(self, batch: Batch) -> None:
        source = self._ledger.table.master_of(batch.source_id)
        target = self._target_of(batch)
        if source is not None:
            require = self._still(batch, source, target)
            require()
            # complete: the mover's scan begins here, after the barrier, and covers every database.
            # by-action: slots whose actions began otherwise are in another batch.
            beginnings = {action.beginning for action in self._actions(batch)}
            beginning = beginnings.pop() if len(beginnings) == 1 else Beginning(back=batch.course is Course.BACK)
            with self.speed.following(batch.progress):
                await self._mover.move(source, target, batch.slots, batch.progress, beginning, require)
        await self._observe("complete")
        await self._finish(batch, source)

    async def _finish(self, batch: Batch, source: str | None) -> None:
        def finish(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            # complete: the server that was scanned must still be the source.
            now = table.master_of(batch.source_id)
            if now != source:
                raise MasterChanged(f"the master of group {batch.source_id} is {now} by now; its keys are moved, too")
            return topology.advance(table, epoch, slots, SlotState.MIGRATING, SlotState.FINISHED)

        await self._change(batch, finish)
        batch.state = SlotState.FINISHED
        await self._advanced(batch)

    def _actions(self, batch: Batch) -> list[Action]:
        found = (self._ledger.table.slots[slot].action for slot in batch.slots)
        return [action for action in found if action is not None]

    def _still(self, batch: Batch, source: str, target: str) -> Callable[[], None]:
        """Gives a function that raises MasterChanged once these may not be the two masters, by the table of that
        moment.

        A key is dropped at the source because the target has it. If a group's master is lost, or was another one
        meanwhile, nobody knows whether the target has it.
        """
        # by-action: once a group has had another master, its actions have other epochs, even if the former master is
        # the master again.
        begun = {slot: action.epoch for slot in batch.slots if (action := self._ledger.table.slots[slot].action)}
        expected = {batch.source_id: source, batch.target_id: target}
        good: SlotTable | None = None

        def require() -> None:
            nonlocal good
            table = self._ledger.table
            if table is good:
                return
            for group_id, server in expected.items():
                group = table.groups[group_id]
                if group.master != server:
                    raise MasterChanged(f"the master of group {group_id} is {group.master} by now, not {server}")
                if group.locked or group.lost:
                    raise MasterChanged(f"group {group_id} is about to have another master than {server}")
            for slot, epoch in begun.items():
                action = table.slots[slot].action
                if action is not None and action.epoch != epoch:
                    raise MasterChanged(f"slot {slot} has had another master meanwhile")
            good = table

        return require

    def _target_of(self, batch: Batch) -> str:
        target = self._ledger.table.master_of(batch.target_id)
        if target is None:
            raise TargetWithoutServer(
                f"group {batch.target_id} has no server to take the slots", "give it one with 'slotferry server add'"
            )
        return target

    async def _wait_for_everyone(self, batch: Batch) -> None:
        """Wait until every proxy applies the batch's state, however long that takes: no request waits for it."""
        while True:
            table = self._ledger.table
            servers = servers_of(table, batch.source_id, batch.target_id)
            try:
                await self._barrier.reach(table.epoch, servers, self._barrier_seconds, stop_at_refusal=False)
            except BarrierFailed as error:
                self._waits(batch, error)
            else:
                return

    async def _store(self, batch: Batch, state: SlotState) -> None:
        before = batch.state
        await self._change(batch, lambda table, epoch, slots: topology.advance(table, epoch, slots, before, state))
        batch.state = state
        await self._advanced(batch)

    async def _advanced(self, batch: Batch) -> None:
        log.info(
            "slots_advanced",
            slots=ranges.show(batch.slots),
            state=batch.state,
            epoch=self._ledger.table.epoch,
        )
        await self._observe(f"{batch.state} stored")

    async def _change(
        self,
        batch: Batch,
        make: Callable[[SlotTable, int, Collection[int]], SlotTable],
        turns: bool = False,
        arrives: bool = False,
        doubted: int | None = None,
    ) -> None:
        """Store a change of the slots that the batch still has; raises as the rules of new states do.

        ``turns`` if their source and target change places; ``arrives`` if they come to rest with their keys.
        ``doubted`` is a group whose left keys are deleted only once an operator has said so.
        """
        turned = False

        def change(state: ClusterState, epoch: int) -> ClusterState:
            nonlocal turned
            batch.slots = batch.remaining(state)
            table = make(state.table, epoch, batch.slots)
            if table is state.table:
                return state
            if turns:
                batch.turn()
                turned = True
            batch.writing = True
            new = replace(state, table=table)
            if arrives:
                moved = {**state.moved, **dict.fromkeys(batch.slots, math.ceil(self._clock()))}
                new = replace(new, moved=moved, speed=self.speed.latest or state.speed)
            if doubted is not None:
                known = {group_id: data for group_id, data in state.data_ids.items() if group_id != doubted}
                new = replace(new, data_ids=known)
            return new

        try:
            await self._ledger.change(change)
        except BaseException as error:
            if isinstance(error, Conflict):
                batch.writing = False  # a rule refused it: it is not stored, and the next change is not this batch's
            # If the write is in the store all the same, the batch does not have these slots any more, and they become a
            # batch of their own.
            if turned:
                batch.turn()
            raise

    async def _observe(self, step: str) -> None:
        if self.on_step is not None:
            await self.on_step(step)


def _nothing() -> None:
    """Used if there is nothing to require."""


async def _nothing_to_sweep(group_id: int) -> None:
    """Used if no sweep is given: then servers have no foreign keys."""
