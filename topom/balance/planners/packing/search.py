"""The exact answer for few items, by branch and bound.

Items are put into bins one by one, the largest first. A branch is given up if it cannot end with less excess than the
best known layout, or with equal excess and less cost. What it ends with at least:

- *excess*: what is above the upper limits already; the part of the items left that finds no room under them; and what
  the bins lack that the items left cannot fill. (The last two do not add up: items cannot be both too many and too
  few.)
- *cost*: what has moved, by bytes first and by number second; and what must still move so that the bins end with no
  more excess than the best known layout: if every item left stayed at its origin, the bytes above the upper limits or
  the bytes below the lower ones, whichever is more.

Without it, plans for 16 slots in 4 groups move 10% more bytes, the worst twice as many, and 4 of 100 leave more outside
the bands (random fleets, sizes by Zipf's law, even or log-normal).
"""

from topom.balance.planners.packing.layout import NOWHERE, Layout

MOST_ITEMS = 24
"""If there are more items, nothing is searched."""
MOST_NODES = 80_000
"""How many branches are entered at most: some tenths of a second. Then the best layout so far is taken."""


def search(layout: Layout) -> bool:
    """Bring a layout, in which every item is in a bin, to the best one.

    Returns:
        Whether the outcome is known to be the best. If not, it is the best that was found, at least as good as before.
    """
    if len(layout.size) > MOST_ITEMS:
        return False
    one = _Search(layout)
    known = one.run()
    for item, place in zip(one.order, one.best, strict=True):
        if layout.at[item] != place:
            layout.move(item, place)
    return known


class _Search:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.order = sorted(range(len(layout.size)), key=lambda item: (-layout.size[item], item))
        self.size = [layout.size[item] for item in self.order]
        self.origin = [layout.origin[item] for item in self.order]
        self.best = [layout.at[item] for item in self.order]
        self.best_excess = layout.excess()
        # One number orders by bytes first and by items second.
        self.unit = len(self.size) + 1
        self.best_cost = layout.cost() * self.unit + sum(1 for item in layout.moved() if layout.origin[item] != NOWHERE)
        self.load = list(layout.load)
        for item in self.order:
            self.load[layout.at[item]] -= layout.size[item]
        # The load of each bin if every item left stayed at its origin.
        self.rest = list(self.load)
        self.left = 0
        self.homeless = 0  # bytes of the items left that have no origin
        for size, origin in zip(self.size, self.origin, strict=True):
            self.left += size
            if origin == NOWHERE:
                self.homeless += size
            else:
                self.rest[origin] += size
        self.last_from = {origin: depth for depth, origin in enumerate(self.origin)}
        self.chosen: list[int] = []
        self.nodes = 0

    def run(self) -> bool:
        """Look at all branches that may be better; False if there were too many."""
        self._branch(0)
        return self.nodes <= MOST_NODES

    def _branch(self, cost: int) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            return
        excess, needed = self._bounds()
        if (excess, cost + needed) >= (self.best_excess, self.best_cost):
            return
        depth = len(self.chosen)
        if depth == len(self.size):
            if (excess, cost) < (self.best_excess, self.best_cost):
                self.best_excess, self.best_cost, self.best = excess, cost, list(self.chosen)
            return
        size, origin = self.size[depth], self.origin[depth]
        lower, load = self.layout.lower, self.load
        self.left -= size
        if origin == NOWHERE:
            self.homeless -= size
        else:
            self.rest[origin] -= size
        places = sorted(self.layout.bins, key=lambda place: (place != origin, load[place] - lower[place], place))
        tried = set()
        for place in places:
            if place != origin and self.last_from.get(place, NOWHERE) < depth:
                # If bins are alike for all that follows, one of them is enough.
                alike = (load[place], lower[place], self.layout.upper[place])
                if alike in tried:
                    continue
                tried.add(alike)
            self.chosen.append(place)
            load[place] += size
            self.rest[place] += size
            self._branch(cost + size * self.unit + 1 if origin not in (NOWHERE, place) else cost)
            self.rest[place] -= size
            load[place] -= size
            self.chosen.pop()
        if origin == NOWHERE:
            self.homeless += size
        else:
            self.rest[origin] += size
        self.left += size

    def _bounds(self) -> tuple[int, int]:
        """The least excess of this branch's ends, and the least further cost for no more excess than the best."""
        above = room = lacking = 0
        too_full = too_empty = 0
        for place, load in enumerate(self.load):
            upper, lower, rest = self.layout.upper[place], self.layout.lower[place], self.rest[place]
            if load > upper:
                above += load - upper
            else:
                room += upper - load
                if load < lower:
                    lacking += lower - load
            if rest > upper:
                too_full += rest - upper
            elif rest < lower:
                too_empty += lower - rest
        excess = above + max(0, self.left - room, lacking - self.left)
        needed = max(0, too_full - self.best_excess, too_empty - self.homeless - self.best_excess)
        return excess, needed * self.unit
