"""Whether a replica holds a whole copy of what its master has, by what both say; and the record of why it does not.

All that need a whole copy ask here: joining, placement, leaving, changes of masters. :mod:`topom.masters.choice`
decides which server may become the master with such a copy, or with less. Both say why not by the same record, a
:class:`Refusal`. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from slots.group import Group
from topom.cluster import differing
from topom.cluster.state import ClusterState
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Replication

Said = Mapping[str, Replication | ServerFailed]
"""What each of several servers says of its replication, by address, or why it does not."""


class Why(StrEnum):
    """The kinds of refusals."""

    LEAVING = "leaving"
    """It is on its way out."""
    TWO_NAMES = "two names"
    """topom has it by another address, too (**run-id**)."""
    ANEW = "anew"
    """It is being filled anew, as an operator said."""
    DIFFERS = "differs"
    """A digest check found that it differs from its master."""
    JOINING = "joining"
    """It was never seen whole."""
    FILLING = "filling"
    """It was told to follow its master again, and was not seen whole since."""
    SILENT = "silent"
    """It does not answer."""
    IS_MASTER = "is master"
    """It says that it is a master itself."""
    NO_LINK = "no link"
    """It is not connected to its master, or is just being filled."""
    PARTIAL = "partial"
    """It may hold a part of a copy."""
    OTHER_STREAM = "other stream"
    """It is in another stream of writes than its master."""
    BEHIND = "behind"
    """It lacks too much of what its master had."""
    LINK_LOST = "link lost"
    """It had lost its link before its master fell silent, and nobody knows what the master wrote in between."""
    MASTER_SILENT = "master silent"
    """The master does not answer."""
    MASTER_FOLLOWS = "master follows"
    """The master says that it is a replica."""
    MASTER_ANSWERS = "master answers"
    """A server that should be gone answers."""
    MASTER_HEARD = "master heard"
    """A replica still hears from the master."""
    MASTER_UNKNOWN = "master unknown"
    """Nobody knows how far the master was."""
    MASTER_CHANGED = "master changed"
    """The group has another master now."""
    LAST_COPY = "last copy"
    """No other server is known to have as much (**last-copy**)."""
    NOBODY = "nobody"
    """Every replica is refused, for reasons of its own."""


KINDS: Mapping[Why, Kind] = {
    Why.LEAVING: Kind.OPERATOR,
    Why.TWO_NAMES: Kind.OPERATOR,
    Why.ANEW: Kind.BUSY,
    Why.DIFFERS: Kind.DATA,
    Why.JOINING: Kind.DATA,
    Why.FILLING: Kind.BUSY,
    Why.SILENT: Kind.SERVER,
    Why.IS_MASTER: Kind.SERVER,
    Why.NO_LINK: Kind.BUSY,
    Why.PARTIAL: Kind.DATA,
    Why.OTHER_STREAM: Kind.DATA,
    Why.BEHIND: Kind.DATA,
    Why.LINK_LOST: Kind.DATA,
    Why.MASTER_SILENT: Kind.SERVER,
    Why.MASTER_FOLLOWS: Kind.SERVER,
    Why.MASTER_ANSWERS: Kind.SERVER,
    Why.MASTER_HEARD: Kind.SERVER,
    Why.MASTER_UNKNOWN: Kind.DATA,
    Why.MASTER_CHANGED: Kind.BUSY,
    Why.LAST_COPY: Kind.DATA,
    Why.NOBODY: Kind.DATA,
}
"""What has to change before the server is not refused any more."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a server is not a whole copy, or is not to be the master of its group.

    ``server`` is the one that it is about, ``what`` a sentence without its full stop, ``to_do`` what an operator can do
    about it, empty if it only has to pass.
    """

    kind: Why
    server: str
    what: str
    to_do: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.to_do}" if self.to_do else self.what

    @property
    def reason(self) -> Reason:
        """This refusal as a reason to wait."""
        return Reason(KINDS[self.kind], self.what, to_do=self.to_do)


def together(refused: Iterable[Refusal]) -> tuple[str, str]:
    """What several refusals say, and what can be done about them, each once."""
    found = list(dict.fromkeys(refused))
    todo = dict.fromkeys(refusal.to_do for refusal in found if refusal.to_do)
    return "; ".join(dict.fromkeys(refusal.what for refusal in found)), "; ".join(todo)


def copy_known_bad(state: ClusterState, server: str) -> Refusal | None:
    """Why a replica's copy is not to be relied on, whatever it says; None if nothing is known against it."""
    found = differing.against(state, server)
    if found is None:
        return None
    return Refusal(Why.ANEW if found.filled else Why.DIFFERS, server, found.what, found.to_do)


def no_master(master: str, ahead: Replication | ServerFailed) -> Refusal | None:
    """Why no copy of a group can be judged now: its master does not say that it is one. None if it does.

    Without that, nobody knows what a whole copy has to hold.
    """
    if isinstance(ahead, ServerFailed):
        what = f"{master}, the master of its group, does not answer: {ahead.what}"
        return Refusal(Why.MASTER_SILENT, master, what, ahead.to_do)
    if not ahead.is_master:
        what = f"{master} is the master of its group and says that it is a replica itself"
        return Refusal(Why.MASTER_FOLLOWS, master, what)
    return None


def copy_refused(
    address: str,
    master: str,
    ahead: Replication | ServerFailed,
    behind: Replication | ServerFailed,
    near: int | None = None,
) -> Refusal | None:
    """Why a replica is not a whole copy; None if it is one.

    Args:
        address: the address of the replica, which says ``behind`` of itself.
        master: the address of its master, which says ``ahead``.
        near: how many bytes it may be behind; None for any number.
    """
    trouble = no_master(master, ahead)
    if trouble is not None or isinstance(ahead, ServerFailed):
        return trouble
    if isinstance(behind, ServerFailed):
        return Refusal(Why.SILENT, address, behind.what, behind.to_do)
    if behind.is_master:
        return Refusal(Why.IS_MASTER, address, f"{address} is a master itself, not a replica")
    if behind.filling or not behind.link_up:
        return Refusal(Why.NO_LINK, address, f"{address} has no link to its master, or is still being filled")
    if behind.stream != ahead.stream:
        return Refusal(Why.OTHER_STREAM, address, f"{address} is a replica, but not of {master}")
    if near is not None and ahead.offset - behind.offset > near:
        what = f"{address} is {ahead.offset - behind.offset} bytes behind its master"
        return Refusal(Why.BEHIND, address, what)
    return None


def copies_refused(state: ClusterState, group: Group, said: Said, near: int | None = None) -> dict[str, Refusal | None]:
    """For each of a group's servers: why it does not count as a whole copy now; None if it does.

    Args:
        group: a group with a master.
        said: what each of its servers says.
        near: as for :func:`copy_refused`.
    """
    master = group.servers[0]
    trouble = no_master(master, said[master])
    found = {master: trouble}
    for server in group.replicas:
        refusal = trouble or copy_known_bad(state, server)
        found[server] = refusal or copy_refused(server, master, said[master], said[server], near)
    return found
