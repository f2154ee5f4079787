"""Replicas that were found to differ from their masters: what is known against them, as changes of what is stored.

It is stored before anybody is told that a check is over, so whoever leads next knows it: such a replica is not
promoted, and no proxy reads from it (the slot table says so), until it was filled anew, or a later check that compared
every key found no difference, or it has left its group. **bounded**: an entry for each replica at most, which names
:data:`MOST_NAMED` of the slots.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from slots import ranges
from topom.digests.sums import SlotSum
from topom.state import ClusterState, Differs

MOST_NAMED = 16
"""Slots that are named of those in which a replica differs; of others only the number is kept."""
RESYNCS_MAX = 1
"""How often in a row a replica is filled anew by itself; one that differs again has something wrong that lasts."""


def found(server: str, group: int, keys: int, slots: Mapping[int, SlotSum], at: float, held: bool = False) -> Differs:
    """What a check has found against a replica, which ended ``at`` or goes on."""
    wrong = sorted(slot for slot, total in slots.items() if total.master != total.replica)
    return Differs(server, group, keys, len(wrong), ranges.show(wrong[:MOST_NAMED]), at, held=held)


def marked(state: ClusterState, new: Differs) -> ClusterState:
    """The state in which this is known; unchanged if the server is no replica of that group any more."""
    group = state.table.groups.get(new.group)
    if group is None or new.server not in group.replicas:
        return state
    before = state.differing.get(new.server)
    entry = replace(new, resyncs=before.resyncs) if before is not None else new
    return replace(state, differing={**state.differing, new.server: entry})


def cleared(state: ClusterState, server: str, whole: bool) -> ClusterState:
    """The state after a check that found no difference; ``whole`` is whether it compared every key."""
    entry = state.differing.get(server)
    if entry is None or not (whole or entry.stage == "filled"):
        return state
    return _without(state, {server})


def filling(state: ClusterState, group: int, server: str, by_itself: bool) -> ClusterState:
    """The state in which a replica is being filled anew, whether anything is known against it or not."""
    entry = state.differing.get(server) or Differs(server, group, 0)
    count = entry.resyncs + (1 if by_itself and entry.stage != "filling" else 0)
    return replace(state, differing={**state.differing, server: replace(entry, stage="filling", resyncs=count)})


def not_filling(state: ClusterState, server: str) -> ClusterState:
    """The state in which a replica was not filled anew, after all: what was known against it still is."""
    entry = state.differing.get(server)
    if entry is None or entry.stage != "filling":
        return state
    if not entry.keys:
        return _without(state, {server})
    return replace(state, differing={**state.differing, server: replace(entry, stage="differs")})


def filled(state: ClusterState, server: str) -> ClusterState:
    """The state in which a replica holds a new copy. How often it was filled by itself is remembered."""
    entry = state.differing.get(server)
    if entry is None or entry.stage != "filling":
        return state
    if not entry.resyncs:
        return _without(state, {server})
    return replace(state, differing={**state.differing, server: replace(entry, stage="filled")})


def kept(old: ClusterState, new: ClusterState) -> ClusterState:
    """``new`` without what was known against servers that are no replicas of their group any more.

    Its table says which replicas are not to be read. ``new.version`` is the epoch of a table that has to change.
    """
    if old.differing is new.differing and old.table.groups is new.table.groups:
        return new
    groups = new.table.groups
    gone = {
        server
        for server, entry in new.differing.items()
        if entry.group not in groups or server not in groups[entry.group].replicas
    }
    new = _without(new, gone) if gone else new
    unread = {group_id: frozenset[str]() for group_id in groups}
    for server, entry in new.differing.items():
        if entry.stage != "filled":
            unread[entry.group] |= {server}
    changed = {
        group_id: replace(group, unread=unread[group_id])
        for group_id, group in groups.items()
        if group.unread != unread[group_id]
    }
    if not changed:
        return new
    # The table may have this epoch already, by the same change.
    return replace(new, table=replace(new.table, epoch=new.version, groups={**groups, **changed}))


def _without(state: ClusterState, servers: Collection[str]) -> ClusterState:
    return replace(state, differing={name: entry for name, entry in state.differing.items() if name not in servers})


class Differing:
    """What is known, for those who choose masters.

    Args:
        state: gives what is stored now.
    """

    def __init__(self, state: Callable[[], ClusterState]) -> None:
        self._state = state

    def of(self, server: str) -> Differs | None:
        """What is known against a server; None if nothing is."""
        entry = self._state().differing.get(server)
        return None if entry is None or entry.stage == "filled" else entry

    @property
    def entries(self) -> list[Differs]:
        """All that is known against replicas."""
        return [entry for entry in self._state().differing.values() if entry.stage != "filled"]

    def problem(self, server: str) -> str | None:
        """Why a server is not to be promoted; None if nothing is known against it."""
        entry = self.of(server)
        if entry is None:
            return None
        if entry.stage == "filling":
            return f"{server} is being filled anew by its master; promote it when it is"
        told = f"{server} differs from its master in {entry.keys} keys"
        if entry.slots:
            told += f", in {entry.slots} slots ({entry.named}{', ...' if entry.slots > MOST_NAMED else ''})"
        resync = f"'slotferry digest {entry.group} --resync'"
        if entry.resyncs >= RESYNCS_MAX:
            return (
                f"{told}, as a digest check found after it had been filled anew; find out what writes to it, or what "
                f"is wrong with its machine, then fill it with {resync}"
            )
        return f"{told}, as a digest check found; fill it anew with {resync}, then promote it"
