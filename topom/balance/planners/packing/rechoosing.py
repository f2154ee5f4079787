"""Chooses moves anew, two or three at a time.

The other steps look at one move, so they miss what only two moves can save: two items go to one bin where one item
would do, or two moves with smaller items could exchange their targets. Here some moves that are near each other, by bin
or by size, are taken back. Then the bins that this leaves outside their bands are brought into them with fewer bytes,
if as many moves can do that.

Plans for 1024 slots in 50 groups move 0.9% more bytes without it, the worst 1.28 times the bound instead of 1.09
(fleets of ``benchmarks/planning.py``). It takes nearly all of the 0.15 s there.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import nsmallest

from topom.balance.planners.packing.layout import NOWHERE, Layout

MOST_STEPS = 60_000
"""How many moves at most are tried in all: some tenths of a second."""
NEIGHBOURS = 6
"""How many moves of the nearest sizes are looked at together with each."""
OTHERS = 4
"""How many bins of which no move was taken back may take part: those with most room or most to give."""


def rechoose(layout: Layout) -> None:
    """Save bytes moved without more excess."""
    _Rechooser(layout).run()


class _Rechooser:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.steps = 0
        self.best: list[tuple[int, int]] | None = None
        self.best_cost = 0
        self.way: list[tuple[int, int]] = []
        self.concerned: set[int] = set()
        self.roomy: list[int] = []
        self.sparing: list[int] = []

    def run(self) -> None:
        """Go through all moves until nothing more is saved, or there were too many tries."""
        saved = True
        while saved and self.steps < MOST_STEPS:
            saved = False
            self._rank()
            for together in self._sets():
                if self.steps >= MOST_STEPS:
                    return
                if all(self._is_move(item) for item in together) and self._try(together):
                    saved = True
                    self._rank()

    def _is_move(self, item: int) -> bool:
        layout = self.layout
        origin, place = layout.origin[item], layout.at[item]
        return origin != place and not self._outside(origin) and not self._outside(place)

    def _outside(self, place: int) -> int:
        return self.layout.excess_of(place, self.layout.load[place])

    def _sets(self) -> Iterator[Sequence[int]]:
        layout = self.layout
        moved = [item for item in layout.moved() if layout.origin[item] != NOWHERE]
        moved.sort(key=lambda item: (-layout.size[item], item))
        number = {item: position for position, item in enumerate(moved)}
        near: dict[int, list[int]] = {}
        for item in moved:
            for place in (layout.origin[item], layout.at[item]):
                near.setdefault(place, []).append(item)
        for item in moved:
            beside = {other for place in (layout.origin[item], layout.at[item]) for other in near[place]}
            beside |= set(moved[number[item] + 1 : number[item] + 1 + NEIGHBOURS])
            beside.discard(item)
            for other in sorted(beside, key=number.__getitem__):
                yield (item, other)
                for place in (layout.origin[other], layout.at[other]):
                    for third in near[place][:3]:
                        if third not in (item, other):
                            yield (item, other, third)

    def _rank(self) -> None:
        layout = self.layout
        self.roomy = nsmallest(OTHERS, layout.bins, key=lambda place: (layout.load[place] - layout.upper[place], place))
        self.sparing = nsmallest(
            OTHERS, layout.bins, key=lambda place: (layout.lower[place] - layout.load[place], place)
        )

    def _try(self, together: Sequence[int]) -> bool:
        layout = self.layout
        before = [(item, layout.at[item]) for item in together]
        self.concerned = {place for item in together for place in (layout.origin[item], layout.at[item])}
        for item in together:
            layout.move(item, layout.origin[item])
        self.best, self.best_cost = None, sum(layout.size[item] for item in together)
        self._search(len(together), 0)
        for item, place in before if self.best is None else self.best:
            layout.move(item, place)
        return self.best is not None

    def _search(self, left: int, cost: int) -> None:
        """Look for the cheapest way, with at most ``left`` moves, to bring all bins concerned into their bands."""
        layout = self.layout
        full, empty = [], []
        for place in self.concerned:
            above, below = layout.load[place] - layout.upper[place], layout.lower[place] - layout.load[place]
            if above > 0:
                full.append((-above, place))
            elif below > 0:
                empty.append((-below, place))
        if not full and not empty:
            self.best, self.best_cost = list(self.way), cost
            return
        # A move helps at most one bin of each kind, and by no more than its size.
        if max(len(full), len(empty)) > left:
            return
        if cost + max(-sum(above for above, _ in full), -sum(below for below, _ in empty)) >= self.best_cost:
            return
        if full:
            above, place = min(full)
            for other in dict.fromkeys((*sorted(self.concerned), *self.roomy)):
                if other != place:
                    self._move_one(place, other, -above, left, cost)
        else:
            below, place = min(empty)
            for other in dict.fromkeys((*sorted(self.concerned), *self.sparing)):
                if other != place:
                    self._move_one(other, place, -below, left, cost)

    def _move_one(self, source: int, target: int, need: int, left: int, cost: int) -> None:
        """Try items of ``source`` in ``target``: the smallest that is enough for one of these bins, and for both."""
        layout = self.layout
        needs = {
            need,
            max(need, layout.load[source] - layout.upper[source], layout.lower[target] - layout.load[target]),
        }
        tried = set()
        for least in sorted(needs):
            item = self._smallest(source, least)
            if item is None and left > 1:
                item = self._largest(source, least)
            if item is None or item in tried:
                continue
            tried.add(item)
            self.steps += 1
            size = layout.size[item]
            if cost + size >= self.best_cost:
                continue
            if layout.load[target] + size > layout.upper[target] or layout.load[source] - size < layout.lower[source]:
                continue
            layout.move(item, target)
            self.way.append((item, target))
            self._search(left - 1, cost + size)
            self.way.pop()
            layout.move(item, source)

    def _smallest(self, source: int, least: int) -> int | None:
        listed = self.layout.members[source]
        for position in range(bisect_left(listed, (least, -1)), len(listed)):
            if self.layout.origin[listed[position][1]] == source:
                return listed[position][1]
        return None

    def _largest(self, source: int, most: int) -> int | None:
        listed = self.layout.members[source]
        for position in range(bisect_left(listed, (most, -1)) - 1, -1, -1):
            if self.layout.origin[listed[position][1]] == source:
                return listed[position][1]
        return None
