"""Nodes that leave: all servers of a node leave their groups, each as :mod:`topom.leaving.servers` says.

A group keeps as many copies as it had when its node began to leave, unless an operator says that fewer will do. A
replica goes only once enough others are whole, by what they and their master say at that instant. If they are not,
topom takes a server from the pool into the group, on a node that stays and has no copy of the group yet. While a
placement is being applied (:mod:`topom.placement`), the placement makes the copies. Nothing new is put on a node that
leaves, and the pool's servers there are not taken. Once none of its servers is in a group the node is gone, and so are
the pool's servers there.

**bounded**: if servers that stay are not whole, or do not answer, topom waits :data:`PATIENCE_SECONDS` before it takes
another server in for them, one at a time.

**epochs**: each step is a change of the newest state.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NoReturn

import structlog

from slots.group import Group
from slots.table import SlotTable
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Joining, Leaving, leaving_groups, leaving_nodes, leaving_servers
from topom.errors import NotFound, NotReady, TopomError
from topom.leaving.groups import DRAINED, off_the_list
from topom.placement.pool import Pool
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Replication
from topom.servers.whole import copies_refused, together

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 10.0
"""How long a group that has enough servers may lack whole copies before a server of the pool is taken in."""
MOST_REASONS = 3
"""For how many servers a node's reason says what they wait for."""


class NodeNotFound(NotFound):
    """No server is on a node of that name."""


class ShortOfCopies(NotReady):
    """The server's group has not enough whole copies without it."""

    kind = Kind.DATA


def servers_on(table: SlotTable, node: str) -> list[str]:
    """Addresses of a node's servers that are in groups, ascending."""
    return sorted(
        server for group in table.groups.values() for server in group.servers if group.node_of(server) == node
    )


def with_node(state: ClusterState, node: str, why: str, now: float, fewer_copies: bool = False) -> ClusterState:
    """The state with a node on the list. If it is there already, the reason and the numbers of copies are set anew.

    Args:
        why: the reason; empty if the operator gives none.
        now: in seconds since 1970, UTC.
        fewer_copies: whether its groups may be left with fewer copies than they have.

    Raises:
        NodeNotFound: no server is on that node.
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
    if before is None:
        entry = Leaving("node", node, why or DRAINED, now, copies)
    else:
        if not fewer_copies and any(number > 1 for number in before.copies.values()):
            # Servers may have been taken in meanwhile; they must not be replaced once more.
            copies = {**copies, **before.copies}
        entry = replace(before, why=why or before.why, copies=copies)
        if entry == before:
            return state
    return replace(state, leaving={**state.leaving, entry.key: entry})


def without_node(state: ClusterState, node: str) -> ClusterState:
    """The state with a node off the list. Raises NodeNotFound if it is not on it."""
    if _key(node) not in state.leaving:
        raise NodeNotFound(f"no node {node!r} is on its way out; it may have left already: slotferry events")
    return off_the_list(state, _key(node))


def without_empty(state: ClusterState) -> ClusterState:
    """The state without the nodes on the list that have no server in a group; the pool loses its servers there."""
    empty = [node for node in leaving_nodes(state) if not servers_on(state.table, node)]
    for node in empty:
        state = off_the_list(state, _key(node))
    if any(entry.node_name in empty for entry in state.pool.values()):
        staying = {address: entry for address, entry in state.pool.items() if entry.node_name not in empty}
        state = replace(state, pool=staying)
    return state


def copies_needed(state: ClusterState, group: Group) -> int:
    """How many whole servers that stay a group must have before a server of a leaving node may go."""
    entries = (entry for entry in state.leaving.values() if entry.kind == "node")
    return max((entry.copies.get(str(group.id), 1) for entry in entries), default=1)


def staying_copies(state: ClusterState, group: Group, servers: Collection[str]) -> list[str]:
    """The group's servers that are in ``servers``, stay, and are not joining."""
    leaving = leaving_servers(state)
    return [
        server
        for server in group.servers
        if server in servers and server not in leaving and server not in state.joining
    ]


def candidates(state: ClusterState, group: Group, leaver: str) -> list[str]:
    """Servers of the pool that may take the place of a server that leaves, the best first.

    A server in the same datacenter comes before others, then one on the node with the fewest servers in groups.
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
    """The state in which a server of the pool joins a group, for a server that leaves. Raises NotReady if it cannot."""
    group = topology.group_of(state.table, group_id)
    if address not in candidates(state, group, leaver):
        raise NotReady(
            f"{address} was to be taken from the pool, which has changed; it is looked at again soon", kind=Kind.BUSY
        )
    entry = state.pool[address]
    table = topology.add_server(state.table, epoch, group_id, address, entry.datacenter, entry.node)
    new = replace(state, pool={name: one for name, one in state.pool.items() if name != address})
    new = replace(new, joining={**new.joining, address: Joining(address, entry.wipe, copy_of=entry.copy_of)})
    return interventions.with_table(new, table)


def waits_for(state: ClusterState, entry: Leaving, reasons: Mapping[str, Reason]) -> Reason | None:
    """What a node on the list waits for, by the reasons of its servers; None if for nothing."""
    servers = servers_on(state.table, entry.id)
    if not servers:
        return None
    said = [(server, reasons[server]) for server in servers if server in reasons]
    named = "; ".join(f"{server}: {reason.what}" for server, reason in said[:MOST_REASONS])
    more = f"; and {len(said) - MOST_REASONS} more" if len(said) > MOST_REASONS else ""
    to_do = "; ".join(dict.fromkeys(reason.to_do for _, reason in said[:MOST_REASONS] if reason.to_do))
    what = f"{len(servers)} of its servers are in groups{f' ({named}{more})' if said else ''}"
    return Reason(said[0][1].kind if said else Kind.BUSY, what, said[0][1].since if said else entry.since, to_do)


def _key(node: str) -> str:
    return Leaving.key_of("node", node)


class NodeDepartures:
    """Puts nodes on the list and takes them off it, and replaces their servers from the pool."""

    def __init__(self, ledger: Ledger, pool: Pool) -> None:
        self._ledger = ledger
        self._pool = pool
        self._short_since: dict[str, float] = {}

    async def drain(self, node: str, why: str, fewer_copies: bool) -> None:
        """Put a node on the list. Raises as :func:`with_node`, and StoreError."""
        now = time.time()
        await self._ledger.change(lambda state, epoch: with_node(state, node, why, now, fewer_copies))
        log.info("node_leaves", node=node, why=why, fewer_copies=fewer_copies)

    async def keep(self, node: str) -> None:
        """Take a node off the list; what has left it does not come back. Raises as :func:`without_node`, and
        StoreError.
        """
        await self._ledger.change(lambda state, epoch: without_node(state, node))
        log.info("node_stays", node=node)

    def not_short(self, leaver: str) -> None:
        """Note that a leaving server does not wait for copies of its group now: such a wait begins anew."""
        self._short_since.pop(leaver, None)

    def keep_only(self, leavers: Collection[str]) -> None:
        """Forget since when groups lack copies, except for these leaving servers."""
        self._short_since = {server: since for server, since in self._short_since.items() if server in leavers}

    async def replenish(self, group: Group, leaver: str, said: Mapping[str, Replication | ServerFailed]) -> None:
        """Return if a group has enough whole copies without a leaving server; else take a server in, if none joins.

        A group that leaves itself gets no server.

        Args:
            said: what each of the group's servers says just now. The master must say that it is one, or no server could
                be filled.

        Raises:
            ShortOfCopies: it has not enough, and none joins. The caller calls :meth:`not_short` if this is not raised.
            NotReady: it has not enough; the message says what is missing.
        """
        state = self._ledger.state
        refused = copies_refused(state, group, said)
        needed = copies_needed(state, group)
        whole = staying_copies(state, group, [server for server, refusal in refused.items() if refusal is None])
        if len(whole) >= needed:
            return
        if group.id in leaving_groups(state):
            raise NotReady(f"it goes with group {group.id}, which is on its way out", kind=Kind.BUSY)
        if state.placement.run is not None or state.placement.auto:
            # Otherwise both would take servers of the pool for the same copy.
            raise NotReady(
                f"group {group.id} gets copies elsewhere by placement", "slotferry placement show", kind=Kind.BUSY
            )
        leaving = leaving_servers(state)
        joining = [server for server in group.servers if server in state.joining and server not in leaving]
        answering = [server for server in joining if not isinstance(said[server], ServerFailed)]
        if answering:
            raise NotReady(
                f"{', '.join(answering)} joins group {group.id} in its place and is not whole yet", kind=Kind.BUSY
            )
        staying = staying_copies(state, group, group.servers)
        short = [refused[server] for server in group.servers if server in {*staying, *joining} - {*whole}]
        lacking, to_do = together(refusal for refusal in short if refusal is not None)
        now = asyncio.get_running_loop().time()
        lasts = now >= self._short_since.setdefault(leaver, now) + PATIENCE_SECONDS
        has = f"group {group.id} would have {len(whole)} whole copies of {needed} without it"
        if len(staying) + len(joining) >= needed and not lasts:
            raise ShortOfCopies(
                f"{has}: {lacking}. Another server is taken in if that lasts for {PATIENCE_SECONDS:g} s", to_do
            )
        await self._take_in(state, group, leaver, f"{has} ({lacking})" if lacking else has)

    async def _take_in(self, state: ClusterState, group: Group, leaver: str, has: str) -> NoReturn:
        """Take a server of the pool into a group, in place of a leaving one.

        Args:
            has: what the group has without that one.

        Raises:
            NotReady: a server is taken, and has to become whole.
            ShortOfCopies: none can be taken.
        """
        unfit = []
        for address in candidates(state, group, leaver):
            if refusal := await self._unfit(state, address):
                unfit.append(refusal)
                continue
            await self._ledger.change(
                lambda state, epoch, address=address: taken(state, epoch, group.id, leaver, address)  # type: ignore[misc]
            )
            log.info("server_taken", group=group.id, server=address, instead_of=leaver)
            raise NotReady(f"{address} was taken from the pool into group {group.id} in its place", kind=Kind.BUSY)
        missing = "; ".join(unfit) or "the pool has none on another node"
        raise ShortOfCopies(
            f"{has}, and no server can be taken in: {missing}",
            f"add a replica (slotferry server add {group.id} HOST:PORT) or a server to the "
            "pool (slotferry pool add HOST:PORT), or say that fewer copies will do: slotferry node drain NODE "
            "--fewer-copies",
        )

    async def _unfit(self, state: ClusterState, address: str) -> str:
        """Why a server of the pool cannot be taken now; empty if it can."""
        try:
            content = await self._pool.content(address)
        except TopomError as error:
            return str(error)
        return "" if state.pool[address].wipe else content.why_not_wipe(address)
