"""What the store has of a batch: read anew, and changed a step at a time.

Every change concerns the slots that the batch still has when its turn in the ledger comes. So a step may be broken off
anywhere, and an operator may take slots from the batch at any time.
"""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from slots import ranges
from slots.slot import Action
from slots.states import SlotState
from slots.table import SlotTable
from topom.cluster import departures, leftovers, topology
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.speed import Speeds
from topom.cluster.state import ClusterState
from topom.errors import Conflict, Unavailable
from topom.migration.batches import Batch
from topom.migration.interfaces import Observer
from topom.reasons import Kind

log = structlog.get_logger(__name__)


class TargetWithoutServer(Unavailable):
    """Slots are on their way to a group that has lost its servers."""

    kind = Kind.OPERATOR


class StoredBatches:
    """The batches of one topom, as the store has them.

    Args:
        speeds: measures the moves.
        on_step: is called with each step.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        ledger: Ledger,
        speeds: Speeds,
        on_step: Observer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self.on_step = on_step
        self.speeds = speeds

    @property
    def table(self) -> SlotTable:
        """The table that holds."""
        return self._ledger.table

    async def follow(self, batch: Batch) -> ClusterState:
        """Make the batch what the store says: which slots it still has, and their state; gives all that is stored.

        A write that failed may be in the store all the same, and one that was broken off may still be under way.
        """
        state = await self._ledger.change(lambda stored, epoch: stored)
        batch.writing = False
        states = {slot: action.state for slot in batch.remaining(state) if (action := state.table.slots[slot].action)}
        # The slots that left `pending` did so together, by a write of this batch that failed or was broken off.
        begun = {slot: found for slot, found in states.items() if found is not SlotState.PENDING}
        batch.slots = tuple(begun or states)
        if begun:
            batch.state = begun[batch.slots[0]]
        return state

    def actions(self, batch: Batch) -> list[Action]:
        """The actions of a batch's slots."""
        found = (self.table.slots[slot].action for slot in batch.slots)
        return [action for action in found if action is not None]

    def source_of(self, batch: Batch) -> str | None:
        """The master of its source; None if there is none."""
        return self.table.master_of(batch.source_id)

    def target_of(self, batch: Batch) -> str:
        """The master of its target. Raises TargetWithoutServer."""
        target = self.table.master_of(batch.target_id)
        if target is None:
            raise TargetWithoutServer(
                f"group {batch.target_id} has no server to take the slots", "give it one with 'slotferry server add'"
            )
        return target

    async def store(self, batch: Batch, state: SlotState, require: Callable[[], None] = lambda: None) -> None:
        """Store the next state, and nothing else. Raises as :meth:`change`, and as ``require`` right before."""
        before = batch.state

        def advance(table: SlotTable, epoch: int, slots: Collection[int]) -> SlotTable:
            require()
            return topology.advance(table, epoch, slots, before, state)

        await self.change(batch, advance)
        batch.state = state
        await self.advanced(batch)

    async def advanced(self, batch: Batch) -> None:
        """Say that the batch's state is stored."""
        log.info("slots_advanced", slots=ranges.show(batch.slots), state=batch.state, epoch=self.table.epoch)
        await self.observe(f"{batch.state} stored")

    async def change(
        self,
        batch: Batch,
        make: Callable[[SlotTable, int, Collection[int]], SlotTable],
        turns: bool = False,
        arrives: bool = False,
        doubted: int | None = None,
        left: bool = False,
    ) -> None:
        """Store a change of the slots that the batch still has; raises as the rules of new states do.

        ``turns`` if their source and target change places; ``arrives`` if they come to rest with their keys.
        ``doubted`` is a group whose left keys are deleted only once an operator has said so. ``left`` if their source
        was not looked at, and may have a permit by which it can lose keys of theirs once they are back.
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
                now = math.ceil(self._clock())
                new = replace(
                    new,
                    moved={**state.moved, **dict.fromkeys(batch.slots, now)},
                    departures=departures.added(state.departures, batch.source_id, batch.slots, now),
                    speed=self.speeds.by_keys.latest or state.speed,
                )
            if doubted is not None:
                known = {group_id: data for group_id, data in state.data_ids.items() if group_id != doubted}
                new = replace(new, data_ids=known)
                # They are in doubt, and an operator may want them: no more than any other keys that nobody knows.
                known_there = state.leftovers.get(doubted, {})
                of_these = {slot: switch for slot, switch in known_there.items() if slot in batch.slots}
                new = leftovers.without(new, doubted, of_these)
            if left:
                new = leftovers.added(new, batch.source_id, batch.slots, epoch)
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

    def note(self, what: What, text: str) -> None:
        """Have an event stored that tells of no change."""
        self._ledger.note(what, text)

    async def observe(self, step: str) -> None:
        """Tell whoever watches that a step is done."""
        if self.on_step is not None:
            await self.on_step(step)
