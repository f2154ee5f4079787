"""Replicas that were found to differ from their masters: what is known against them, as changes of what is stored.

It is stored before anybody is told that a check is over, so the next leader knows it. Such a replica is not promoted,
and no proxy reads from it (the slot table says so). That ends when an operator has had it filled anew
(:mod:`topom.copies.joining` does it), when a later check that compared every key finds no difference, or when it has
left its group.
**bounded**: an entry for each replica at most, which names :data:`MOST_NAMED` of the slots.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from slots import ranges
from slots.counting import counted
from topom.cluster.state import ClusterState, Differs, Joining
from topom.reasons import Kind, Reason

MOST_NAMED = 16
"""How many of the slots in which a replica differs are named. Of the others only the number is kept."""


@dataclass(slots=True)
class SlotSum:
    """For one slot: the number of keys compared, and both servers' digests.

    The replica's covers keys that only it has, too.
    """

    keys: int = 0
    master: int = 0
    replica: int = 0


def found(server: str, group: int, keys: int, slots: Mapping[int, SlotSum], at: float) -> Differs:
    """What a check has found against a replica. The check ended ``at``, or goes on."""
    wrong = sorted(slot for slot, total in slots.items() if total.master != total.replica)
    return Differs(server, group, keys, len(wrong), ranges.show(wrong[:MOST_NAMED]), at)


def marked(state: ClusterState, new: Differs) -> ClusterState:
    """The state in which this is known; unchanged if the server is not a replica of that group."""
    group = state.table.groups.get(new.group)
    if group is None or new.server not in group.replicas:
        return state
    return replace(state, differing={**state.differing, new.server: new})


def cleared(state: ClusterState, server: str, whole: bool) -> ClusterState:
    """The state after a check that found no difference; ``whole`` is whether it compared every key."""
    return without(state, {server}) if whole and server in state.differing else state


def to_fill(state: ClusterState, servers: Collection[str]) -> ClusterState:
    """The state in which these replicas are to forget what they have and are to be filled anew."""
    return replace(
        state, joining={**state.joining, **{server: Joining(server, wipe=True, anew=True) for server in servers}}
    )


def kept(old: ClusterState, new: ClusterState) -> ClusterState:
    """``new`` without what was known against servers that have stopped being replicas of their group.

    The table of the outcome says which replicas are not to be read. If that changes the table, its epoch is
    ``new.version``.
    """
    if old.differing is new.differing and old.table.groups is new.table.groups:
        return new
    groups = new.table.groups
    gone = {
        server
        for server, entry in new.differing.items()
        if entry.group not in groups or server not in groups[entry.group].replicas
    }
    new = without(new, gone) if gone else new
    unread = {group_id: frozenset[str]() for group_id in groups}
    for server, entry in new.differing.items():
        unread[entry.group] |= {server}
    changed = {
        group_id: replace(group, unread=unread[group_id])
        for group_id, group in groups.items()
        if group.unread != unread[group_id]
    }
    if not changed:
        return new
    # The same change may have given the table this epoch already.
    return replace(new, table=replace(new.table, epoch=new.version, groups={**groups, **changed}))


def without(state: ClusterState, servers: Collection[str]) -> ClusterState:
    """The state in which nothing is known against these servers."""
    return replace(state, differing={name: entry for name, entry in state.differing.items() if name not in servers})


@dataclass(frozen=True, slots=True)
class Against:
    """Why a replica's copy is not to be relied on, in words, and what to do. ``filled``: it is being filled anew."""

    what: str
    to_do: str
    filled: bool = False


def against(state: ClusterState, server: str) -> Against | None:
    """Why a replica's copy is not to be relied on; None if nothing is known against it."""
    if is_filled(state, server):
        return Against(f"{server} is being filled anew by its master", "promote it when it is", filled=True)
    entry = state.differing.get(server)
    if entry is None:
        return None
    told = f"{server} differs from its master in {counted(entry.keys, 'key')}"
    if entry.slots:
        told += f", in {counted(entry.slots, 'slot')} ({entry.named}{', ...' if entry.slots > MOST_NAMED else ''})"
    resync = f"'slotferry digest resync {entry.group}'"
    return Against(
        f"{told}, as a digest check found",
        "find out which of the two is right: it may be the master that lost something. If the master is, fill "
        f"{server} anew with {resync}, then promote it",
    )


def is_filled(state: ClusterState, server: str) -> bool:
    """Whether a replica is being filled anew, or is to be."""
    entry = state.joining.get(server)
    return entry is not None and entry.anew


class Differing:
    """What is known against replicas. Code that shows it and code that begins a check ask here.

    Args:
        state: gives what is stored now.
    """

    def __init__(self, state: Callable[[], ClusterState]) -> None:
        self._state = state

    def differs(self, server: str) -> bool:
        """Whether something is known against a server."""
        return self.of(server) is not None

    def of(self, server: str) -> Differs | None:
        """What is known against a server; None if nothing is."""
        return self._state().differing.get(server)

    @property
    def entries(self) -> list[Differs]:
        """All that is known against replicas."""
        return list(self._state().differing.values())

    def is_filled(self, server: str) -> bool:
        """Whether a replica is being filled anew, or is to be."""
        return is_filled(self._state(), server)

    def problem(self, server: str) -> str | None:
        """As :meth:`reason`, in words."""
        reason = self.reason(server)
        return None if reason is None else str(reason)

    def reason(self, server: str) -> Reason | None:
        """Why a server's copy is not to be relied on, and what to do; None if nothing is known against it."""
        found = against(self._state(), server)
        if found is None:
            return None
        entry = self.of(server)
        since = entry.at if entry is not None else 0.0
        return Reason(Kind.BUSY if found.filled else Kind.DATA, found.what, since, found.to_do)
