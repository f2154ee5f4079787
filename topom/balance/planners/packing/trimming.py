"""Takes back moves that were not needed, once a layout is found.

Such a move is taken back, or made with a smaller item; or another item, which moved anyway to a bin that did not need
it, goes where this one went.

Without it, plans for 16384 slots in 1000 groups move 0.7% more bytes (fleets of ``benchmarks/planning.py``).
"""

from bisect import bisect_left, bisect_right

from topom.balance.planners.packing.layout import NOWHERE, Layout

PASSES = 4
"""How often at most all moves are looked at; each pass that changes something saves bytes."""
CANDIDATES = 64
"""How many items that have moved anyway are tried in the place of one."""


def trim(layout: Layout) -> None:
    """Save bytes moved without more excess."""
    for _ in range(PASSES):
        saved = False
        moved = sorted((layout.size[item], item) for item in layout.moved())
        for _, item in reversed(moved):
            # It may have gone back since, in the place of another one.
            if layout.origin[item] in (NOWHERE, layout.at[item]):
                continue
            if _take_back(layout, item) or _take_smaller(layout, item) or _replace(layout, item, moved):
                saved = True
        if not saved:
            break


def _change(layout: Layout, place: int, difference: int) -> int:
    load = layout.load[place]
    return layout.excess_of(place, load + difference) - layout.excess_of(place, load)


def _take_back(layout: Layout, item: int) -> bool:
    """Put an item back where it was, if that costs no excess."""
    size, place, origin = layout.size[item], layout.at[item], layout.origin[item]
    if _change(layout, place, -size) + _change(layout, origin, size) > 0:
        return False
    layout.move(item, origin)
    return True


def _take_smaller(layout: Layout, item: int) -> bool:
    """Move a smaller item of the same origin in the place of this one: the smallest that costs no excess."""
    size, place, origin = layout.size[item], layout.at[item], layout.origin[item]
    # Both bins stay in their bands if the difference is at most this.
    spare = min(layout.upper[origin] - layout.load[origin], layout.load[place] - layout.lower[place])
    if spare <= 0:
        return False
    listed = layout.members[origin]
    for position in range(bisect_left(listed, (size - spare, -1)), len(listed)):
        smaller, other = listed[position]
        if smaller >= size:
            return False
        if layout.origin[other] == origin:
            layout.move(item, origin)
            layout.move(other, place)
            return True
    return False


def _replace(layout: Layout, item: int, moved: list[tuple[int, int]]) -> bool:
    """Put an item back where it was, and in its place another item that has moved, from a bin that can spare it.

    Args:
        moved: ``(size, item)`` of items that have moved, ascending.
    """
    size, place, origin = layout.size[item], layout.at[item], layout.origin[item]
    load, lower, upper = layout.load, layout.lower, layout.upper
    if load[origin] + size > upper[origin] or not lower[place] <= load[place] <= upper[place]:
        return False
    first = bisect_left(moved, (size - (load[place] - lower[place]), -1))
    last = bisect_right(moved, (size + upper[place] - load[place], len(layout.size)))
    for other_size, other in moved[first : min(last, first + CANDIDATES)]:
        elsewhere = layout.at[other]
        if elsewhere in (place, origin, layout.origin[other]) or load[elsewhere] > upper[elsewhere]:
            continue
        if load[elsewhere] - other_size >= lower[elsewhere] and layout.origin[other] != place:
            layout.move(item, origin)
            layout.move(other, place)
            return True
    return False
