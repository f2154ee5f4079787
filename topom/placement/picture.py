"""The table over groups: on which nodes each group's master and replicas are, and which nodes count.

In the planner's words (:mod:`topom.placement.planner`) a group is a slot, and its nodes are those of its servers. A
node does not count while it leaves, or while all its servers have failed. Pure: the caller brings the condition of the
servers. A picture is of one moment, so its reasons do not say since when they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slots.group import Group
from topom.cluster.state import ClusterState, PoolServer, leaving_groups
from topom.placement.planner import Copies, Node
from topom.reasons import Kind, Reason
from topom.servers.detector import Condition

ConditionOf = Callable[[str], Condition]
LEAVES = Reason(Kind.OPERATOR, "it is on its way out")
SILENT = Reason(Kind.SERVER, "none of its servers answers")


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of one moment.

    Attributes:
        nodes: the nodes that count, by name, with their datacenters.
        absent: for each other node, by name, why it does not count.
        table: the nodes of each group, by group. Servers that have failed or leave are left out, and so are groups that
            cannot be planned for.
        left_out: for each group that is left out, why.
        free: the servers of the pool that may be taken, in this order, by node.
        unusable: for each other server of the pool, by address, why it may not be taken.
        gone: the servers of each group that have failed or leave, without the master, by group.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    absent: Mapping[str, Reason] = field(default_factory=dict)
    table: Mapping[int, Copies] = field(default_factory=dict)
    left_out: Mapping[int, Reason] = field(default_factory=dict)
    free: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unusable: Mapping[str, Reason] = field(default_factory=dict)
    gone: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def draw(state: ClusterState, condition_of: ConditionOf, refusals: Mapping[str, Reason] | None = None) -> Picture:
    """The picture of a state.

    Args:
        state: the groups, the pool, and what leaves.
        condition_of: gives the condition of a server.
        refusals: why servers of the pool may not be taken, by address, for those that topom has asked.
    """
    leaving_nodes = {entry.id for entry in state.leaving.values() if entry.kind == "node"}
    leaving_servers = {entry.id for entry in state.leaving.values() if entry.kind == "server"}
    places = _places(state, condition_of)
    nodes = {
        name: Node(name, min((place for place in found if place), default=""))
        for name, found in sorted(places.items())
        if found and name not in leaving_nodes
    }
    unusable: dict[str, Reason] = {}
    free: dict[str, list[str]] = {}
    for address, entry in sorted(state.pool.items()):
        refusal = _silence(address, condition_of(address))
        refusal = refusal or _refusal(entry, leaving_nodes, leaving_servers, refusals or {})
        if refusal is not None:
            unusable[address] = refusal
        else:
            free.setdefault(entry.node_name, []).append(address)
    table: dict[int, Copies] = {}
    left_out: dict[int, Reason] = {}
    gone: dict[int, tuple[str, ...]] = {}
    for group_id, group in sorted(state.table.groups.items()):
        refusal = _refusal_of_group(state, group, condition_of)
        if refusal is not None:
            left_out[group_id] = refusal
            continue
        there = [
            server
            for server in group.servers
            if condition_of(server) is not Condition.FAILED
            and server not in leaving_servers
            and group.node_of(server) in nodes
        ]
        table[group_id] = _copies(group, there)
        gone[group_id] = tuple(server for server in group.replicas if server not in there)
    return Picture(
        nodes,
        {name: LEAVES if name in leaving_nodes else SILENT for name in sorted(places.keys() - nodes.keys())},
        table,
        left_out,
        {name: tuple(servers) for name, servers in free.items()},
        unusable,
        gone,
    )


def _places(state: ClusterState, condition_of: ConditionOf) -> dict[str, list[str]]:
    """By node, the datacenters of its servers; those that have failed have none."""
    places: dict[str, list[str]] = {}
    for group in state.table.groups.values():
        for server in group.servers:
            found = places.setdefault(group.node_of(server), [])
            if condition_of(server) is not Condition.FAILED:
                found.append(group.datacenter_of(server))
    for address, entry in state.pool.items():
        found = places.setdefault(entry.node_name, [])
        if condition_of(address) is Condition.ALIVE:
            found.append(entry.datacenter)
    return places


def _silence(address: str, condition: Condition) -> Reason | None:
    """Why a server of the pool cannot be asked; None if it can."""
    if condition is Condition.ALIVE:
        return None
    if condition is Condition.UNKNOWN:
        return Reason(Kind.BUSY, f"{address} of the pool was not looked at yet")
    return Reason(Kind.SERVER, f"{address} of the pool does not answer")


def _refusal(
    entry: PoolServer, leaving_nodes: set[str], leaving_servers: set[str], refusals: Mapping[str, Reason]
) -> Reason | None:
    if entry.node_name in leaving_nodes:
        return Reason(Kind.OPERATOR, f"{entry.address} is on node {entry.node_name}, which is on its way out")
    if entry.address in leaving_servers:
        return Reason(Kind.OPERATOR, f"{entry.address} is on its way out")
    return refusals.get(entry.address)


def _refusal_of_group(state: ClusterState, group: Group, condition_of: ConditionOf) -> Reason | None:
    if group.master is None:
        return Reason(Kind.OPERATOR, f"group {group.id} has no server, and nothing that a copy could be made of")
    if group.id in leaving_groups(state):
        return Reason(Kind.OPERATOR, f"group {group.id} is on its way out")
    if condition_of(group.master) is Condition.FAILED:
        return Reason(
            Kind.SERVER,
            f"{group.master}, the master of group {group.id}, has failed and has to be replaced first",
            to_do=f"set ha, or slotferry group promote {group.id} HOST:PORT --force",
        )
    return None


def _copies(group: Group, there: list[str]) -> Copies:
    leader = group.node_of(group.servers[0]) if group.servers[0] in there else ""
    followers = dict.fromkeys(group.node_of(server) for server in there if server != group.master)
    return Copies(leader, tuple(node for node in followers if node != leader))
