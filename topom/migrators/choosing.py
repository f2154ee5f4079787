"""Which of the migrators makes a copy: one near the source, for it reads all that the source has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Candidate(Protocol):
    """What is looked at of a migrator."""

    @property
    def own(self) -> bool:
        """Whether it runs on topom's machine, as its child."""

    @property
    def node(self) -> str:
        """The node that it runs on; empty if nobody said."""

    @property
    def datacenter(self) -> str:
        """Its datacenter; empty if nobody said."""

    @property
    def load(self) -> int:
        """How many copies it has."""

    @property
    def id(self) -> int:
        """Its id."""


One = TypeVar("One", bound=Candidate)


def choose(candidates: Iterable[One], node: str, datacenter: str) -> One | None:
    """The one for a copy from a server of this node and datacenter; None if there is none.

    topom's child comes last, then the nearest first, then the one with the fewest copies.
    """

    def far(one: One) -> tuple[bool, bool, bool, int, int]:
        on_node = bool(node) and one.node == node
        near = bool(datacenter) and one.datacenter == datacenter
        return one.own, not on_node, not near, one.load, one.id

    return min(candidates, key=far, default=None)
