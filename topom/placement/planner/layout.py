"""Which nodes hold a copy of which slot: the state on which filling and moving work. Nodes are numbers from 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Layout:
    """Copies by slot and by node.

    Attributes:
        kept: for each slot, the nodes that held a copy before and are still there.
        holders: for each slot, the nodes that hold a copy now.
        held: for each node, the slots of which it has a copy, in the order in which it got them.
        leaders: for each slot, the node that led it before; -1 if that node is gone or there was none.
        datacenters: for each node, the number of its datacenter, from 0 on without gaps.
        together: how many slots two nodes both hold, by the lower node times the number of nodes plus the other.
    """

    def __init__(self, kept: Sequence[Iterable[int]], leaders: Sequence[int], datacenters: Sequence[int]) -> None:
        self.kept: list[frozenset[int]] = [frozenset(nodes) for nodes in kept]
        self.leaders = list(leaders)
        self.datacenters = list(datacenters)
        self.number_of_datacenters = max(datacenters, default=0) + 1
        self.several_datacenters = self.number_of_datacenters > 1
        self.number_of_nodes = len(datacenters)
        self.holders: list[set[int]] = [set() for _ in kept]
        self.held: list[dict[int, None]] = [{} for _ in datacenters]
        self.together: dict[int, int] = {}
        for slot, nodes in enumerate(self.kept):
            for node in sorted(nodes):
                self.add(slot, node)

    def add(self, slot: int, node: int) -> None:
        """Give the node a copy of the slot."""
        self._pair(slot, node, 1)
        self.holders[slot].add(node)
        self.held[node][slot] = None

    def remove(self, slot: int, node: int) -> None:
        """Remove the node's copy of the slot."""
        self.holders[slot].remove(node)
        del self.held[node][slot]
        self._pair(slot, node, -1)

    def _pair(self, slot: int, node: int, change: int) -> None:
        size = self.number_of_nodes
        for other in self.holders[slot]:
            pair = node * size + other if node < other else other * size + node
            self.together[pair] = self.together.get(pair, 0) + change

    def count(self, node: int) -> int:
        """The number of copies at the node."""
        return len(self.held[node])

    def entangled(self, slot: int, node: int) -> int:
        """How many slots the node shares with the holders of this one.

        If that is small, the slots of a node that leaves find their next leaders on many nodes and not on a few.
        """
        size, found = self.number_of_nodes, 0
        for other in self.holders[slot]:
            if other != node:
                pair = node * size + other if node < other else other * size + node
                found += self.together.get(pair, 0)
        return found

    def crowds(self, slot: int, node: int, leaving: int = -1) -> bool:
        """Whether another holder of the slot, except ``leaving``, is in the node's datacenter, if there are several."""
        if not self.several_datacenters:
            return False
        home = self.datacenters[node]
        return any(
            self.datacenters[other] == home for other in self.holders[slot] if other != node and other != leaving
        )

    def crowded(self) -> int:
        """Copies that share a datacenter with another of their slot."""
        if not self.several_datacenters:
            return 0
        return sum(len(holders) - len({self.datacenters[node] for node in holders}) for holders in self.holders)
