"""Missing copies get their nodes: the nodes with the fewest copies, never two on a node, and over datacenters.

First surplus copies go, for instance after the number of replicas was lowered; a leader's copy is never one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from topom.placement.planner.layout import Layout
from topom.placement.planner.watermarks import Band

LOOKED_AT = 32
"""How many nodes are compared for one copy."""


def trim(layout: Layout, copies: int) -> None:
    """Drop a slot's copies beyond ``copies``, at the nodes that hold most."""
    for slot, holders in enumerate(layout.holders):
        while len(holders) > copies:
            free = [node for node in holders if node != layout.leaders[slot]]
            layout.remove(slot, max(free, key=lambda node: (layout.crowds(slot, node), layout.count(node), node)))


def fill(layout: Layout, copies: int, leads: Sequence[int], most: int) -> None:
    """Give every slot ``copies`` copies, so that loads are as equal as the missing copies can make them.

    A node's load is the number of its copies less its part of ``leads``. If ``leads`` has the slots that nodes lead,
    their followers are evened out; if it has zeros, all their copies are. A node may get more than its part, up to
    ``most`` copies, if the slot would otherwise have two in one datacenter.
    """
    lacking = [slot for slot, holders in enumerate(layout.holders) if len(holders) < copies]
    missing = sum(copies - len(layout.holders[slot]) for slot in lacking)
    if not missing:
        return
    quota = _quotas([layout.count(node) - leads[node] for node in range(layout.number_of_nodes)], missing)
    heap = [(-room, _scattered(node, room), node) for node, room in enumerate(quota) if room > 0]
    heapify(heap)
    roomy = [set[int]() for _ in range(max(layout.datacenters) + 1)]
    for node, datacenter in enumerate(layout.datacenters):
        roomy[datacenter].add(node)
    lacking.sort(key=lambda slot: (len(layout.holders[slot]), slot))
    for slot in lacking:
        while len(layout.holders[slot]) < copies:
            node = _pick(layout, slot, heap)
            if layout.crowds(slot, node):
                node = _elsewhere(layout, slot, most, roomy, node)
            layout.add(slot, node)
    even_out(layout, leads)


def _quotas(counts: Sequence[int], missing: int) -> list[int]:
    """How many copies each node gets, like water that is poured where it is lowest."""
    low, high = min(counts), max(counts) + missing
    while low < high:
        level = (low + high + 1) // 2
        if sum(max(level - count, 0) for count in counts) <= missing:
            low = level
        else:
            high = level - 1
    quota = [max(low - count, 0) for count in counts]
    left = missing - sum(quota)
    for node in sorted(range(len(counts)), key=lambda node: (counts[node] + quota[node], node))[:left]:
        quota[node] += 1
    return quota


def _scattered(node: int, room: int) -> int:
    """An order of nodes with the same room that does not keep neighbours together, and is the same each time."""
    return (node * 0x9E3779B1 + room * 0x85EBCA6B) * 0xC2B2AE35 >> 7 & 0xFFFFFF


def _pick(layout: Layout, slot: int, heap: list[tuple[int, int, int]]) -> int:
    """A node for another copy of the slot; its quota, in ``heap``, goes down by one."""
    taken: list[tuple[int, int, int]] = []
    best: tuple[bool, int, int, int] | None = None
    looked_at = 0
    while heap and looked_at < LOOKED_AT:
        entry = heappop(heap)
        taken.append(entry)
        node = entry[2]
        if node in layout.holders[slot]:
            continue
        rank = (layout.crowds(slot, node), layout.entangled(slot, node), looked_at, node)
        looked_at += 1
        if best is None or rank < best:
            best = rank
        if best[:2] == (False, 0):
            break
    for entry in taken:
        room, _, node = entry
        if best is None or node != best[3]:
            heappush(heap, entry)
        elif room < -1:
            heappush(heap, (room + 1, _scattered(node, -room - 1), node))
    if best is not None:
        return best[3]
    # Every node with room has a copy already: the placed copies are evened out in the end.
    free = (node for node in range(layout.number_of_nodes) if node not in layout.holders[slot])
    return min(free, key=lambda node: (layout.count(node), node))


def _elsewhere(layout: Layout, slot: int, most: int, roomy: list[set[int]], otherwise: int) -> int:
    """The node with the fewest copies in a datacenter that has none of the slot's, if one can take it.

    ``roomy`` holds the nodes with fewer than ``most`` copies, by datacenter, and some that have more by now.
    """
    taken = {layout.datacenters[holder] for holder in layout.holders[slot]}
    able: list[int] = []
    for datacenter, nodes in enumerate(roomy):
        if datacenter not in taken:
            nodes -= {node for node in nodes if layout.count(node) >= most}
            able.extend(nodes)
    return min(able, key=lambda node: (layout.count(node), node), default=otherwise)


def even_out(layout: Layout, leads: Sequence[int], leaders: Sequence[int] = (), held: Band | None = None) -> None:
    """Move new copies from nodes with more to nodes with fewer. It costs nothing, because none of them is made yet.

    Copies of ``leaders``, by slot, stay where they are. If there are several datacenters, nodes keep within ``held``.
    """
    kept_within = held if held is not None and layout.several_datacenters else Band(0, 1 << 60)
    load = [layout.count(node) - leads[node] for node in range(layout.number_of_nodes)]
    order = sorted(range(layout.number_of_nodes), key=lambda node: (load[node], node))
    stuck: set[int] = set()
    while load[order[-1]] - load[order[0]] > 1:
        found = None
        for source in reversed(order):
            if source not in stuck and layout.count(source) > kept_within.low:
                fresh = [
                    slot
                    for slot in layout.held[source]
                    if source not in layout.kept[slot] and not (leaders and leaders[slot] == source)
                ]
                able = [node for node in order[:LOOKED_AT] if layout.count(node) < kept_within.high]
                found = _relocation(layout, source, fresh, able, load)
                if found is not None:
                    break
                stuck.add(source)
        if found is None:
            return
        slot, source, target = found
        layout.remove(slot, source)
        layout.add(slot, target)
        load[source] -= 1
        load[target] += 1
        order.sort(key=lambda node: (load[node], node))


def pass_on(layout: Layout, held: Band) -> None:
    """Pass new copies from node to node, if that brings nodes within ``held`` and single moves cannot.

    It costs nothing, and saves the copies that would have to move instead.
    """
    counts = layout.count
    nodes = range(layout.number_of_nodes)
    while True:
        steps = _chain(
            layout, [node for node in nodes if counts(node) > held.high], lambda node: counts(node) < held.high
        ) or _chain(layout, [node for node in nodes if counts(node) > held.low], lambda node: counts(node) < held.low)
        if not steps:
            return
        for slot, source, target in steps:
            layout.remove(slot, source)
            layout.add(slot, target)


def _chain(layout: Layout, sources: Sequence[int], is_end: Callable[[int], bool]) -> list[tuple[int, int, int]]:
    """The shortest way for new copies from a source to an end: steps of a slot, source and target; empty if none."""
    reached: dict[int, tuple[int, int, int] | None] = dict.fromkeys(sources)
    left = [node for node in range(layout.number_of_nodes) if node not in reached]
    queue = deque(reached)
    while queue:
        node = queue.popleft()
        for slot in layout.held[node]:
            if node in layout.kept[slot]:
                continue
            crowded = layout.crowds(slot, node)
            able = [one for one in left if one not in layout.holders[slot]]
            for target in able if crowded else [one for one in able if not layout.crowds(slot, one, node)]:
                reached[target] = (slot, node, target)
                left.remove(target)
                if is_end(target):
                    steps = []
                    while (step := reached[target]) is not None:
                        steps.append(step)
                        target = step[1]
                    return steps
                queue.append(target)
    return []


def _relocation(
    layout: Layout, source: int, fresh: Sequence[int], order: Sequence[int], load: Sequence[int]
) -> tuple[int, int, int] | None:
    """A new copy at the source that may be made at a node with less load instead: slot, source and target."""
    for target in order:
        if load[source] - load[target] < 2:
            return None
        for slot in fresh:
            if target not in layout.holders[slot] and layout.crowds(slot, target, source) <= layout.crowds(
                slot, source
            ):
                return slot, source, target
    return None
