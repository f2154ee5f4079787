"""Nodes on their way out: all servers of a host leave their groups, each as :mod:`topom.leavingservers` has it.

A group keeps as many copies as it had when its node was told to go, unless an operator says that fewer will do: a
replica goes only once enough others are whole, and where they are not, a server of the pool is taken in, on a node that
stays and has no copy of the group yet; where a placement is being applied (:mod:`topom.placements`), that makes the
copies. Nothing new is put on a node that leaves, and what the pool has there is not taken. Once none of its servers is
in a group the node is gone, and with it what the pool had there.

**epochs**: each step is a change of the state as it is then.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

import structlog

from slots.table import Group, SlotTable
from topom import interventions, topology
from topom.errors import Conflict, NotFound, TopomError
from topom.leaving import off_the_list
from topom.ledger import Ledger
from topom.placements.pool import Pool
from topom.promotions import NotReady
from topom.state import ClusterState, Joining, Leaving, leaving_groups, leaving_nodes, leaving_servers

log = structlog.get_logger(__name__)

MOST_REASONS = 3
"""Of how many servers it is said what they wait for."""


class NodeNotFound(NotFound):
    """No server is on a node of that name."""


class NodeLeaving(Conflict):
    """The node is on its way out and gets nothing new."""


def servers_on(table: SlotTable, node: str) -> list[str]:
    """Addresses of a node's servers that are in groups, ascending."""
    return sorted(
        server for group in table.groups.values() for server in group.servers if group.node_of(server) == node
    )


def with_node(state: ClusterState, node: str, why: str, now: float, fewer_copies: bool = False) -> ClusterState:
    """The state with a node on the list; for one that is, with what is said of its groups' copies said anew.

    Args:
        now: in seconds since 1970, UTC.
        fewer_copies: whether its groups may be left with fewer copies than they have.

    Raises:
        NodeNotFound: no server is there.
    """
    here = servers_on(state.table, node)
    if not here and not any(entry.node_name == node for entry in state.pool.values()):
        raise NodeNotFound(f"no server of a group or of the pool is on a node {node!r}; slotferry status shows nodes")
    copies = {
        str(group.id): 1 if fewer_copies else len(group.servers)
        for group in state.table.groups.values()
        if not {*group.servers}.isdisjoint(here)
    }
    before = state.leaving.get(_key(node))
    if before is not None and not fewer_copies:
        return state
    entry = Leaving("node", node, why, now, copies) if before is None else replace(before, copies=copies)
    return replace(state, leaving={**state.leaving, entry.key: entry})


def without_node(state: ClusterState, node: str) -> ClusterState:
    """The state with a node off the list. Raises NodeNotFound, if it is not there."""
    if _key(node) not in state.leaving:
        raise NodeNotFound(f"no node {node!r} is on its way out; it may have left already: slotferry events")
    return off_the_list(state, _key(node))


def without_empty(state: ClusterState) -> ClusterState:
    """The state without those nodes on the list of whose servers none is in a group; the pool loses what is there."""
    empty = [node for node in leaving_nodes(state) if not servers_on(state.table, node)]
    for node in empty:
        state = off_the_list(state, _key(node))
    if any(entry.node_name in empty for entry in state.pool.values()):
        staying = {address: entry for address, entry in state.pool.items() if entry.node_name not in empty}
        state = replace(state, pool=staying)
    return state


def check(state: ClusterState, table: SlotTable) -> None:
    """Refuse a change that puts a server into a group on a node that leaves. Raises :class:`NodeLeaving`."""
    nodes = leaving_nodes(state)
    if not nodes or table.groups is state.table.groups:
        return
    before = {server for group in state.table.groups.values() for server in group.servers}
    for group in table.groups.values():
        for server in group.servers:
            if server not in before and group.node_of(server) in nodes:
                node = group.node_of(server)
                raise NodeLeaving(
                    f"{server} is on node {node}, which is on its way out; take a server elsewhere, or have the node "
                    f"stay: slotferry node drain {node} --cancel"
                )


def copies_needed(state: ClusterState, group: Group) -> int:
    """How many whole servers that stay a group has to have before one of a node that leaves may go."""
    entries = (entry for entry in state.leaving.values() if entry.kind == "node")
    return max((entry.copies.get(str(group.id), 1) for entry in entries), default=1)


def whole_copies(state: ClusterState, group: Group) -> list[str]:
    """A group's servers that stay and are not still joining."""
    leaving = leaving_servers(state)
    return [server for server in group.servers if server not in leaving and server not in state.joining]


def candidates(state: ClusterState, group: Group, leaver: str) -> list[str]:
    """Servers of the pool that may take the place of one that leaves, the best first.

    One in its datacenter comes before others, then one on the node that has the fewest servers in groups.
    """
    barred = leaving_nodes(state) | {group.node_of(server) for server in group.servers}
    fitting = [entry for entry in state.pool.values() if entry.node_name not in barred]
    home = group.datacenter_of(leaver)
    return [
        entry.address
        for entry in sorted(
            fitting,
            key=lambda entry: (
                entry.datacenter != home,
                len(servers_on(state.table, entry.node_name)),
                entry.address,
            ),
        )
    ]


def taken(state: ClusterState, epoch: int, group_id: int, leaver: str, address: str) -> ClusterState:
    """The state in which a server of the pool joins a group, for one that leaves. Raises NotReady if it cannot."""
    group = topology.group_of(state.table, group_id)
    if address not in candidates(state, group, leaver):
        raise NotReady(f"{address} was to be taken from the pool, which has changed; it is looked at again soon")
    entry = state.pool[address]
    table = topology.add_server(state.table, epoch, group_id, address, entry.datacenter, entry.node)
    new = replace(state, pool={name: one for name, one in state.pool.items() if name != address})
    new = replace(new, joining={**new.joining, address: Joining(address, entry.wipe)})
    return interventions.with_table(new, table)


def waits_for(state: ClusterState, node: str, reasons: Mapping[str, str]) -> str:
    """What a node on the list waits for, by what its servers do."""
    servers = servers_on(state.table, node)
    said = [f"{server}: {reasons[server]}" for server in servers if reasons.get(server)]
    more = f"; and {len(said) - MOST_REASONS} more" if len(said) > MOST_REASONS else ""
    details = f" ({'; '.join(said[:MOST_REASONS])}{more})" if said else ""
    return f"{len(servers)} of its servers are in groups{details}" if servers else ""


def _key(node: str) -> str:
    return Leaving.key_of("node", node)


class NodeDepartures:
    """Puts nodes on the list and takes them off it, and has their servers replaced from the pool."""

    def __init__(self, ledger: Ledger, pool: Pool) -> None:
        self._ledger = ledger
        self._pool = pool

    async def drain(self, node: str, why: str, fewer_copies: bool) -> None:
        """Have a node leave. Raises as :func:`with_node`, and StoreError."""
        now = time.time()
        await self._ledger.change(lambda state, epoch: with_node(state, node, why, now, fewer_copies))
        log.info("node_leaves", node=node, why=why, fewer_copies=fewer_copies)

    async def keep(self, node: str) -> None:
        """Have a node stay; what has left it does not come back. Raises as :func:`without_node`, and StoreError."""
        await self._ledger.change(lambda state, epoch: without_node(state, node))
        log.info("node_stays", node=node)

    async def replenish(self, group: Group, leaver: str) -> None:
        """Return if a group has enough whole copies without one that leaves; else take a server in, if none joins.

        A group that leaves itself gets nobody.

        Raises:
            NotReady: it has not; the message says what is missing.
        """
        state = self._ledger.state
        needed, whole = copies_needed(state, group), whole_copies(state, group)
        if len(whole) >= needed:
            return
        if group.id in leaving_groups(state):
            raise NotReady(f"it goes with group {group.id}, which is on its way out")
        if state.placement.auto or state.placement.run is not None:
            # Both would take servers of the pool for the same copy.
            raise NotReady(f"group {group.id} gets copies elsewhere by placement: slotferry placement show")
        leaving = leaving_servers(state)
        joining = [server for server in group.servers if server in state.joining and server not in leaving]
        if joining:
            raise NotReady(f"{', '.join(joining)} joins group {group.id} in its place and is not whole yet")
        problems = []
        for address in candidates(state, group, leaver):
            try:
                problem = "" if state.pool[address].wipe else await self._pool.problem(address)
            except TopomError as error:
                problem = str(error)
            if problem:
                problems.append(problem)
                continue
            await self._ledger.change(
                lambda state, epoch, address=address: taken(state, epoch, group.id, leaver, address)  # type: ignore[misc]
            )
            log.info("server_taken", group=group.id, server=address, instead_of=leaver)
            raise NotReady(f"{address} was taken from the pool into group {group.id} in its place")
        missing = "; ".join(problems) or "the pool has none on another node"
        raise NotReady(
            f"group {group.id} would have {len(whole)} whole copies of {needed} without it, and no server can be taken "
            f"in: {missing}. Add a replica (slotferry server add {group.id} HOST:PORT) or a server to the pool "
            "(slotferry pool add HOST:PORT), or say that fewer copies will do: slotferry node drain NODE --fewer-copies"
        )
