"""Moves copies from nodes that hold too many to nodes that hold too few: as few copies as possible.

A node that holds more than another always has a slot that the other lacks, so a copy can go directly. One copy that
relieves one node and fills another is never worse than two.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, nsmallest

from topom.placement.planner.layout import Layout
from topom.placement.planner.watermarks import Band

LOOKED_AT = 64
"""How many copies are compared for one move."""
SOURCES_LOOKED_AT = 8
"""How many nodes are compared if the first one's copies would lose their slots a datacenter."""


def moves_into(counts: Sequence[int], held: Band) -> int:
    """How many moves bring nodes with so many copies within ``held``."""
    too_many = sum(max(count - held.high, 0) for count in counts)
    too_few = sum(max(held.low - count, 0) for count in counts)
    return max(too_many, too_few)


def move(layout: Layout, held: Band, fewest_led: int) -> None:
    """Bring the number of copies of every node within ``held``.

    In the end every node should lead at least ``fewest_led`` slots. A node that leads fewer gets copies of slots whose
    leaders lead most, so that it can take over from them.
    """
    nodes = range(layout.number_of_nodes)
    leads = [0] * layout.number_of_nodes
    followed: list[dict[int, None]] = [{} for _ in nodes]
    for slot, holders in enumerate(layout.holders):
        leader = layout.leaders[slot]
        if leader >= 0:
            leads[leader] += 1
        for node in sorted(holders):
            if node != leader:
                followed[node][slot] = None
    wanted = [max(fewest_led - count, 0) for count in leads]

    def choose(source: int, target: int) -> int:
        return _choose(layout, source, target, followed[source], leads, wanted[target] > 0)

    def source_for(target: int, fullest: int) -> int:
        """The fullest node, or the next one that can give a copy without a lost datacenter for its slot."""
        if not layout.several_datacenters or layout.count(fullest) > held.high:
            return fullest
        able = (node for node in nodes if layout.count(node) > max(held.low, layout.count(target)))
        for node in nsmallest(SOURCES_LOOKED_AT, able, key=lambda node: (-layout.count(node), node)):
            if _datacenters_lost(layout, choose(node, target), node, target) <= 0:
                return node
        return fullest

    def carry(source: int, target: int) -> None:
        slot = choose(source, target)
        layout.remove(slot, source)
        layout.add(slot, target)
        followed[source].pop(slot, None)
        followed[target][slot] = None
        leader = layout.leaders[slot]
        if wanted[target] > 0 and leader >= 0:
            wanted[target] -= 1
            leads[leader] -= 1

    fullest = [(-layout.count(node), node) for node in nodes]
    emptiest = [(layout.count(node), node) for node in nodes]
    heapify(fullest)
    heapify(emptiest)
    while True:
        most, least = _top(layout, fullest, -1), _top(layout, emptiest, 1)
        if held.high >= layout.count(most) and held.low <= layout.count(least):
            return
        source = source_for(least, most)
        carry(source, least)
        for node in (source, least):
            heappush(fullest, (-layout.count(node), node))
            heappush(emptiest, (layout.count(node), node))


def _top(layout: Layout, heap: list[tuple[int, int]], sign: int) -> int:
    """The node at the head of the heap; outdated entries are dropped."""
    while heap[0][0] != sign * layout.count(heap[0][1]):
        heappop(heap)
    return heap[0][1]


def _datacenters_lost(layout: Layout, slot: int, source: int, target: int) -> int:
    return layout.crowds(slot, target, source) - layout.crowds(slot, source)


def _choose(
    layout: Layout, source: int, target: int, followed: dict[int, None], leads: list[int], to_lead: bool
) -> int:
    """The slot whose copy goes: one that the source only follows, if there is any, because a leader's copy costs a
    promotion.
    """
    best: tuple[int, int, int, int] | None = None
    for slots in (followed, layout.held[source]):
        looked_at = 0
        for slot in slots:
            if target in layout.holders[slot]:
                continue
            leader = layout.leaders[slot]
            rank = (
                _datacenters_lost(layout, slot, source, target),
                -leads[leader] if to_lead and leader >= 0 else 0,
                layout.entangled(slot, target),
                slot,
            )
            if best is None or rank < best:
                best = rank
            looked_at += 1
            if looked_at == LOOKED_AT:
                break
        if best is not None:
            return best[-1]
    raise AssertionError("a node that holds more than another has a slot that the other has not")
