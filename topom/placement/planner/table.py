"""What is placed where: the words that the planner takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topom.errors import Invalid


class InvalidPlacement(Invalid):
    """What is to be placed, or how, does not hold together."""


@dataclass(frozen=True, slots=True)
class Node:
    """A host that holds copies of slots.

    Attributes:
        name: by which tables name it.
        datacenter: where it is; empty where nobody said so, which is a datacenter like any other.
    """

    name: str
    datacenter: str = ""


@dataclass(frozen=True, slots=True)
class Copies:
    """Who holds a slot.

    Attributes:
        leader: the node whose copy is written to; empty where there is none.
        followers: nodes with further copies.
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
        replicas: copies of each slot, the leader's among them; of fewer nodes each has one.
        watermark: percent by which a node's leaders and followers may be off the even share at rest.
        most_leader_changes: leaders that are replaced a round, of slots whose leader is there.
        most_follower_changes: followers that are moved a round, of slots that lack none.
        strict: whether the watermarks are rounded towards the even share, and not away from it as SOFARegistry does:
            with few slots a node nobody would call even is within the latter.
    """

    replicas: int
    watermark: int = 10
    most_leader_changes: int = 6
    most_follower_changes: int = 10
    strict: bool = False

    def check(self) -> None:
        """Raise :class:`InvalidPlacement` for what cannot be meant."""
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
    """A follower becomes the slot's leader; the leader before it, if it is there, becomes a follower."""

    slot: int
    node: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A node gets a copy of the slot.

    Attributes:
        leads: whether it leads the slot once it has the copy.
        instead_of: the node whose copy goes when the new one is whole; empty where one was missing.
    """

    slot: int
    node: str
    leads: bool = False
    instead_of: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """Changes made side by side: none of them waits for another of the same round, but for those of one slot, in order.

    Of a slot that lacks a leader or followers all missing ones are in the first round, however many they are.
    """

    promotions: tuple[Promotion, ...] = ()
    copies: tuple[Copy, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A table at rest, and the rounds that lead to it.

    Attributes:
        table: who holds each slot in the end, by ascending slot.
        rounds: what is done, in order; empty when nothing has to change.
    """

    table: Mapping[int, Copies]
    rounds: tuple[Round, ...] = field(default=())

    @property
    def promotions(self) -> int:
        """Followers that become leaders; no data is copied."""
        return sum(len(one.promotions) for one in self.rounds)

    @property
    def leader_copies(self) -> int:
        """Leaders on nodes that had no copy of the slot and lead it as soon as they have one."""
        return sum(copy.leads for one in self.rounds for copy in one.copies)

    @property
    def follower_copies(self) -> int:
        """Followers on nodes that had no copy of the slot, including those that are promoted in a later round."""
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
