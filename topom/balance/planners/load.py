"""Groups of which none has much more load than its share, with as few bytes moved as possible.

1. The *load* of a slot is what it costs its server: requests, and the bytes of requests and replies, as one number
   (:func:`~topom.balance.planners.request.load_of`). A group's *share* of all load is its weight's part, and so is its
   share of all memory.
2. A group's *limit* is its share plus the tolerance. Memory has a limit of its own (:data:`MEMORY_TOLERANCE`): a slot
   does not go where there is no memory for it, and a group above its limit of memory gives slots away, if it is asked
   for.
3. Only groups above a limit give slots away, and only as much as brings them under it: those slots that carry the most
   load for their bytes. So a hot slot leaves by itself if another group has room for it; else its neighbours leave.
   They go where load has most room, if memory is not scarce there, the hottest first, so hot slots come apart
   (:mod:`topom.balance.planners.shedding`).
4. A slot that is larger than the limit of every group is a *giant*. No plan can divide it: it is left alone in its
   group, as far as others have room, and the reasons name it and its hottest key.
5. A slot in an action counts for the group in which it comes to rest, and is not touched. Nor is a slot that the
   request keeps where it is. A group that the request has closed gets none, and a group gets no slot that is
   barred from it. Offline slots and slots of groups to drain
   are placed where most room is; those without load or bytes go where the fewest slots are.
6. :mod:`topom.balance.planners.limits` says how limits on slots and bytes are kept.

No group that was under its limits is above them after a plan, except by offline slots and slots of groups to drain that
have to go somewhere. All input is ordered by group and slot ids, so equal input gives equal plans. Of slots that are
equal in everything, neighbours go together.
"""

import math
from collections.abc import Mapping, Sequence

from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners import limits, load_reasons, reasons
from topom.balance.planners.empty import spread_empty
from topom.balance.planners.request import Plan, PlanRequest, loads_of
from topom.balance.planners.shares import shares, weights
from topom.balance.planners.shedding import NOWHERE, Crowd, shed
from topom.cluster.topology import Move

MEMORY_TOLERANCE = 0.25
"""By which part of its share a group's memory may be above it."""


def load_limits(share: Mapping[int, float], tolerance: float) -> dict[int, int]:
    """The most that each group may have, by its share."""
    return {group_id: math.ceil(one * (1 + tolerance)) for group_id, one in share.items()}


def plan(groups: Sequence[Group], slots: Sequence[Slot], request: PlanRequest) -> Plan:
    """Moves that bring ``groups`` (all with servers, ascending ids) under their limits; at least one is not drained.

    Slots of groups that are not in ``groups`` stay where they are, and are not shared out.
    """
    load = loads_of(request)
    share = shares(groups, slots, request, load)
    memory_share = shares(groups, slots, request)
    known = {group.id for group in groups}
    to_place = [
        slot
        for slot in slots
        if slot.action is None and (slot.group_id == OFFLINE or (slot.group_id in known and slot.group_id not in share))
    ]
    most = load_limits(share, request.tolerance)
    target = _targets(share, most, memory_share, slots, to_place, load, request)
    spread_empty(weights(share.keys() - request.closed, request.capacity), slots, to_place, target)
    moves = [Move(slot.id, slot.group_id, target[slot.id]) for slot in slots if slot.id in target]
    bands = {group_id: (0, upper) for group_id, upper in most.items()}
    limited = limits.by_help(moves, bands, slots, request, load)
    why = [
        *load_reasons.unmet(slots, share, most, load, moves, request),
        *reasons.stuck(groups, slots, request),
        *reasons.cut(moves, limited, request),
    ]
    return Plan(tuple(limited), tuple(why))


def _targets(
    share: Mapping[int, float],
    most: Mapping[int, int],
    memory_share: Mapping[int, float],
    slots: Sequence[Slot],
    to_place: Sequence[Slot],
    load: Mapping[int, int],
    request: PlanRequest,
) -> dict[int, int]:
    """The new group of each slot with load or bytes that gets one."""
    ids = sorted(share)
    number = {group_id: place for place, group_id in enumerate(ids)}
    homeless = {slot.id for slot in to_place}
    memory = request.bytes
    fixed = [[0] * len(ids), [0] * len(ids)]
    items, sizes, origins = [], ([], []), []  # type: ignore[var-annotated]
    for slot in slots:
        own, size = load.get(slot.id, 0), memory.get(slot.id, 0)
        if slot.id in homeless:
            if not own and not size:
                continue
            origins.append(NOWHERE)
        elif slot.action is None and slot.group_id in number and slot.id not in request.keep:
            origins.append(number[slot.group_id])
        else:
            place = number.get(slot.destination_id)
            if place is not None:
                fixed[0][place] += own
                fixed[1][place] += size
            continue
        items.append(slot.id)
        sizes[0].append(own)
        sizes[1].append(size)
    memory_most = load_limits(memory_share, max(MEMORY_TOLERANCE, request.tolerance))
    item_of = {slot_id: item for item, slot_id in enumerate(items)}
    crowd = Crowd(
        upper=([most[group_id] for group_id in ids], [memory_most[group_id] for group_id in ids]),
        slack=[round(share[group_id] * request.tolerance) for group_id in ids],
        load=(fixed[0], fixed[1]),
        size=sizes,
        origin=origins,
        closed=frozenset(number[group_id] for group_id in request.closed if group_id in number),
        barred=frozenset(
            (item_of[slot_id], number[group_id])
            for group_id, barred in request.barred.items()
            if group_id in number
            for slot_id in barred
            if slot_id in item_of
        ),
    )
    shed(crowd, request.even_memory)
    return {
        slot_id: ids[place]
        for slot_id, origin, place in zip(items, origins, crowd.at, strict=True)
        if place not in (origin, NOWHERE)
    }
