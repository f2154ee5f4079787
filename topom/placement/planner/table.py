"""What is placed where: the objects that the planner takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topom.errors import Invalid


class InvalidPlacement(Invalid):
    """What should be placed, or the rules for it, contradict themselves."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that holds copies of slots.

    Attributes:
        name: its name in tables.
        datacenter: where it is; empty if that was not said, which is a datacenter like any other.
    """

    name: str
    datacenter: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Which nodes hold a slot.

    Attributes:
        leader: the node whose copy gets the writes; empty if there is none.
        followers: the nodes with the other copies.
    """

    leader: str = ""
    followers: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[str, ...]:
        """All nodes with a copy."""
        return (self.leader, *self.followers) if self.leader else self.followers


@dataclass(frozen=True, slots=True)
class Rules:
    """How slots are placed.

    Attributes:
        replicas: how many copies each slot has, with the leader's; if there are fewer nodes, each has one.
        watermark: how many percent a node's leaders and followers may be off the even share at rest.
        most_leader_changes: how many leaders a round replaces at most, in slots whose leader is there.
        most_follower_changes: how many followers a round moves at most, in slots that lack none.
        strict: whether the watermarks are rounded towards the even share, and not away from it as SOFARegistry does.
            With few slots, even a very uneven node is within the latter.
    """

    replicas: int
    watermark: int = 10
    most_leader_changes: int = 6
    most_follower_changes: int = 10
    strict: bool = False

    def check(self) -> None:
        """Raise :class:`InvalidPlacement` for rules that make no sense."""
        if self.replicas < 1:
            raise InvalidPlacement(
                f"replicas is {self.replicas}; it counts all copies of a slot, its leader's too, so 1 at least"
            )
        if not 0 <= self.watermark <= 100:
            raise InvalidPlacement(f"the watermark is {self.watermark}; it is a percentage, from 0 to 100")
        for name, limit in (("leader", self.most_leader_changes), ("follower", self.most_follower_changes)):
            if limit < 1:
                raise InvalidPlacement(f"the limit of {name} changes a round is {limit}; it has to be 1 or more")


@dataclass(frozen=True, slots=True)
class Promotion:
    """A follower becomes the slot's leader; the former leader, if it is there, becomes a follower."""

    slot: int
    node: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A node gets a copy of the slot.

    Attributes:
        leads: whether it leads the slot once it has the copy.
        instead_of: the node whose copy goes when the new one is whole; empty if a copy was missing.
    """

    slot: int
    node: str
    leads: bool = False
    instead_of: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """Changes made side by side: none waits for another of the same round, except changes of one slot, which go in
    order.

    If a slot lacks a leader or followers, the first round has all missing ones, however many they are.
    """

    promotions: tuple[Promotion, ...] = ()
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A table at rest, and the rounds that lead to it.

    Attributes:
        table: which nodes hold each slot in the end, by ascending slot.
        rounds: the rounds in order; empty if nothing has to change.
    """

    table: Mapping[int, Copies]
    rounds: tuple[Round, ...] = field(default=())

    @property
    def promotions(self) -> int:
        """How many followers become leaders; no data is copied."""
        return sum(len(one.promotions) for one in self.rounds)

    @property
    def leader_copies(self) -> int:
        """How many nodes had no copy of a slot and lead it as soon as they have one."""
        return sum(copy.leads for one in self.rounds for copy in one.copies)

    @property
    def follower_copies(self) -> int:
        """How many nodes without a copy of a slot become followers, with those that are promoted in a later round."""
        return sum(not copy.leads for one in self.rounds for copy in one.copies)


def check_nodes(nodes: Sequence[Node]) -> None:
    """Raise :class:`InvalidPlacement` unless there are nodes, each with a name of its own."""
    if not nodes:
        raise InvalidPlacement("there is no node, so no slot can be placed; name at least one")
    seen: set[str] = set()
    for node in nodes:
        if not node.name:
            raise InvalidPlacement("a node has no name")
        if node.name in seen:
            raise InvalidPlacement(f"node {node.name} is listed more than once")
        seen.add(node.name)
