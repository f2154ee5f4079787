"""What each group has and should have, in bytes or in load; one answer for the planners and for the forecast.

A slot counts for the group in which it comes to rest (:attr:`slots.slot.Slot.destination_id`).
"""

import math
from collections.abc import Collection, Mapping, Sequence

from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners.request import PlanRequest


def weights(ids: Collection[int], capacity: Mapping[int, float]) -> dict[int, float]:
    """The weight of each group in ``ids``; a group without a capacity has the mean of those given, or 1."""
    mean = math.fsum(capacity.values()) / len(capacity) if capacity else 1.0
    return {group_id: float(capacity.get(group_id, mean)) for group_id in sorted(ids)}


def shares(
    groups: Sequence[Group], slots: Sequence[Slot], request: PlanRequest, amounts: Mapping[int, int] | None = None
) -> dict[int, float]:
    """The bytes that each group should have, by group: those of ``groups`` that have a server and are not drained.

    With ``amounts``, by slot, it is what each group should have of these. The shares are of all that these groups have,
    that is on its way to them, in offline slots, or at rest in groups to drain. Slots at rest in groups without a
    server, or on their way to a group to drain, cannot move now, and do not count.
    """
    to_drain = {group.id for group in groups if group.servers and group.id in request.drain}
    weight = weights([group.id for group in groups if group.servers and group.id not in to_drain], request.capacity)
    counted = request.bytes if amounts is None else amounts
    total = 0
    for slot in slots:
        movable = slot.action is None and (slot.group_id == OFFLINE or slot.group_id in to_drain)
        if movable or slot.destination_id in weight:
            total += counted.get(slot.id, 0)
    weight_of_all = math.fsum(weight.values())
    return {group_id: total * (one / weight_of_all) for group_id, one in weight.items()}


def band(share: float, tolerance: float) -> tuple[int, int]:
    """The fewest and the most bytes that are near enough to a share, rounded away from the share to whole bytes."""
    return max(0, math.floor(share * (1 - tolerance))), math.ceil(share * (1 + tolerance))
