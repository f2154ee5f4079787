"""Moves copies of a slot that share a datacenter to datacenters without one, if nodes there may hold more.

The aim is the largest sum, over all slots, of the number of datacenters in which a slot has copies. A node may get
copies while it holds fewer than ``held.high``, and give copies while it holds more than ``held.low``. A node that is
outside may not get further out. No other table that keeps to this has its slots in more datacenters.

That is a flow between nodes, in which a copy that goes from one node to another is a step. The sum is the largest when
no path and no circle of steps is left that gains more datacenters than it loses. Nearly all gains take a single step,
or two nodes that exchange copies. So these come first, and only then the search for paths (:class:`_Paths`). A copy
that is still to be made can go elsewhere for nothing, so it is taken before a copy that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from topom.placement.planner.layout import Layout
from topom.placement.planner.watermarks import Band

DATACENTER = 1 << 24
"""The worth of a datacenter: more than all copies on a path."""

Step = tuple[int, int, int]
"""A slot, the node that gives its copy, and the node that gets it."""
Slots = tuple[int, ...]
Option = tuple[int, int, int]
"""The node that gives a copy, the datacenter to which it goes, and the cost of that."""


def spread(layout: Layout, held: Band) -> None:
    """Bring the slots' copies to as many datacenters as possible, while nodes keep within ``held``."""
    if not layout.several_datacenters:
        return
    limits = [
        Band(min(held.low, layout.count(node)), max(held.high, layout.count(node)))
        for node in range(layout.number_of_nodes)
    ]
    _single_steps(layout, limits)
    _exchange(layout)
    if any(_to_be_gained(layout, slot) for slot in range(len(layout.holders))):
        paths = _Paths(layout, limits)
        while steps := paths.next():
            paths.take(steps)


def _to_be_gained(layout: Layout, slot: int) -> bool:
    holders = layout.holders[slot]
    places = {layout.datacenters[node] for node in holders}
    return len(places) < len(holders) and len(places) < layout.number_of_datacenters


def _givers(layout: Layout, slot: int) -> list[int]:
    """Holders that share their datacenter: first those whose copy is not made yet, then followers, then the fullest."""
    able = [node for node in layout.holders[slot] if layout.crowds(slot, node)]
    return sorted(
        able,
        key=lambda node: (node in layout.kept[slot], node == layout.leaders[slot], -layout.count(node), node),
    )


def _single_steps(layout: Layout, limits: list[Band]) -> None:
    """Move copies from nodes that may give one to the nodes with the fewest that may get one, until none can move."""
    emptiest: list[list[tuple[int, int]]] = [[] for _ in range(layout.number_of_datacenters)]
    for node, datacenter in enumerate(layout.datacenters):
        emptiest[datacenter].append((layout.count(node), node))
    for heap in emptiest:
        heapify(heap)

    def emptiest_of(datacenter: int) -> tuple[int, int]:
        heap = emptiest[datacenter]
        while heap[0][0] != layout.count(heap[0][1]):
            heappop(heap)
        return heap[0]

    waiting = [slot for slot in range(len(layout.holders)) if _to_be_gained(layout, slot)]
    moved = True
    while moved:
        moved, left = False, []
        for slot in waiting:
            while _to_be_gained(layout, slot):
                giver = next((one for one in _givers(layout, slot) if layout.count(one) > limits[one].low), None)
                places = {layout.datacenters[node] for node in layout.holders[slot]}
                able = [emptiest_of(place) for place in range(layout.number_of_datacenters) if place not in places]
                able = [(count, node) for count, node in able if count < limits[node].high]
                if giver is None or not able:
                    left.append(slot)
                    break
                taker = min(able)[1]
                layout.remove(slot, giver)
                layout.add(slot, taker)
                for node in (giver, taker):
                    heappush(emptiest[layout.datacenters[node]], (layout.count(node), node))
                moved = True
        waiting = left


def _exchange(layout: Layout) -> None:
    """Let two nodes in different datacenters exchange copies, if both slots gain a datacenter by that."""
    size = layout.number_of_datacenters
    waiting: list[list[list[int]]] = [[[] for _ in range(size)] for _ in range(size)]
    for slot in range(len(layout.holders) - 1, -1, -1):
        if _to_be_gained(layout, slot):
            places = {layout.datacenters[node] for node in layout.holders[slot]}
            for here in {layout.datacenters[node] for node in _givers(layout, slot)}:
                for there in range(size):
                    if there not in places:
                        waiting[here][there].append(slot)

    def head(here: int, there: int) -> tuple[int, int] | None:
        """A slot that gains a datacenter if its copy goes there, and the node that gives it."""
        slots = waiting[here][there]
        while slots:
            slot = slots[-1]
            if all(layout.datacenters[node] != there for node in layout.holders[slot]):
                giver = next((node for node in _givers(layout, slot) if layout.datacenters[node] == here), None)
                if giver is not None:
                    return slot, giver
            slots.pop()
        return None

    for here in range(size):
        for there in range(here + 1, size):
            while (one := head(here, there)) and (other := head(there, here)):
                layout.remove(*one)
                layout.remove(*other)
                layout.add(one[0], other[1])
                layout.add(other[0], one[1])


class _Paths:
    """Steps one after another: each node on the way gives a copy for the one that it gets.

    One more vertex, :attr:`_outside`, joins the ends, so that a path is a circle, too: nodes that may hold less get
    from it, and nodes that may hold more give to it. One vertex for each datacenter stands for all its nodes, if
    any of them may get a copy. Distances are those of Bellman and Ford.
    """

    def __init__(self, layout: Layout, limits: list[Band]) -> None:
        self._layout = layout
        self._limits = limits
        self._outside = layout.number_of_nodes
        self._options: dict[Option, dict[int, None]] = {}
        self._of_slot: list[list[Option]] = [[] for _ in layout.holders]
        self._nodes_of: list[list[int]] = [[] for _ in range(layout.number_of_datacenters)]
        for node, datacenter in enumerate(layout.datacenters):
            self._nodes_of[datacenter].append(node)
        for slot in range(len(layout.holders)):
            self._enter(slot)

    def _enter(self, slot: int) -> None:
        """Note where the copies of the slot may go, and at what cost."""
        layout = self._layout
        places = [layout.datacenters[node] for node in layout.holders[slot]]
        for node in sorted(layout.holders[slot]):
            here = layout.datacenters[node]
            made = node in layout.kept[slot]
            for there in range(layout.number_of_datacenters):
                gained = 0 if there == here else (there not in places) - (places.count(here) == 1)
                option = (node, there, made - gained * DATACENTER)
                self._options.setdefault(option, {})[slot] = None
                self._of_slot[slot].append(option)

    def take(self, steps: list[Step]) -> None:
        """Do the steps."""
        for slot, giver, taker in steps:
            for option in self._of_slot[slot]:
                del self._options[option][slot]
                if not self._options[option]:
                    del self._options[option]
            self._of_slot[slot].clear()
            self._layout.remove(slot, giver)
            self._layout.add(slot, taker)
            self._enter(slot)

    def next(self) -> list[Step]:
        """A circle of steps that gains a datacenter; empty if there is none."""
        edges = list(self._edges())
        vertices = self._outside + 1 + self._layout.number_of_datacenters
        distance = [0] * vertices
        before: list[tuple[int, Slots]] = [(-1, ())] * vertices
        for _ in range(vertices):
            changed = False
            for giver, cost, slots, takers in edges:
                reached = distance[giver] + cost
                for taker in takers:
                    if reached < distance[taker]:
                        distance[taker] = reached
                        before[taker] = (giver, slots)
                        changed = True
            if not changed:
                break
            if circle := _circle(before):
                steps = self._cut(self._steps(circle))
                return steps if self._worth(steps) > 0 else []
        return []

    def _edges(self) -> Iterator[tuple[int, int, Slots, list[int]]]:
        """For each edge: the vertex that gives, the cost, the slots of which one goes, and the vertices that may get
        it.
        """
        layout, nodes = self._layout, range(self._outside)
        for (giver, there, cost), slots in self._options.items():
            left, able = self._nodes_of[there], []
            for slot in slots:
                able.append(slot)
                left = [node for node in left if node != giver and node in layout.holders[slot]]
                if not left:
                    break
            if not left:
                yield giver, cost, tuple(able), [self._outside + 1 + there]
            else:
                # The nodes in `left` hold all of the slots.
                yield giver, cost, tuple(able), [node for node in self._nodes_of[there] if node not in left]
        for there, members in enumerate(self._nodes_of):
            yield self._outside + 1 + there, 0, (), members
        yield self._outside, 0, (), [node for node in nodes if layout.count(node) > self._limits[node].low]
        for node in nodes:
            if layout.count(node) < self._limits[node].high:
                yield node, 0, (), [self._outside]

    def _steps(self, circle: list[tuple[int, Slots]]) -> list[Step]:
        """The steps on a circle of vertices, each with the slots of which one goes on from it."""
        at_nodes = [(vertex, slots) for vertex, slots in circle if vertex <= self._outside]
        steps = []
        for (giver, slots), (taker, _) in zip(at_nodes, (*at_nodes[1:], at_nodes[0]), strict=True):
            if slots and giver != taker:
                steps.append((next(slot for slot in slots if taker not in self._layout.holders[slot]), giver, taker))
        return steps

    def _worth(self, steps: list[Step]) -> int:
        """How many datacenters are gained, if no slot is there twice."""
        crowds = self._layout.crowds
        return sum(crowds(slot, giver) - crowds(slot, taker, giver) for slot, giver, taker in steps)

    def _cut(self, steps: list[Step]) -> list[Step]:
        """The circle, or a part of it that gains, with no slot there twice: if a slot is there twice, the circle is cut
        in two.
        """
        seen: dict[int, int] = {}
        for later, (slot, giver, taker) in enumerate(steps):
            if slot in seen:
                earlier = seen[slot]
                inner = [(slot, giver, steps[earlier][2]), *steps[earlier + 1 : later]]
                outer = [*steps[:earlier], (slot, steps[earlier][1], taker), *steps[later + 1 :]]
                parts = [[step for step in part if step[1] != step[2]] for part in (inner, outer)]
                return max((self._cut(part) for part in parts), key=self._worth)
            seen[slot] = later
        return steps


def _circle(before: list[tuple[int, Slots]]) -> list[tuple[int, Slots]]:
    """A circle among the edges by which vertices were reached last: each vertex, and the slots of the edge from it."""
    seen = [-1] * len(before)
    for start in range(len(before)):
        vertex = start
        while vertex >= 0 and seen[vertex] < 0:
            seen[vertex] = start
            vertex = before[vertex][0]
        if vertex >= 0 and seen[vertex] == start:
            circle: list[tuple[int, Slots]] = []
            at = vertex
            while not circle or at != vertex:
                circle.append(before[at])
                at = before[at][0]
            return circle[::-1]
    return []
