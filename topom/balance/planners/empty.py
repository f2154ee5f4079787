"""Where slots go that carry nothing and have to go somewhere: to the groups with the fewest slots for their weight."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from slots.slot import Slot


def spread_empty(
    weight: Mapping[int, float], slots: Sequence[Slot], to_place: Sequence[Slot], target: dict[int, int]
) -> None:
    """Add targets for those slots of ``to_place`` that have none in ``target``; none if there is no group."""
    if not weight:
        return
    empty = [slot.id for slot in to_place if slot.id not in target]
    waiting = set(empty)
    count = dict.fromkeys(weight, 0)
    for slot in slots:
        group_id = target.get(slot.id, slot.destination_id)
        if group_id in count and slot.id not in waiting:
            count[group_id] += 1
    order = [((count[group_id] + 1) / weight[group_id], group_id) for group_id in sorted(weight)]
    heapify(order)
    for slot_id in empty:
        _, group_id = order[0]
        target[slot_id] = group_id
        count[group_id] += 1
        heapreplace(order, ((count[group_id] + 1) / weight[group_id], group_id))
