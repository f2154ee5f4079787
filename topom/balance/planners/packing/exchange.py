"""What a move of one item, or a swap of two, still mends.

If ``d`` bytes net go from one bin to another, the excess of both is a sum of two convex functions of ``d``, each zero
on an interval. It is least between the middle two of the four ends of these intervals. For every item that may come
back (or none), the candidate is the item that just reaches that range. If that item goes beyond the range, the next
smaller one is a candidate, too.
"""

from bisect import bisect_left
from heapq import nsmallest
from typing import NamedTuple

from topom.balance.planners.packing.layout import NOWHERE, Layout

PARTNERS = 24
"""A bin is compared with so many other bins, first those with the most room, or with the most to give."""
ENOUGH = 0.75
"""Another bin is passed over if a known exchange helps by at least this part of what that bin could help."""


def mend(layout: Layout) -> None:
    """Make the best exchange of each bin outside its band, again and again, until none lessens the excess."""
    mender = _Mender(layout)
    waiting = list(layout.bins)
    # Every exchange lessens a whole number that is never below 0, so this ends.
    while waiting := [place for place in waiting if mender.excess(place) and not mender.is_giant_alone(place)]:
        waiting.sort(key=lambda place: (-mender.excess(place), place))
        touched: set[int] = set()
        for place in waiting:
            touched |= mender.mend(place)
        waiting = list(touched)


class _Exchange(NamedTuple):
    """The better exchange is the smaller one: it goes by the change of the excess, then by the change of the cost.

    ``given`` goes from ``source`` to ``target``, ``returned`` (:data:`NOWHERE` for none) the other way.
    """

    excess: int
    cost: int
    given: int
    returned: int
    source: int
    target: int


class _Mender:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.largest = max(layout.upper)
        # Bins that can take more, and bins that can give some away, without leaving their bands.
        self.roomy = {place for place in layout.bins if layout.load[place] < layout.upper[place]}
        self.sparing = {place for place in layout.bins if layout.load[place] > layout.lower[place]}
        self.sparing -= {place for place in self.sparing if self.is_giant_alone(place)}

    def excess(self, place: int) -> int:
        return self.layout.excess_of(place, self.layout.load[place])

    def is_giant_alone(self, place: int) -> bool:
        """Whether a bin has only one item, and that fits into no bin: it is too much by the same wherever it is."""
        listed = self.layout.members[place]
        return len(listed) == 1 and self.layout.load[place] == listed[0][0] > self.largest

    def mend(self, place: int) -> set[int]:
        """Make exchanges of one bin until none helps; gives the bins that were changed."""
        touched: set[int] = set()
        while excess := self.excess(place):
            gives = self.layout.load[place] > self.layout.upper[place]
            best: _Exchange | None = None
            for space, other in self.partners(place, gives):
                source, target = (place, other) if gives else (other, place)
                most = min(excess, space) + self.excess(other)
                if best is not None and -best.excess >= most * ENOUGH:
                    continue
                found = self.best(source, target)
                if found is not None and (best is None or found < best):
                    best = found
            if best is None:
                break
            self.make(best)
            touched |= {best.source, best.target}
        return touched

    def make(self, exchange: _Exchange) -> None:
        layout = self.layout
        layout.move(exchange.given, exchange.target)
        if exchange.returned != NOWHERE:
            layout.move(exchange.returned, exchange.source)
        for place in (exchange.source, exchange.target):
            (self.roomy.add if layout.load[place] < layout.upper[place] else self.roomy.discard)(place)
            spares = layout.load[place] > layout.lower[place] and not self.is_giant_alone(place)
            (self.sparing.add if spares else self.sparing.discard)(place)

    def partners(self, place: int, gives: bool) -> list[tuple[int, int]]:
        """Bins that could lessen the excess: how much each could take or give, and the bin; the most first."""
        layout = self.layout
        if gives:
            found = [(layout.load[other] - layout.upper[other], other) for other in self.roomy]
        else:
            found = [(layout.lower[other] - layout.load[other], other) for other in self.sparing]
        return [(-space, other) for space, other in nsmallest(PARTNERS, found)]

    def best(self, source: int, target: int) -> _Exchange | None:
        """The best exchange that moves bytes from ``source`` to ``target``; None if none lessens their excess."""
        layout = self.layout
        from_source, from_target = layout.load[source], layout.load[target]
        _, least, most, _ = sorted(
            (
                from_source - layout.upper[source],
                from_source - layout.lower[source],
                layout.lower[target] - from_target,
                layout.upper[target] - from_target,
            )
        )
        before = self.excess(source) + self.excess(target)
        giving = layout.members[source]
        best: _Exchange | None = None
        for size_back, back in [(0, NOWHERE), *layout.members[target]]:
            reached = bisect_left(giving, (size_back + max(1, least), -1))
            beyond = reached == len(giving) or giving[reached][0] > size_back + most
            for position in (reached, reached - 1) if beyond else (reached,):
                if not 0 <= position < len(giving):
                    continue
                size, item = giving[position]
                net = size - size_back
                if net <= 0:
                    continue
                after = layout.excess_of(source, from_source - net) + layout.excess_of(target, from_target + net)
                if after >= before or (best is not None and after - before > best.excess):
                    continue
                cost = self.change(item, target) + (self.change(back, source) if back != NOWHERE else 0)
                found = _Exchange(after - before, cost, item, back, source, target)
                if best is None or found < best:
                    best = found
        return best

    def change(self, item: int, place: int) -> int:
        """By how much the cost changes if an item moves to a bin."""
        layout = self.layout
        origin = layout.origin[item]
        if origin == NOWHERE:
            return 0
        return layout.size[item] * ((place != origin) - (layout.at[item] != origin))
