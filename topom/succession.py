"""A group's master replaced because it failed: a pure function from one slot table to the next.

Its replica has what it was sent in time, and no more: it may lack the latest writes, and it may still have keys that
had just been moved away. So, of keys that are on both servers of a slot on the move, the other server's copy counts
from then on (:attr:`slots.table.Action.failed_over`): the new master's is at most as new.
"""

from dataclasses import replace

from slots.states import Course, SlotState
from slots.table import Action, Slot, SlotTable
from topom import topology


def fail_over(table: SlotTable, epoch: int, group_id: int, address: str) -> SlotTable:
    """A replica made its group's master in place of one that failed, whose last writes it may lack.

    Raises:
        GroupNotFound, ServerNotFound: as :func:`topom.topology.promote`.
    """
    new = topology.promote(table, epoch, group_id, address)
    if new is table:
        return table
    # Neighbours go on sharing their actions.
    known: dict[tuple[Action, bool], Action] = {}

    def followed(slot: Slot) -> Slot:
        if slot.action is None:
            return slot
        is_source = slot.group_id == group_id
        action = known.setdefault((slot.action, is_source), _after(slot.action, is_source, group_id))
        return slot if action == slot.action else replace(slot, action=action)

    return replace(new, slots=tuple(followed(slot) for slot in new.slots))


def _after(action: Action, is_source: bool, group_id: int) -> Action:
    """What a slot's action is once the group has failed over."""
    if action.state is SlotState.MIGRATING and is_source:
        # On its way back it is the other group that had the slot before, and what has returned there counts.
        return replace(action, failed_over=action.course is not Course.BACK)
    if action.state is SlotState.PREPARED and action.course is Course.BACK and action.target_id == group_id:
        # Locked to be turned round: keys had begun to leave what is the target by now.
        return replace(action, failed_over=True)
    return action
