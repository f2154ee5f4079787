"""Why a plan does not do all that the operator wanted, in sentences."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from slots import ranges
from slots.group import Group
from slots.slot import Slot
from topom.balance.planners.limits import moved_bytes
from topom.balance.planners.request import PlanRequest
from topom.balance.planners.shares import band, shares
from topom.cluster.topology import Move

MOST_GROUPS = 10
"""At most so many groups outside their bands get a sentence each."""


def reasons(
    groups: Sequence[Group],
    slots: Sequence[Slot],
    moves: Collection[Move],
    limited: Collection[Move],
    request: PlanRequest,
) -> Iterator[str]:
    """Sentences on what a plan by bytes leaves undone.

    Args:
        groups: the groups with servers.
        moves: the planned moves.
        limited: the moves that the limits left.
    """
    share = shares(groups, slots, request)
    if not any(share.values()):
        yield "no slot is known to have any bytes, so there is nothing to even out; have the slots sized first"
    else:
        yield from _unmet(slots, share, moves, request)
    yield from stuck(groups, slots, request)
    yield from cut(moves, limited, request)


def cut(moves: Collection[Move], limited: Collection[Move], request: PlanRequest) -> Iterator[str]:
    """What the limits left out."""
    kept = {move.slot for move in limited}
    left = [move for move in moves if move.slot not in kept]
    if not left:
        return
    named = []
    if request.most_slots is not None:
        named.append(_several(request.most_slots, "slot"))
    if request.most_bytes is not None:
        named.append(_several(request.most_bytes, "byte"))
    size = sum(moved_bytes(move, request) for move in left)
    yield (
        f"the limit of {' and '.join(named)} leaves out {_several(len(left), 'move')} of {_several(size, 'byte')}; "
        "plan again when the others are done"
    )
    smallest = min(left, key=lambda move: (moved_bytes(move, request), move.slot))
    if not limited and request.most_bytes is not None and moved_bytes(smallest, request) > request.most_bytes:
        yield (
            f"every slot that would move has more than {request.most_bytes:,} bytes; "
            f"the smallest is slot {smallest.slot} with {moved_bytes(smallest, request):,}"
        )


def stuck(groups: Sequence[Group], slots: Sequence[Slot], request: PlanRequest) -> Iterator[str]:
    """Says which slots stay in groups to drain."""
    with_server = {group.id for group in groups if group.servers}
    for group_id in sorted(request.drain):
        arriving = [slot.id for slot in slots if slot.action is not None and slot.destination_id == group_id]
        if arriving:
            yield (
                f"{ranges.that(arriving, 'is', 'are')} on the way to group {group_id}, which is to be drained; "
                "plan again after the arrival, or cancel that"
            )
        resting = [slot.id for slot in slots if slot.action is None and slot.group_id == group_id]
        if resting and group_id not in with_server:
            yield f"group {group_id} has no server, so {ranges.named(resting)} cannot be moved away"


def _unmet(
    slots: Sequence[Slot], share: Mapping[int, float], moves: Collection[Move], request: PlanRequest
) -> Iterator[str]:
    target = {move.slot: move.target for move in moves}
    load = dict.fromkeys(share, 0)
    moving = dict.fromkeys(share, 0)
    biggest: dict[int, Slot] = {}
    for slot in slots:
        group_id = target.get(slot.id, slot.destination_id)
        if group_id not in load:
            continue
        size = request.bytes.get(slot.id, 0)
        load[group_id] += size
        if slot.action is not None:
            moving[group_id] += size
        if group_id not in biggest or size > request.bytes.get(biggest[group_id].id, 0):
            biggest[group_id] = slot
    outside = []
    for group_id, one in share.items():
        lower, upper = band(one, request.tolerance)
        if not lower <= load[group_id] <= upper:
            outside.append((load[group_id] < lower, -abs(load[group_id] - one), group_id))
    outside.sort()
    for below, _, group_id in outside[:MOST_GROUPS]:
        _, upper = band(share[group_id], request.tolerance)
        wanted = f"its share of {share[group_id]:,.0f} bytes"
        ends = f"group {group_id} is to have {load[group_id]:,} bytes, {off(load[group_id], share[group_id])} {wanted}"
        largest = biggest.get(group_id)
        size = request.bytes.get(largest.id, 0) if largest is not None else 0
        if below:
            yield f"{ends}: no slots that others could spare bring it nearer"
        elif largest is not None and size > upper:
            yield f"{ends}: slot {largest.id} alone has {size:,} bytes, more than that share, and cannot be divided"
        elif moving[group_id] > upper:
            yield f"{ends}: slots that are on their way to it, and are not touched, have {moving[group_id]:,}"
        else:
            yield f"{ends}: slots are moved whole, and no choice of them was found that brings it nearer"
    if len(outside) > MOST_GROUPS:
        more = len(outside) - MOST_GROUPS
        yield f"{more:,} more groups are to be further than {_percent(request.tolerance)} from their shares"


def off(load: int, share: float) -> str:
    """How far a load is from a share: ``12.5% above``."""
    if not share:
        return "above"
    return f"{_percent(abs(load - share) / share)} {'above' if load > share else 'below'}"


def _several(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _percent(part: float) -> str:
    return f"{part * 100:.3g}%" if part < 10 else f"{part * 100:,.0f}%"
