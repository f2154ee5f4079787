"""Groups of equal numbers of slots, moved as Codis moves them.

The method is that of ``SlotsRebalance`` in Codis 3.2 (``pkg/topom/topom_slots.go``), so that users who leave Codis get
the plan that Codis would have made:

1. A slot in an action counts for its target (for its source, if it was cancelled) and is not touched.
2. A group keeps its lowest-numbered slots at rest until it has the lower bound (slots / groups, rounded down), together
   with the slots on their way to it. The other slots are its surplus.
3. Each offline slot goes to the group that is the smallest at that moment.
4. The largest group gives slots to the smallest while the largest is above the lower bound and has surplus left, the
   smallest is below the upper bound (slots / groups, rounded up), and they differ by more than one. A group without
   surplus that comes up as the largest takes no further part.
5. Groups give the highest-numbered slots of their surplus. The given slots and the offline slots are handed out by
   ascending slot to the receiving groups by ascending id.

Sizes are compared together with group ids, so there are no ties: of two groups of the same size, the one with the
smaller id is the smaller one.

Codis knows no draining and no limits. Here a group to drain takes no part in the sharing, and its slots at rest are
handed out like offline slots. :func:`topom.balance.planners.limits.in_order` keeps the limits. Bytes and capacity do
not matter.
"""

from bisect import insort
from collections.abc import Collection, Sequence

from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners import limits, reasons
from topom.balance.planners.request import Plan, PlanRequest
from topom.cluster.topology import Move


def plan(groups: Sequence[Group], slots: Sequence[Slot], request: PlanRequest) -> Plan:
    """Moves that bring ``groups`` (all with servers, ascending ids) within one slot of each other.

    At least one of them is not drained. Slots of groups that are not in ``groups`` stay where they are. With actions
    under way, or with slots in such groups, the outcome may be less even than that.
    """
    drained = {group.id for group in groups if group.id in request.drain}
    moves = sorted(_moves(groups, slots, drained), key=lambda move: move.slot)
    limited = limits.in_order(moves, request)
    why = [*reasons.stuck(groups, slots, request), *reasons.cut(moves, limited, request)]
    if request.capacity:
        why.append("the policy codis gives every group as many slots, whatever its capacity; the policy bytes heeds it")
    return Plan(tuple(limited), tuple(why))


def _moves(groups: Sequence[Group], slots: Sequence[Slot], drained: Collection[int]) -> list[Move]:
    ids = [group.id for group in groups if group.id not in drained]
    lower = len(slots) // len(ids)
    upper = -(-len(slots) // len(ids))
    kept = dict.fromkeys(ids, 0)
    surplus: dict[int, list[int]] = {group_id: [] for group_id in ids}
    given = dict.fromkeys(ids, 0)  # below zero: the group receives that many more than it gives

    def size(group_id: int) -> int:
        return kept[group_id] + len(surplus[group_id]) - given[group_id]

    resting = []
    for slot in slots:
        if slot.action is None:
            resting.append(slot)
        elif slot.destination_id in kept:
            kept[slot.destination_id] += 1
    for slot in resting:
        if slot.group_id in kept:
            if size(slot.group_id) < lower:
                kept[slot.group_id] += 1
            else:
                surplus[slot.group_id].append(slot.id)

    # A group is in `order` with the size that it has now; it is taken out before its size changes.
    order = sorted((size(group_id), group_id) for group_id in ids)
    handed_out = [slot.id for slot in resting if slot.group_id == OFFLINE or slot.group_id in drained]
    for _ in handed_out:
        _, smallest = order.pop(0)
        given[smallest] -= 1
        insort(order, (size(smallest), smallest))

    while len(order) >= 2:
        large_size, largest = order.pop()
        if len(surplus[largest]) == given[largest]:
            continue
        small_size, smallest = order.pop(0)
        if large_size <= lower or small_size >= upper or large_size - small_size <= 1:
            break
        given[largest] += 1
        given[smallest] -= 1
        insort(order, (size(largest), largest))
        insort(order, (size(smallest), smallest))

    for group_id in ids:
        if given[group_id] > 0:
            handed_out += surplus[group_id][-given[group_id] :]
    handed_out.sort()
    source_of = {slot.id: slot.group_id for slot in resting}
    moves = []
    taken = iter(handed_out)
    for group_id in ids:
        for _ in range(-given[group_id]):
            slot_id = next(taken)
            moves.append(Move(slot_id, source_of[slot_id], group_id))
    return moves
