"""Whether two masters are still those that a step began with.

A key is dropped at the source, or a slot handed over, because the target has what the source has. If a group's master
is lost, or was another one meanwhile, nobody knows that.
"""

from collections.abc import Callable

from slots.table import SlotTable
from topom.errors import Unavailable
from topom.migration.batches import Batch
from topom.reasons import Kind


class MasterChanged(Unavailable):
    """A group has another master than the one whose keys were moved."""

    kind = Kind.BUSY


def same_masters(now: Callable[[], SlotTable], batch: Batch, source: str, target: str) -> Callable[[], None]:
    """Gives a function that raises MasterChanged once these may not be the batch's two masters, by the table of that
    moment, which ``now`` gives.
    """
    # by-action: once a group has had another master, its actions have other epochs, even if the former master is
    # the master again.
    begun = {slot: action.epoch for slot in batch.slots if (action := now().slots[slot].action)}
    expected = {batch.source_id: source, batch.target_id: target}
    good: SlotTable | None = None

    def require() -> None:
        nonlocal good
        table = now()
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
