"""What a move of one item, or a swap of two, still mends.

Between two bins, moving ``d`` bytes net from one to the other changes the excess of both as a sum of two convex
functions of ``d``, each zero on an interval; it is least between the middle two of the four ends of these intervals.
For every item that may come back (or none), the items just at the ends of that range are the candidates.
"""

from bisect import bisect_left, bisect_right

from topom.planners.packing.layout import Layout

PARTNERS = 32
"""With so many other bins a bin is compared, those with the most room, or with the most to give, first."""


def mend(layout: Layout) -> None:
    """Make the best exchange of each bin outside its band, again and again, until none lessens the excess."""
    waiting = [place for place in layout.bins if layout.excess_of(place, layout.load[place])]
    # Every exchange lessens a whole number that is not below 0, so this ends.
    while waiting:
        waiting.sort(key=lambda place: (-layout.excess_of(place, layout.load[place]), place))
        touched: set[int] = set()
        for place in waiting:
            touched |= _mend_one(layout, place)
        waiting = [place for place in sorted(touched) if layout.excess_of(place, layout.load[place])]


def _mend_one(layout: Layout, place: int) -> set[int]:
    """Exchanges of one bin until none helps; the bins that were changed."""
    touched: set[int] = set()
    while layout.excess_of(place, layout.load[place]):
        gives = layout.load[place] > layout.upper[place]
        best: tuple[int, int, int, int] | None = None
        for other in _partners(layout, place, gives):
            source, target = (place, other) if gives else (other, place)
            found = _best(layout, source, target)
            if found is not None and (best is None or found[:2] < best[:2]):
                best = found
                chosen = (source, target)
        if best is None:
            break
        source, target = chosen
        _, _, given, returned = best
        layout.move(given, target)
        if returned >= 0:
            layout.move(returned, source)
        touched |= {source, target}
    return touched


def _partners(layout: Layout, place: int, gives: bool) -> list[int]:
    """Other bins that could lessen the excess: those with room for more, or those that could do with less."""
    load = layout.load
    if gives:
        found = [(load[other] - layout.upper[other], other) for other in layout.bins if other != place]
    else:
        found = [(layout.lower[other] - load[other], other) for other in layout.bins if other != place]
    return [other for space, other in sorted(entry for entry in found if entry[0] < 0)[:PARTNERS]]


def _best(layout: Layout, source: int, target: int) -> tuple[int, int, int, int] | None:
    """The best exchange that takes bytes from ``source`` to ``target``, if one lessens their excess.

    Returns:
        Change of the excess, change of the cost, the item given, the item that comes back (-1 for none).
    """
    load = layout.load
    ends = sorted(
        (
            load[source] - layout.upper[source],
            load[source] - layout.lower[source],
            layout.lower[target] - load[target],
            layout.upper[target] - load[target],
        )
    )
    least, most = ends[1], ends[2]
    before = layout.excess_of(source, load[source]) + layout.excess_of(target, load[target])
    giving = layout.members[source]
    best: tuple[int, int, int, int] | None = None
    for size_back, back in [(0, -1), *layout.members[target]]:
        first = bisect_left(giving, (size_back + max(1, least), -1))
        last = bisect_right(giving, (size_back + most, len(layout.size)))
        for position in {first - 1, first, last - 1, last}:
            if not 0 <= position < len(giving):
                continue
            size, item = giving[position]
            net = size - size_back
            if net <= 0:
                continue
            after = layout.excess_of(source, load[source] - net) + layout.excess_of(target, load[target] + net)
            if after >= before:
                continue
            cost = _change(layout, item, target)
            if back >= 0:
                cost += _change(layout, back, source)
            found = (after - before, cost, item, back)
            if best is None or found < best:
                best = found
    return best


def _change(layout: Layout, item: int, place: int) -> int:
    """By how much moving an item to a bin changes the cost."""
    origin = layout.origin[item]
    if origin < 0:
        return 0
    return layout.size[item] * ((place != origin) - (layout.at[item] != origin))
