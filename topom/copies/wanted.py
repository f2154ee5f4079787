"""What is wanted of a server: that it holds a copy of a group. A part of topom that wants copies is an :class:`Asker`.

There are three askers: servers that join a group (:mod:`topom.copies.joining`), servers that a placement takes from the
pool (:mod:`topom.placement.copying`), and the servers of a group with a new master (:mod:`topom.masters.followers`).
One engine makes what all of them want (:mod:`topom.copies.filling`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from topom.cluster.state import ClusterState
from topom.errors import TopomError
from topom.reasons import Kind, Reason, Reasons
from topom.servers.lastcopy import As


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One server that is to hold a whole copy of what a master has.

    Attributes:
        group: id of the master's group.
        told_as: in which role the server is told to follow (**last-copy**).
        nodes: the nodes that make no other copy meanwhile (**bounded**); none if the server holds most of the data.
        takes_nodes: whether ``nodes`` are taken from the moment that the copy is wanted, and not only while it is made.
        near: how many bytes a whole copy may be behind; None for any number.
        anew: whether the server is to forget what it has.
        told: with ``anew``: run id of the process that was told to forget; empty if none was.
        copy_of: id of the group of which the server has an old copy; None if it has none.
        directly: whether the server has to follow the master itself, by this address, and not another replica.
        known: whether the proxies and the Sentinels know the server as a server of this group already.
        also_a_master: whether the server is told to follow even if it says that it is a master itself.
        patient: whether a server that follows another address is given time: that may be the same master.
        sure: run id of the process that a change of masters made the master; empty if there was none.
        entry: the stored entry that asks for the copy. If an equal entry is stored again, that asks for another one.
    """

    server: str
    master: str
    group: int
    told_as: As
    nodes: frozenset[str] = frozenset()
    takes_nodes: bool = False
    near: int | None = None
    anew: bool = False
    told: str = ""
    copy_of: int | None = None
    directly: bool = False
    known: bool = False
    also_a_master: bool = True
    patient: bool = False
    sure: str = ""
    entry: object = field(default=None, compare=False)

    def is_same(self, other: Wanted) -> bool:
        """Whether both are one copy that is wanted."""
        return self == other and self.entry is other.entry


class Asker(ABC):
    """A part of topom that wants copies. The engine calls its methods; they may be called again for the same copy.

    Args:
        reasons: of copies that wait, with the name of the log's line about them.
    """

    def __init__(self, reasons: Reasons[str]) -> None:
        self.reasons = reasons
        """By address: why a server is not whole yet."""

    @abstractmethod
    def wanted(self, state: ClusterState) -> Sequence[Wanted]:
        """The copies that are wanted in this state, one for a server at most. Pure."""

    def held(self) -> Reason | None:
        """Why nothing is done for these copies now; None if something is done."""
        return None

    def held_whole(self) -> Reason | None:
        """Why nothing is done now for copies that are whole; None if something is done."""
        return self.held()

    def waits(self, copy: Wanted, why: Reason | TopomError) -> None:
        """Note why a copy is not whole yet."""
        self.reasons.waits(copy.server, why, server=copy.server, group=copy.group)

    async def told(self, copy: Wanted, run_id: str) -> None:
        """This process was told to follow. Raises as :meth:`topom.cluster.ledger.Ledger.change`."""
        self.waits(copy, Reason(Kind.BUSY, f"it was told to follow {copy.master}"))

    async def being_filled(self, copy: Wanted, why: Reason | TopomError) -> None:
        """The server follows the master and is not whole yet. An earlier topom may have told it. Raises likewise."""
        self.waits(copy, why)

    async def whole(self, copies: Sequence[Wanted]) -> None:
        """These copies are whole. Raises likewise."""
        for copy in copies:
            self.reasons.over(copy.server)
