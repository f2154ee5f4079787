"""Groups of equal bytes, or of bytes by their capacity, with as few bytes moved as possible.

1. A group's *share* is its weight's part of all bytes (:mod:`topom.balance.planners.shares`). Its *band* is the share,
   plus or minus the tolerance. A slot in an action counts for the group in which it comes to rest, and is not touched.
2. The *excess* is the number of bytes outside the bands, summed over all groups. Of all ways to give the other slots to
   groups, the plan wants those with the least excess, and of those the one that moves the fewest bytes. If all groups
   are in their bands, none gives up anything. Only bytes outside the bands count. So groups that stay below their
   bands, because the bytes that they lack are in slots too big to share, are not evened out among each other.
3. For a few slots that way is found exactly. For more slots :mod:`topom.balance.planners.packing` looks for it: full
   groups shed what they have too much, groups below their bands draw what they lack, exchanges mend the rest, moves
   that were not needed are taken back, and other moves are chosen anew, two or three together.
4. Slots without bytes stay where they are. But offline slots, and slots of groups to drain, go to the groups with the
   fewest slots for their weight.
5. :mod:`topom.balance.planners.limits` says how limits are kept.

No plan that brings every group into its band can move fewer bytes than the larger of two sums. The first sum is over
the groups above their bands: for each, the lightest set of its slots that has at least the bytes above the band. The
second is over the groups below their bands: for each, the bytes that it lacks, and at least the smallest slot (less
what is placed there anyway: offline slots, and slots of groups to drain). The tests demand plans within a tenth of that
bound.

All input is first ordered by group and slot ids, so equal input gives equal plans, in whatever order it comes. After a
plan was carried out, the next plan moves nothing.
"""

from collections.abc import Sequence

from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners import limits, reasons
from topom.balance.planners.empty import spread_empty
from topom.balance.planners.packing.exchange import mend
from topom.balance.planners.packing.filling import fill
from topom.balance.planners.packing.layout import NOWHERE, Layout
from topom.balance.planners.packing.rechoosing import rechoose
from topom.balance.planners.packing.search import search
from topom.balance.planners.packing.trimming import trim
from topom.balance.planners.request import Plan, PlanRequest
from topom.balance.planners.shares import band, shares, weights
from topom.cluster.topology import Move

MOST_REPEATS = 32
"""How often at most a plan is improved, so that the next plan has nothing left to do."""


def plan(groups: Sequence[Group], slots: Sequence[Slot], request: PlanRequest) -> Plan:
    """Moves that bring ``groups`` (all with servers, ascending ids) into their bands; at least one is not drained.

    Slots of groups that are not in ``groups`` stay where they are, and are not shared out.
    """
    slots = sorted(slots, key=lambda slot: slot.id)
    known = {group.id for group in groups}
    share = shares(groups, slots, request)
    to_place = [
        slot
        for slot in slots
        if slot.action is None and (slot.group_id == OFFLINE or (slot.group_id in known and slot.group_id not in share))
    ]
    target = _pack(share, slots, to_place, request)
    spread_empty(weights(share, request.capacity), slots, to_place, target)
    moves = [Move(slot.id, slot.group_id, target[slot.id]) for slot in slots if slot.id in target]
    bands = {group_id: band(one, request.tolerance) for group_id, one in share.items()}
    limited = limits.by_help(moves, bands, slots, request, request.bytes)
    return Plan(tuple(limited), tuple(reasons.reasons(groups, slots, moves, limited, request)))


def _pack(
    share: dict[int, float], slots: Sequence[Slot], to_place: Sequence[Slot], request: PlanRequest
) -> dict[int, int]:
    """The new group of each slot with bytes that gets one."""
    ids = sorted(share)
    number = {group_id: place for place, group_id in enumerate(ids)}
    bands = [band(share[group_id], request.tolerance) for group_id in ids]
    homeless = {slot.id for slot in to_place}
    fixed = [0] * len(ids)
    items, sizes, origins = [], [], []
    for slot in slots:
        size = request.bytes.get(slot.id, 0)
        if not size:
            continue
        if slot.id in homeless or (slot.action is None and slot.group_id in number):
            items.append(slot.id)
            sizes.append(size)
            origins.append(NOWHERE if slot.id in homeless else number[slot.group_id])
        elif slot.action is not None and slot.destination_id in number:
            fixed[number[slot.destination_id]] += size
    start = Layout([lower for lower, _ in bands], [upper for _, upper in bands], fixed, sizes, origins)
    places = _solve(start).at
    return {
        slot_id: ids[place] for slot_id, origin, place in zip(items, origins, places, strict=True) if place != origin
    }


def _solve(start: Layout) -> Layout:
    """The best layout that is found; another plan from it would change nothing."""
    best, known = _improve(start)
    for _ in range(MOST_REPEATS):
        if known or not best.excess():
            break
        after, known = _improve(best.after_moves())
        if after.excess() >= best.excess():
            break
        best = after
    return best


def _improve(start: Layout) -> tuple[Layout, bool]:
    """A better layout, or an equal one; and whether none is better than that."""
    layout = start.after_moves()
    if NOWHERE not in layout.at and not layout.excess():
        return layout, True
    fill(layout)
    mend(layout)
    trim(layout)
    rechoose(layout)
    known = search(layout)
    if NOWHERE not in start.at and layout.excess() >= start.excess():
        # If no group is better off, nothing moves.
        return start.after_moves(), known
    return layout, known
