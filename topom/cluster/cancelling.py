"""What an operator may do to actions under way: cancel, skip, retry. Pure functions from one state to the next.

They run in the ledger, one at a time with the steps of the batches. So each slot is in exactly one state when a
function here looks at it. A batch finds its slots as the function left them
(:meth:`topom.migration.batches.Batch.remaining`).

What cancelling does depends on how far a slot is:

| state | what becomes of it |
|---|---|
| at rest | nothing |
| ``pending``, ``copying``, ``preparing``, ``prepared`` | its action ends; nothing had moved |
| ``migrating`` | it is turned round: what has moved goes back (:class:`slots.states.Course`) |
| on its way back | nothing: it is being cancelled already |
| ``finished`` | nothing: all its keys have moved, and it stays where they are |

A skipped slot steps aside: no batch takes it until it is retried. A slot that is locked, or is about to be, goes back
to ``pending``. A slot that is migrating stays so, and only the keys that clients ask for move.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from slots.slot import Slot
from slots.states import UNTOUCHED, Course, SlotState
from slots.table import SlotTable
from topom.cluster.state import ClusterState
from topom.cluster.topology import with_slots
from topom.reasons import Reason


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of the slots of a cancellation, by ascending id. Slots at rest are left out.

    Attributes:
        ended: slots whose actions are over; they are where they were.
        returning: slots of which keys may have moved; these keys go back.
        too_late: slots whose keys have all moved; the keys stay where they are.
    """

    ended: list[int] = field(default_factory=list)
    returning: list[int] = field(default_factory=list)
    too_late: list[int] = field(default_factory=list)


def cancel(state: ClusterState, epoch: int, slots: Collection[int]) -> tuple[ClusterState, Cancelled]:
    """Cancel the actions of these slots, each as far as that is possible; see the table above."""
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
    # An operator who cancels a skipped slot wants it to go back now.
    return unskipped(state, {*outcome.ended, *outcome.returning}), outcome


def skip(state: ClusterState, epoch: int, reasons: Mapping[int, Reason]) -> ClusterState:
    """Have these slots step aside, for these reasons.

    Slots that are at rest, finished or skipped already stay as they are.
    """
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
    """The state with another table. A skipped slot with another destination, or no action, is not skipped in it."""
    if table is state.table:
        return state
    other = {
        slot
        for slot in state.skipped
        if table.slots[slot].action is None
        or table.slots[slot].destination_id != state.table.slots[slot].destination_id
    }
    return unskipped(replace(state, table=table), other)
