"""A first answer, in nearly linear time: places items without a bin, lets full bins shed, and empty bins draw.

1. **Giants**, items larger than any bin's upper limit, fit nowhere. A bin keeps one; other giants, and giants in no
   bin, go where there is most room.
2. **Boulders** are items for which no bin has room now, in a bin that is too full even without all smaller items. They
   go to the bin with the most room, not counting what that bin can shed in turn, before smaller items take the emptiest
   bins.
3. **Shedding.** Each bin above its band chooses items whose sizes together are just what it has too much: the largest
   that still fit into what is missing, then the exchange that overshoots least.
4. **Placing.** These items, and the items in no bin, go by descending size to the bin that lacks most. An item that
   fits nowhere stays; then its bin chooses again, among smaller items.
5. **Drawing.** Each bin below its band takes items from bins that can spare them: the largest that do not overshoot,
   last the one that overshoots least.
"""

from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush

from topom.balance.planners.packing.layout import NOWHERE, Layout

ROUNDS = 4
"""How often at most full bins choose anew what they shed."""
CANDIDATES = 12
"""How many bins at most are tried for one item, or asked for one."""


def fill(layout: Layout) -> None:
    """Put every item somewhere, and bring bins into their bands as far as this finds a way."""
    unplaced = [item for item, place in enumerate(layout.at) if place == NOWHERE]
    unplaced = _spread_giants(layout, unplaced)
    _spread_boulders(layout)
    for _ in range(ROUNDS):
        room = max(layout.upper[place] - layout.load[place] for place in layout.bins)
        shed = [
            item
            for place in layout.bins
            if layout.load[place] > layout.upper[place]
            for item in _choose(layout.members[place], layout.load[place] - layout.upper[place], room)
        ]
        placed = _place(layout, unplaced + shed)
        if not placed:
            break
        unplaced = []
    _draw(layout)


def _spread_giants(layout: Layout, unplaced: list[int]) -> list[int]:
    """Give each giant a bin of its own as far as there are bins; gives the items that are still in no bin."""
    largest = max(layout.upper)
    kept = set()
    giants = [item for item in unplaced if layout.size[item] > largest]
    for place in layout.bins:
        here = [item for size, item in layout.members[place][bisect_right(layout.members[place], (largest + 1, -1)) :]]
        if here:
            kept.add(place)
            giants += here[:-1]
    free = sorted((layout.load[place] - layout.upper[place], place) for place in layout.bins if place not in kept)
    heapify(free)
    for item in sorted(giants, key=lambda item: (-layout.size[item], item)):
        if free:
            _, place = heappop(free)
        elif layout.at[item] == NOWHERE:
            place = min(layout.bins, key=lambda place: (layout.load[place] - layout.upper[place], place))
        else:
            continue
        layout.move(item, place)
    return [item for item in unplaced if layout.at[item] == NOWHERE]


def _spread_boulders(layout: Layout) -> None:
    """Move boulders out of bins that are too full with them, the smallest of each bin first."""
    load, upper = layout.load, layout.upper
    room = max(upper[place] - load[place] for place in layout.bins)
    largest = max(upper)
    boulders = []
    for place in layout.bins:
        if load[place] <= upper[place]:
            continue
        listed = layout.members[place]
        first = bisect_right(listed, (room + 1, -1))
        stays = load[place] - sum(size for size, _ in listed[:first])
        for size, item in listed[first:]:
            if stays <= upper[place] or size > largest:
                break
            boulders.append((-size, item))
            stays -= size
    for negative, item in sorted(boulders):
        found = [
            (load[place] - upper[place], place)
            for place, listed in enumerate(layout.members)
            if place != layout.at[item] and (listed[-1][0] if listed else 0) - negative <= upper[place]
        ]
        if found:
            layout.move(item, min(found)[1])


def _choose(listed: list[tuple[int, int]], need: int, limit: int) -> list[int]:
    """Items of a bin, each of at most ``limit`` bytes, together ``need`` bytes or little more; less if there are not
    enough.

    Args:
        listed: ``(size, item)``, ascending.
    """
    end = bisect_left(listed, (limit + 1, -1))
    chosen: list[int] = []  # positions, descending
    missing = need
    while missing > 0:
        end = bisect_left(listed, (missing + 1, -1), 0, end) - 1
        if end < 0:
            break
        chosen.append(end)
        missing -= listed[end][0]
    if missing > 0:
        missing = _finish(listed, chosen, missing, bisect_left(listed, (limit + 1, -1)))
    if missing < 0:
        # A larger item came in at the end; with it, some of the others may not be needed.
        kept = []
        for position in chosen:
            if listed[position][0] <= -missing:
                missing += listed[position][0]
            else:
                kept.append(position)
        chosen = kept
    return [listed[position][1] for position in chosen]


def _finish(listed: list[tuple[int, int]], chosen: list[int], missing: int, end: int) -> int:
    """Add an item to ``chosen``, or exchange one in it, so that it overshoots least; gives what is missing then."""
    taken = set(chosen)
    others = [position for position in range(end) if position not in taken]
    sizes = [listed[position][0] for position in others]
    best: tuple[int, int, int] | None = None  # overshoot, place in `others`, place in `chosen` or -1
    found = bisect_left(sizes, missing)
    if found < len(sizes):
        best = (sizes[found] - missing, found, -1)
    for place, position in enumerate(chosen):
        wanted = listed[position][0] + missing
        found = bisect_left(sizes, wanted)
        if found < len(sizes) and (best is None or sizes[found] - wanted <= best[0]):
            best = (sizes[found] - wanted, found, place)
    if best is None:
        return missing
    overshoot, found, place = best
    if place < 0:
        chosen.insert(0, others[found])
    else:
        chosen[place] = others[found]
    return -overshoot


def _place(layout: Layout, items: list[int]) -> int:
    """Put items where most is lacking, the largest first; gives how many found a place."""
    load, lower, upper = layout.load, layout.lower, layout.upper
    order = [(load[place] - lower[place], place) for place in layout.bins]
    heapify(order)
    placed = 0
    for item in sorted(items, key=lambda item: (-layout.size[item], item)):
        size, home = layout.size[item], layout.at[item]
        passed: list[tuple[int, int]] = []
        target = NOWHERE
        while order and len(passed) < CANDIDATES:
            lacks, place = heappop(order)
            if lacks != load[place] - lower[place]:
                heappush(order, (load[place] - lower[place], place))
                continue
            passed.append((lacks, place))
            if place != home and load[place] + size <= upper[place]:
                target = place
                break
        for entry in passed:
            heappush(order, entry)
        if target == NOWHERE and home == NOWHERE:
            target = min(layout.bins, key=lambda place: (load[place] - upper[place], place))
        if target != NOWHERE and (home == NOWHERE or load[home] > upper[home]):
            layout.move(item, target)
            placed += 1
    return placed


def _draw(layout: Layout) -> None:
    """Let bins below their bands take from bins that can spare something, the emptiest first."""
    load, lower, upper = layout.load, layout.lower, layout.upper
    givers = [(lower[place] - load[place], place) for place in layout.bins if load[place] > lower[place]]
    heapify(givers)
    takers = sorted((load[place] - lower[place], place) for place in layout.bins if load[place] < lower[place])
    room = max((upper[place] - load[place] for _, place in takers), default=0)
    for _, taker in takers:
        while givers and load[taker] < lower[taker]:
            asked: list[int] = []
            best: tuple[bool, int, int, int] | None = None
            while givers and len(asked) < CANDIDATES:
                _, giver = heappop(givers)
                spare = load[giver] - lower[giver]
                # A bin that can give nothing to any bin, such as one with only a giant, is not asked again.
                if not layout.members[giver] or layout.members[giver][0][0] > min(spare, room):
                    continue
                asked.append(giver)
                offer = _offer(layout, giver, spare, lower[taker] - load[taker], upper[taker] - load[taker])
                if offer is not None and (best is None or offer < best):
                    best = offer
                # The first bin has most to spare. Others are asked only if all that it can give overshoots.
                if best is not None and not best[0]:
                    break
            if best is not None:
                layout.move(best[3], taker)
            for giver in asked:
                heappush(givers, (lower[giver] - load[giver], giver))
            if best is None:
                break


def _offer(layout: Layout, giver: int, spare: int, need: int, room: int) -> tuple[bool, int, int, int] | None:
    """What a bin can give: whether it overshoots, by how much it misses, which bin, which item; None for nothing."""
    listed = layout.members[giver]
    position = bisect_left(listed, (min(spare, need) + 1, -1)) - 1
    if position >= 0:
        size, item = listed[position]
        return False, need - size, giver, item
    position = bisect_left(listed, (need, -1))
    if position < len(listed):
        size, item = listed[position]
        if size <= min(spare, room):
            return True, size - need, giver, item
    return None
