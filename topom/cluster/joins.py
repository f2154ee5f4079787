"""Which replicas are *joining*: listed in a group, and not seen with a whole copy yet (:mod:`topom.copies.joining`).

Pure functions from one state to the next.
"""

from dataclasses import replace

from slots.group import Group
from slots.table import SlotTable
from topom.cluster.state import ClusterState, Joining


def homes(table: SlotTable) -> dict[str, Group]:
    """By address of each replica, its group."""
    return {server: group for group in table.groups.values() for server in group.replicas}


def with_new(old: ClusterState, new: ClusterState, wipe: bool = False) -> ClusterState:
    """``new``, in which each replica that was in no group of ``old`` is joining.

    Args:
        wipe: whether the keys that these replicas have may be lost.
    """
    if old.table.groups is new.table.groups:
        return new
    known = {server for group in old.table.groups.values() for server in group.servers}
    added = {server: Joining(server, wipe) for server in homes(new.table) if server not in known}
    return replace(new, joining={**new.joining, **added}) if added else new


def without(state: ClusterState, servers: set[str]) -> ClusterState:
    """The state in which these servers are whole, and only servers that are replicas are joining."""
    staying = homes(state.table).keys() - servers
    left = {server: entry for server, entry in state.joining.items() if server in staying}
    return state if left.keys() == state.joining.keys() else replace(state, joining=left)
