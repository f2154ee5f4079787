"""Servers that leave, by themselves or with their nodes, but not with their groups.

A replica is gone at once, unless the master is away and the group may lose data with the replica
(:mod:`topom.masters.choice`). The master of a group may have what no other server has. So it is put on the stored list
of what leaves, and another server of the group takes its place by a planned promotion
(:mod:`topom.masters.promotions`), which loses nothing. Once the former master follows the new one, it is removed. A
sentence says what it waits for. A server on the list is made no master, unless a master fails and no other server has
as much, or an operator forces it.

Servers of a node that leaves (:mod:`topom.leaving.nodes`) go the same way, but a replica goes only once its group has
enough copies without it. topom removes a server on the list only if it is seen to be a replica, or counts as failed,
while the master says that it is one: without a master it is not known which copy is the best.

**epochs**: each step is a change of the newest state. Between two looks topom remembers only how long to wait: the next
leader sees from the list, the table and the servers how far each departure is.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from slots.backoff import Backoff
from slots.group import Group
from slots.table import SlotTable
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Leaving, leaving_nodes, leaving_servers
from topom.errors import NodeLeaving, NotReady, ServerNotFound, TopomError
from topom.leaving import nodes as leavingnodes
from topom.leaving.groups import off_the_list
from topom.leaving.nodes import NodeDepartures, ShortOfCopies
from topom.masters.choice import departure, error_of, planned
from topom.masters.promotions import Promotions
from topom.periodic import Look, Loop, never_held
from topom.reasons import Kind, Reason, Reasons
from topom.servers.lastcopy import ServerFailed
from topom.servers.replication import ServerReplication, look_at_all
from topom.servers.whole import Said, Why, copies_refused, no_master, together

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two looks at servers that cannot leave yet."""
SAID = 3
"""How many servers' reasons are in one sentence."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
"""Seconds between two promotions that fail."""


def group_with(table: SlotTable, address: str) -> Group | None:
    """The group that has a server; None if none has it."""
    return next((group for group in table.groups.values() if address in group.servers), None)


def with_server(state: ClusterState, epoch: int, group_id: int, address: str, why: str, now: float) -> ClusterState:
    """The state without a replica, or with a group's master on the list.

    A master that is alone in a group that no slot needs is gone at once, too.

    Args:
        now: in seconds since 1970, UTC.

    Raises:
        GroupNotFound, ServerNotFound: there is no such group, or no such server in it.
        GroupLocked: it is being decided whether the server is the master.
    """
    group = _require(state.table, group_id, address)
    if address != group.master or _is_unused(state.table, group):
        return off_the_list(_without(state, epoch, group_id, address), _key(address))
    if _key(address) in state.leaving:
        return state
    entry = Leaving("server", address, why, now)
    return replace(state, leaving={**state.leaving, entry.key: entry})


def without_server(state: ClusterState, group_id: int, address: str) -> ClusterState:
    """The state with a server off the list.

    Raises:
        GroupNotFound, ServerNotFound: there is no such group, or it has no such server.
        NodeLeaving: it leaves with its node.
    """
    node = _require(state.table, group_id, address).node_of(address)
    if node in leaving_nodes(state):
        raise NodeLeaving(
            f"{address} leaves with its node {node}; have that stay: slotferry node drain {node} --cancel"
        )
    return off_the_list(state, _key(address))


def without_gone(state: ClusterState) -> ClusterState:
    """The state without entries for servers that are in no group, and for nodes that have no server in a group."""
    for entry in list(state.leaving.values()):
        if entry.kind == "server" and group_with(state.table, entry.id) is None:
            state = off_the_list(state, entry.key)
    return leavingnodes.without_empty(state)


def removed(state: ClusterState, epoch: int, address: str) -> ClusterState:
    """The state in which a server on the list is gone, if it is a replica of an unlocked group, or no slot needs its
    group.

    Otherwise the same state.
    """
    group = group_with(state.table, address)
    if group is None or group.locked or address not in leaving_servers(state):
        return state
    if address == group.master and not _is_unused(state.table, group):
        return state
    return off_the_list(_without(state, epoch, group.id, address), _key(address))


def successor(state: ClusterState, group: Group, said: Said) -> str:
    """The replica that takes the place of a master on the list (:mod:`topom.masters.choice`).

    Args:
        group: the group of that master.
        said: what each of the group's servers says.

    Raises:
        NotReady: there is no such replica; the message says what is missing.
    """
    choice = planned(state, group, said)
    if choice.chosen is not None:
        return choice.chosen
    refused = [refusal for refusal in choice.refused.values() if refusal.kind is not Why.LEAVING]
    if not refused:
        raise nobody_else(group, 0.0).to(NotReady)
    ahead = said[group.servers[0]]
    if isinstance(ahead, ServerFailed):
        raise NotReady(f"it cannot hand over to another server: {ahead.what}", ahead.to_do)
    what, to_do = together(refused)
    raise NotReady(f"no other server of group {group.id} can take over yet: {what}", to_do, kind=Kind.DATA)


def nobody_else(group: Group, since: float) -> Reason:
    """What is missing if a group has no server that stays."""
    return Reason(
        Kind.OPERATOR,
        f"group {group.id} has no other server that stays",
        since,
        f"add a replica (slotferry server add {group.id} HOST:PORT), or, if the whole group is to go, slotferry group "
        f"drain {group.id}",
    )


def waits_for(state: ClusterState, entry: Leaving) -> Reason | None:
    """What an entry of the list waits for, as far as the state says so; None if for nothing."""
    table = state.table
    if entry.kind == "group":
        number = _slots_of(table, int(entry.id))
        what = f"{number} {'slot has' if number == 1 else 'slots have'} to move to other groups first"
        return Reason(Kind.BUSY, what, entry.since) if number else None
    group = group_with(table, entry.id)
    if entry.kind == "node" or group is None:
        return leavingnodes.waits_for(state, entry, {}) if entry.kind == "node" else None
    if entry.id != group.master:
        what = f"it is a replica of {group.master} now, and is removed once it follows it"
        return Reason(Kind.BUSY, what, entry.since)
    if all(server in leaving_servers(state) for server in group.servers):
        return nobody_else(group, entry.since)
    return Reason(Kind.BUSY, f"another server of group {group.id} has to take over as its master", entry.since)


def _require(table: SlotTable, group_id: int, address: str) -> Group:
    group = topology.group_of(table, group_id)
    if address not in group.servers:
        raise ServerNotFound(f"group {group_id} has no server {address}; it has {', '.join(group.servers) or 'none'}")
    return group


def _slots_of(table: SlotTable, group_id: int) -> int:
    """How many slots a group owns, or gets, or gives away."""
    return sum(group_id in (slot.group_id, slot.destination_id, slot.owner_id) for slot in table.slots)


def _is_unused(table: SlotTable, group: Group) -> bool:
    """Whether a group has only a master, and no slot needs it."""
    return len(group.servers) == 1 and not _slots_of(table, group.id)


def _without(state: ClusterState, epoch: int, group_id: int, address: str) -> ClusterState:
    return interventions.with_table(state, topology.remove_server(state.table, epoch, group_id, address))


def _key(address: str) -> str:
    return Leaving.key_of("server", address)


class ServerDepartures(Loop):
    """Replaces and removes the servers on the list, as long as :meth:`run` runs.

    Args:
        nodes: replaces the servers of leaving nodes.
        has_failed: whether a server counts as failed (:mod:`topom.servers.detector`).
        paused: why nothing is done now, though it was ordered; None if it is done.
    """

    name = "leaving servers"

    def __init__(
        self,
        ledger: Ledger,
        promotions: Promotions,
        replication: ServerReplication,
        nodes: NodeDepartures,
        has_failed: Callable[[str], bool],
        paused: Callable[[], Reason | None] = never_held,
    ) -> None:
        super().__init__(paused)
        self._ledger = ledger
        self._promotions = promotions
        self._replication = replication
        self._nodes = nodes
        self._has_failed = has_failed
        ledger.listen(self._changed)
        self._backoffs: dict[str, Backoff] = {}
        self._not_before: dict[str, float] = {}
        self._reasons = Reasons[str]("server_cannot_leave_yet", level="info")

    async def drain(self, group_id: int, address: str, why: str) -> SlotTable:
        """Remove a replica, or put a master on the list; gives the table that then holds.

        Raises as :func:`with_server`, and StoreError; LastCopy: as :func:`topom.masters.choice.departure`.
        """
        now = time.time()
        state = self._ledger.state
        group = _require(state.table, group_id, address)
        entry = state.joining.get(address)
        was_whole = entry is None or entry.again
        if address in group.replicas and was_whole and _slots_of(state.table, group_id):
            said = await look_at_all(self._replication, list(group.servers))
            if (refusal := departure(state, group, address, said)) is not None:
                raise error_of(refusal)
        state = await self._ledger.change(lambda state, epoch: with_server(state, epoch, group_id, address, why, now))
        log.info("server_leaves", group=group_id, server=address, why=why)
        return state.table

    async def keep(self, group_id: int, address: str) -> SlotTable:
        """Take a server off the list; gives the table that then holds. Raises as :func:`without_server`, and
        StoreError.

        If another server is just taking over, it still does, and this one stays as its replica.
        """
        state = await self._ledger.change(lambda state, epoch: without_server(state, group_id, address))
        log.info("server_stays", group=group_id, server=address)
        return state.table

    def waits_for(self, entry: Leaving) -> Reason | None:
        """What an entry of the list waits for; None if for nothing."""
        if entry.kind == "node":
            return leavingnodes.waits_for(self._ledger.state, entry, self._reasons)
        seen = self._reasons.get(entry.id) if entry.kind == "server" else None
        return seen or waits_for(self._ledger.state, entry)

    async def look(self) -> Look:
        """Replace masters on the list, and remove servers on it."""
        listed = leaving_servers(self._ledger.state)
        self._reasons.keep_only(listed)
        for known in (self._not_before, self._backoffs):
            for address in known.keys() - listed:
                del known[address]
        self._nodes.keep_only(listed)
        for address in sorted(listed):
            if self.held:
                break
            await self._see_to(address)
        await self._ledger.change(lambda state, epoch: without_gone(state))
        if not any(entry.kind != "group" for entry in self._ledger.state.leaving.values()):
            return Look()
        waiting = "; ".join(f"{server}: {reason.what}" for server, reason in sorted(self._reasons.items())[:SAID])
        return Look(f"servers leave; {waiting}" if waiting else "servers leave", LOOK_SECONDS)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        self.wake()

    async def _see_to(self, address: str) -> None:
        try:
            group = group_with(self._ledger.table, address)
            if group is None:
                return
            if _is_unused(self._ledger.table, group):
                await self._ledger.change(lambda state, epoch: removed(state, epoch, address))
            elif address == group.master:
                await self._replace(group)
            else:
                await self._remove(group, address)
        except TopomError as error:
            if not isinstance(error, ShortOfCopies):
                self._nodes.not_short(address)
            self._reasons.waits(address, error, server=address)
        else:
            self._nodes.not_short(address)
            self._reasons.over(address)

    async def _replace(self, group: Group) -> None:
        """Let another server take a master's place. Raises the reason if that is not possible now."""
        master = group.servers[0]
        state = self._ledger.state
        said = await look_at_all(self._replication, list(group.servers))
        if _key(master) not in state.leaving:
            refused = copies_refused(state, group, said)
            whole = [server for server, refusal in refused.items() if refusal is None]
            if whole and not leavingnodes.staying_copies(state, group, whole):
                await self._nodes.replenish(group, master, said)
        chosen = successor(self._ledger.state, group, said)
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before.get(master, 0.0):
            raise self._reasons.get(master, Reason(Kind.BUSY, "it is tried again soon")).to(NotReady)
        try:
            await self._promotions.promote(group.id, chosen)
        except TopomError:
            # A failed promotion may have held requests of clients, so the next attempt waits.
            backoff = self._backoffs.setdefault(master, Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS))
            self._not_before[master] = loop.time() + backoff.next()
            raise

    async def _remove(self, group: Group, address: str) -> None:
        """Remove a replica once its group does not need it. Raises the reason if that is not possible now."""
        master = group.servers[0]
        said = await look_at_all(self._replication, list(group.servers))
        if group.locked:
            raise NotReady(f"group {group.id} is being given another master", kind=Kind.BUSY)
        # Without the master's word neither its copy nor any other can be judged.
        if (trouble := no_master(master, said[master])) is not None:
            raise NotReady(f"nobody can be spared: {trouble.what}", trouble.to_do, kind=trouble.reason.kind)
        if _key(address) not in self._ledger.state.leaving:
            await self._nodes.replenish(group, address, said)
        behind = said[address]
        if isinstance(behind, ServerFailed):
            if not self._has_failed(address):
                raise NotReady(f"{behind.what}; it is removed once it counts as failed")
        elif behind.is_master or not behind.follows(master):
            raise NotReady(
                f"it does not follow {group.master} yet, which is the master of group {group.id} now", kind=Kind.BUSY
            )

        def remove(state: ClusterState, epoch: int) -> ClusterState:
            # What was seen says nothing about a group that has changed since.
            if group_with(state.table, address) != group:
                raise NotReady(f"group {group.id} was changed just now; it is looked at again soon", kind=Kind.BUSY)
            return removed(state, epoch, address)

        await self._ledger.change(remove)
        log.info("server_gone", group=group.id, server=address)
