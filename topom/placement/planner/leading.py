"""Which of a slot's holders leads it.

Leadership is a flow between nodes: a node that leads a slot can hand it to another holder. Paths of such steps, the
cheapest first, bring all nodes within their bands at the least cost. Two things cost: most of all a leader whose copy
is still to be made, and less a promotion in a slot whose leader is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from topom.placement.planner.layout import Layout
from topom.placement.planner.watermarks import Band

NOT_YET_COPIED = 1 << 24
"""The cost of a leader whose copy is new: more than all promotions together."""

EVERY_PATH = 1 << 60
"""More than any path costs."""
EVERYTHING = Band(0, 1 << 60)
"""A band that allows everything."""


class Leading:
    """Leaders of a layout's slots.

    Attributes:
        leaders: the leaders, by slot.
        counts: how many slots each node leads, by node.
        bands: how many slots each node may lead.
        new_copies_lead: whether, in slots that lost their leader, copies that are still to be made lead as readily as
            others.
    """

    def __init__(self, layout: Layout, bands: Sequence[Band], *, new_copies_lead: bool = False) -> None:
        self._layout = layout
        self._new_copies_lead = new_copies_lead
        self.bands = list(bands)
        self.leaders = [-1] * len(layout.holders)
        self.counts = [0] * layout.number_of_nodes
        self._prices = [
            {node: self._price(slot, node) for node in sorted(holders)} for slot, holders in enumerate(layout.holders)
        ]
        self._over: dict[tuple[int, int], int] = {}
        self._led: list[dict[int, None]] = [{} for _ in range(layout.number_of_nodes)]
        undecided = []
        for slot, leader in enumerate(layout.leaders):
            if leader in layout.holders[slot]:
                self._lead(slot, leader)
            else:
                undecided.append(slot)
        undecided.sort(key=lambda slot: (len(layout.kept[slot]), slot))
        for slot in undecided:
            able = (layout.holders[slot] & layout.kept[slot]) or layout.holders[slot]
            if layout.kept[slot]:
                self._lead(slot, min(able, key=lambda node: (self.counts[node], node)))
            elif able:
                self._lead(slot, min(able, key=lambda node: (self._one_sided(slot, node), self.counts[node], node)))

    def _one_sided(self, slot: int, node: int) -> int:
        """Of the slots that the node shares with the slot's other holders: how many more the node leads than they do.

        If the leaders are even in every pair, the slots of a node that leaves find their next leaders on many nodes.
        """
        return sum(
            self._over.get((node, other), 0) - self._over.get((other, node), 0)
            for other in self._layout.holders[slot]
            if other != node
        )

    def _lead(self, slot: int, node: int) -> None:
        before = self.leaders[slot]
        if before >= 0:
            self._count(slot, before, -1)
            del self._led[before][slot]
        self.leaders[slot] = node
        self._count(slot, node, 1)
        self._led[node][slot] = None

    def _count(self, slot: int, node: int, change: int) -> None:
        self.counts[node] += change
        for other in self._layout.holders[slot]:
            if other != node:
                self._over[node, other] = self._over.get((node, other), 0) + change

    def _price(self, slot: int, node: int) -> int:
        """The cost if the node, one of the holders, leads the slot."""
        kept, before = self._layout.kept[slot], self._layout.leaders[slot]
        if node == before or not kept:
            return 0
        if before < 0 and self._new_copies_lead:
            return 0
        return (before >= 0) + (0 if node in kept else NOT_YET_COPIED)

    def balance(self, dearest: int = EVERY_PATH) -> bool:
        """Bring every node within its band. False if that is not possible; then the leaders are of no use.

        Paths that cost ``dearest`` or more are not taken.
        """
        above, below = self._above_high, self._below_low
        self._shift(above, below, dearest)
        self._shift(above, lambda node: self.bands[node].high - self.counts[node], dearest)
        self._shift(lambda node: self.counts[node] - self.bands[node].low, below, dearest)
        return self.is_balanced()

    def is_balanced(self) -> bool:
        """Whether every node is within its band."""
        return all(band.holds(count) for band, count in zip(self.bands, self.counts, strict=True))

    def _above_high(self, node: int) -> int:
        return self.counts[node] - self.bands[node].high

    def _below_low(self, node: int) -> int:
        return self.bands[node].low - self.counts[node]

    def even(self, most_promotions: int, dearest: int = NOT_YET_COPIED) -> None:
        """Even out leaders, then followers; at last make leaders a little less even if followers gain more by that.

        It takes at most ``most_promotions`` promotions in all, and no paths that cost ``dearest`` or more: by default
        it lets no new copy lead.
        """

        number = len(self.counts)

        def narrow(
            counts: Callable[[], Sequence[int]], wider: int | None, apart: Callable[[], tuple[int, ...]]
        ) -> None:
            total = sum(counts())

            def attempt(above: int, below: int) -> bool:
                narrower = Band(min(counts()) + below, max(counts()) - above)
                if wider is None:
                    return self._narrowed(narrower, EVERYTHING, apart, most_promotions, dearest)
                leaders = Band(max(min(self.counts) - wider, 0), max(self.counts) + wider)
                return self._narrowed(leaders, narrower, apart, most_promotions, dearest)

            _closer(lambda: max(counts()) + total // -number, lambda step: attempt(step, 0))
            _closer(lambda: total // number - min(counts()), lambda step: attempt(0, step))

        narrow(lambda: self.counts, None, self.leaders_and_followers_apart)
        narrow(self._followers, 0, self.leaders_and_followers_apart)
        narrow(self._followers, 1, self._apart)

    def _apart(self) -> tuple[int, int, int]:
        """How far apart nodes are; less is better: the larger of leaders and followers, both together, leaders."""
        leaders, followers = self.leaders_and_followers_apart()
        return max(leaders, followers), leaders + followers, leaders

    def leaders_and_followers_apart(self) -> tuple[int, int]:
        """How far apart nodes are in leaders, and in followers."""
        followers = self._followers()
        return max(self.counts) - min(self.counts), max(followers) - min(followers)

    def _followers(self) -> list[int]:
        return [self._layout.count(node) - led for node, led in enumerate(self.counts)]

    def _narrowed(
        self,
        leaders: Band,
        followers: Band,
        apart: Callable[[], tuple[int, ...]],
        most_promotions: int,
        dearest: int,
    ) -> bool:
        """Bring all nodes also within these bands. Nothing changes unless nodes are then less far ``apart``."""
        bands, before, apart_before = self.bands, list(self.leaders), apart()
        self.bands = []
        for node, band in enumerate(bands):
            held = self._layout.count(node)
            low = max(band.low, leaders.low, held - followers.high)
            high = min(band.high, leaders.high, held - followers.low)
            # The bands from before take precedence.
            self.bands.append(Band(low, high) if low <= high else Band(self.counts[node], self.counts[node]))
        narrowed = self.balance(dearest) and self.promotions() <= most_promotions and apart() < apart_before
        self.bands = bands
        if not narrowed:
            self.restore(before)
        return narrowed

    def restore(self, leaders: Sequence[int]) -> None:
        """Let these lead again."""
        for slot, leader in enumerate(leaders):
            if self.leaders[slot] != leader:
                self._lead(slot, leader)

    def promotions(self) -> int:
        """How many slots have their leader replaced although it was there."""
        return sum(
            1 for slot, before in enumerate(self._layout.leaders) if before >= 0 and before != self.leaders[slot]
        )

    def _shift(self, surplus: Callable[[int], int], room: Callable[[int], int], dearest: int) -> None:
        """Hand as many leaderships as possible from nodes with ``surplus`` above 0 to nodes with ``room`` above 0.

        The cheapest paths come first; paths that cost ``dearest`` or more are not taken.
        """
        while True:
            distance = self._distances(node for node in range(len(self.counts)) if surplus(node) > 0)
            ends = [far for node, far in distance.items() if room(node) > 0 and surplus(node) <= 0]
            if not ends or min(ends) >= dearest:
                return
            if not self._push(distance, min(ends), surplus, room):
                return

    def _distances(self, sources: Iterable[int]) -> dict[int, int]:
        """The cost of the cheapest path from any of the sources to each node."""
        distance = dict.fromkeys(sources, 0)
        queue = deque(distance)
        queued = set(queue)
        while queue:
            node = queue.popleft()
            queued.discard(node)
            far = distance[node]
            for slot in self._led[node]:
                prices = self._prices[slot]
                paid = far - prices[node]
                for other, price in prices.items():
                    cost = paid + price
                    if other != node and cost < distance.get(other, 1 << 62):
                        distance[other] = cost
                        if other not in queued:
                            queued.add(other)
                            queue.append(other)
        return distance

    def _push(
        self, distance: dict[int, int], nearest: int, surplus: Callable[[int], int], room: Callable[[int], int]
    ) -> bool:
        """Take the paths of the cost ``nearest``, and look at each step once; gives whether there was one."""
        ahead = {node: self._steps(node, distance) for node in distance}
        taken = False
        for source in sorted(node for node in distance if surplus(node) > 0 and distance[node] == 0):
            while surplus(source) > 0:
                path = self._path(
                    source, ahead, lambda node: distance[node] == nearest and surplus(node) <= 0 and room(node) > 0
                )
                if path is None:
                    break
                for slot, target in path:
                    self._lead(slot, target)
                taken = True
        return taken

    def _path(
        self, source: int, ahead: dict[int, Iterator[tuple[int, int]]], is_end: Callable[[int], bool]
    ) -> list[tuple[int, int]] | None:
        """Which slots to hand on to which nodes, from the source to an end, depth first; None if there is no path."""
        path: list[tuple[int, int]] = []
        seen = {source}
        node = source
        while node == source or not is_end(node):
            step = next((step for step in ahead[node] if self.leaders[step[0]] == node and step[1] not in seen), None)
            if step is not None:
                path.append(step)
                node = step[1]
                seen.add(node)
            elif path:
                path.pop()
                node = path[-1][1] if path else source
            else:
                return None
        return path

    def _steps(self, node: int, distance: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Slots of the node, and the nodes that may take them on a cheapest path."""
        for slot in list(self._led[node]):
            prices = self._prices[slot]
            left = distance[node] - prices[node]
            for other, price in prices.items():
                if other != node and distance[other] == left + price:
                    yield slot, other


def _closer(left: Callable[[], int], attempt: Callable[[int], bool]) -> None:
    """Go as far as ``left``, in the longest steps that succeed."""
    step = left()
    while step > 0:
        step = min(step, left()) if attempt(step) else step // 2
