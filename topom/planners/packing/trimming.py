"""Moves that were not needed, once a layout is found: they are taken back, or done with smaller items."""

from bisect import bisect_left

from topom.planners.packing.layout import NOWHERE, Layout

PASSES = 4
"""So often at most all moves are looked at; each pass that changes something saves bytes."""


def trim(layout: Layout) -> None:
    """Save bytes moved without more excess."""
    for _ in range(PASSES):
        saved = False
        for item in sorted(layout.moved(), key=lambda item: (-layout.size[item], item)):
            if layout.origin[item] != NOWHERE and (_take_back(layout, item) or _take_smaller(layout, item)):
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
    """Move a smaller item of the same origin in place of this one, the smallest that costs no excess."""
    size, place, origin = layout.size[item], layout.at[item], layout.origin[item]
    # Both bins stay where they are, in their bands, if the difference is at most this.
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
