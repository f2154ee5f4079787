"""What an operator may do to actions under way: cancel, skip, retry. Pure functions from one state to the next.

They run in the ledger, one at a time with the steps of the batches, so each slot is in exactly one state when it is
looked at here, and a batch finds its slots as they were left (:meth:`topom.migration.batches.Batch.remaining`).

What cancelling does depends on how far a slot is:

| state | what becomes of it |
|---|---|
| at rest | nothing |
| ``pending``, ``preparing``, ``prepared`` | its action ends; nothing had moved |
| ``migrating`` | it is turned round: what has moved goes back (:class:`slots.states.Course`) |
| on its way back | nothing: it is being cancelled already |
| ``finished`` | nothing: all its keys have moved, and it stays where they are |

A skipped slot steps aside: no batch takes it until it is retried. One that is locked or about to be goes back to
``pending``; one that is migrating stays so, and only those of its keys move that clients ask for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from slots.states import UNTOUCHED, Course, SlotState
from slots.table import Slot, SlotTable
from topom.cluster.state import ClusterState
from topom.cluster.topology import with_slots
from topom.reasons import Reason


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of the slots that were to be cancelled, by ascending id; those at rest are left out.

    Attributes:
        ended: their actions are over; they are where they were.
        returning: keys of theirs may have moved and go back.
        too_late: all their keys have moved, and stay.
    """

    ended: list[int] = field(default_factory=list)
    returning: list[int] = field(default_factory=list)
    too_late: list[int] = field(default_factory=list)


def cancel(state: ClusterState, epoch: int, slots: Collection[int]) -> tuple[ClusterState, Cancelled]:
    """Call the actions of these slots off, each as far as that can be; see the table above."""
    outcome = Cancelled()
    new: list[Slot] = []
    for slot in (state.table.slots[slot_id] for slot_id in sorted(slots)):
        action = slot.action
        if action is None:
            continue
        if action.course is not Course.FORWARD:
            outcome.returning.append(slot.id)
        elif action.state in UNTOUCHED:
            outcome.ended.append(slot.id)
            new.append(slot.cancel())
        elif action.state is SlotState.MIGRATING:
            outcome.returning.append(slot.id)
            new.append(slot.cancel())
        else:
            outcome.too_late.append(slot.id)
    state = with_table(state, with_slots(state.table, epoch, new))
    # Who cancels a slot that was skipped wants it to go back now.
    return unskipped(state, {*outcome.ended, *outcome.returning}), outcome


def skip(state: ClusterState, epoch: int, reasons: Mapping[int, Reason]) -> ClusterState:
    """Have these slots step aside, for these reasons; those at rest and those as good as there are left as they are."""
    new: list[Slot] = []
    skipped = dict(state.skipped)
    for slot in (state.table.slots[slot_id] for slot_id in sorted(reasons)):
        action = slot.action
        if action is None or action.state is SlotState.FINISHED or slot.id in skipped:
            continue
        skipped[slot.id] = reasons[slot.id]
        if action.state not in UNTOUCHED:
            continue
        if action.course is Course.BACK:  # locked, to be turned round
            new.append(slot.unlock(epoch))
        elif action.state is not SlotState.PENDING:
            new.append(slot.begin_anew())
    if len(skipped) == len(state.skipped):
        return state
    return replace(state, table=with_slots(state.table, epoch, new), skipped=skipped)


def unskipped(state: ClusterState, slots: Collection[int]) -> ClusterState:
    """The state in which none of these slots is skipped."""
    left = {slot: reason for slot, reason in state.skipped.items() if slot not in slots}
    return replace(state, skipped=left) if len(left) != len(state.skipped) else state


def with_table(state: ClusterState, table: SlotTable) -> ClusterState:
    """The state with another table. A skipped slot that was given another way, or none, is skipped no more."""
    if table is state.table:
        return state
    other = {
        slot
        for slot in state.skipped
        if table.slots[slot].action is None
        or table.slots[slot].destination_id != state.table.slots[slot].destination_id
    }
    return unskipped(replace(state, table=table), other)
