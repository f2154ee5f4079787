"""Which item is in which bin, how full each bin is, and what that costs."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

NOWHERE = -1
"""The origin of an item that is in no bin yet, and the place of an item that was not put anywhere yet."""


class Layout:
    """Items in bins. Bins and items are numbered from 0; sizes and loads are in bytes.

    Attributes:
        lower, upper: each bin's band.
        load: what is in each bin, fixed things included.
        size: the size of each item, above 0.
        origin: the bin where each item costs nothing; or :data:`NOWHERE` for an item that must be put somewhere: then
            the cost is the same wherever it goes.
        at: the bin in which each item is.
        members: ``(size, item)`` of the items in each bin, ascending.
    """

    def __init__(
        self,
        lower: Sequence[int],
        upper: Sequence[int],
        fixed: Sequence[int],
        size: Sequence[int],
        origin: Sequence[int],
    ) -> None:
        self.lower = list(lower)
        self.upper = list(upper)
        self.load = list(fixed)
        self.size = list(size)
        self.origin = list(origin)
        self.at = list(origin)
        self.members: list[list[tuple[int, int]]] = [[] for _ in self.lower]
        for item, place in enumerate(self.at):
            if place != NOWHERE:
                self.members[place].append((self.size[item], item))
                self.load[place] += self.size[item]
        for listed in self.members:
            listed.sort()

    @property
    def bins(self) -> range:
        """The numbers of all bins."""
        return range(len(self.lower))

    def move(self, item: int, place: int) -> None:
        """Put an item into a bin, out of the one in which it is."""
        entry = (self.size[item], item)
        old = self.at[item]
        if old != NOWHERE:
            listed = self.members[old]
            del listed[bisect_left(listed, entry)]
            self.load[old] -= entry[0]
        self.at[item] = place
        insort(self.members[place], entry)
        self.load[place] += entry[0]

    def excess_of(self, place: int, load: int) -> int:
        """By how much a load is outside the band of a bin."""
        if load > self.upper[place]:
            return load - self.upper[place]
        return self.lower[place] - load if load < self.lower[place] else 0

    def excess(self) -> int:
        """Bytes outside the bands, over all bins."""
        return sum(self.excess_of(place, load) for place, load in enumerate(self.load))

    def moved(self) -> list[int]:
        """Items that are not at their origin, ascending."""
        return [item for item, place in enumerate(self.at) if place != self.origin[item]]

    def cost(self) -> int:
        """Bytes that left a bin for another; items whose origin is :data:`NOWHERE` are not counted."""
        return sum(self.size[item] for item in self.moved() if self.origin[item] != NOWHERE)

    def after_moves(self) -> Layout:
        """The same layout, with every item's origin where the item is now, as it is once the moves are made."""
        fixed = list(self.load)
        for item, place in enumerate(self.at):
            if place != NOWHERE:
                fixed[place] -= self.size[item]
        return Layout(self.lower, self.upper, fixed, self.size, self.at)
