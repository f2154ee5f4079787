"""Servers that join a group as replicas: empty, with old data, or as copies already; each is made whole first.

Whoever is added to a group as a replica is *joining*, which is stored, until it was once seen to hold a whole copy of
its master's data: in the same stream of writes, its link up. Until then topom has it follow the master, which replaces
whatever it held, and does not choose it as a successor of a master that has failed: what it holds may be nothing, or
something else. (Proxies look for themselves, and read from no replica that does not follow the group's master with its
link up, in the master's stream: :mod:`proxy.replicagroup`.)

A server that is a master with keys of its own is told to follow only if an operator has said that it may be wiped.
**one-owner**: a server is told only while nobody can lock slots or groups, and only if the table names it as a replica
of that master at that instant. **bounded**: of the servers of a node, one at a time is filled, or fills another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from slots.table import Group, SlotTable
from topom.errors import Conflict, TopomError
from topom.events import Said, What
from topom.ledger import Ledger
from topom.replication import Replication, ServerFailed, ServerReplication, obstacle
from topom.state import ClusterState, Joining

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
"""Between two looks at servers that are not whole."""
SILENT_LOOK_SECONDS = 2.0
"""The same, while none of them answers."""
FOREIGN_SECONDS = 3.0
"""For how long a replica has to follow another server than the master, as it seems, before it is told to follow it."""
FILLING_SECONDS = 10.0
"""For how long others wait for a server that was told to follow and has not begun to be filled."""


class NotWhole(Conflict):
    """The server was never seen to hold a whole copy of its group's data."""


def homes(table: SlotTable) -> dict[str, Group]:
    """By address of each replica, its group."""
    return {server: group for group in table.groups.values() for server in group.replicas}


def with_new(old: ClusterState, new: ClusterState, wipe: bool = False) -> ClusterState:
    """``new``, in which those are joining that are replicas there and were in no group of ``old``.

    Args:
        wipe: whether the keys that they have may be lost.
    """
    if old.table.groups is new.table.groups:
        return new
    known = {server for group in old.table.groups.values() for server in group.servers}
    added = {server: Joining(server, wipe) for server in homes(new.table) if server not in known}
    return replace(new, joining={**new.joining, **added}) if added else new


def without(state: ClusterState, servers: set[str]) -> ClusterState:
    """The state in which these are whole, and those are not joining that are no replicas any more."""
    staying = homes(state.table).keys() - servers
    left = {server: entry for server, entry in state.joining.items() if server in staying}
    return state if left.keys() == state.joining.keys() else replace(state, joining=left)


def unmarked(state: ClusterState, server: str) -> ClusterState:
    """The state in which a server that is about to be filled does not count as keeping fenced proxies off.

    The marks that it has are among what is replaced.
    """
    if not any(server in one.at for one in state.fenced.values()):
        return state
    fenced = {instance: replace(one, at=one.at - {server}) for instance, one in state.fenced.items()}
    return replace(state, fenced=fenced)


def require_whole(state: ClusterState, address: str) -> None:
    """Raises NotWhole for a server that is joining: as a master it would have nothing, or something else."""
    if address in state.joining:
        raise NotWhole(
            f"{address} joins its group and was never seen whole, so it may hold nothing, or old data; bring the "
            "master back. If it is gone for good and this is to be its successor all the same, take the group's slots "
            "offline and assign them to a new group with this server"
        )


def is_foreign(said: Replication, master: str) -> bool:
    """Whether a replica seems to follow another server than its master, and is not just being filled.

    One that was told another name of its master looks the same before it is connected.
    """
    return not said.is_master and not said.follows(master) and not said.filling


class Joins:
    """Makes the servers that join whole, for as long as :meth:`run` runs.

    Args:
        locking: held while slots or a group are locked.
        problem_of: why a master is not to be wiped unasked, empty if nothing would be lost. Raises TopomError.
    """

    def __init__(
        self,
        ledger: Ledger,
        replication: ServerReplication,
        locking: asyncio.Lock,
        problem_of: Callable[[str], Awaitable[str]],
    ) -> None:
        self._ledger = ledger
        self._replication = replication
        self._locking = locking
        self._problem_of = problem_of
        self._news = asyncio.Event()
        self._told: dict[str, float] = {}
        self._foreign: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        """By address: why a server that joins is not whole yet."""

    async def run(self) -> None:
        """Look at the servers that join, again and again; for ever."""
        self._ledger.listen(self._changed)
        while True:
            self._news.clear()
            answered = False
            try:
                answered = await self._look()
            except TopomError as error:
                log.warning("joins_wait", reason=str(error))
            if not self._ledger.state.joining:
                await self._news.wait()
                continue
            try:
                async with asyncio.timeout(LOOK_SECONDS if answered else SILENT_LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _look(self) -> bool:
        """Whether any of those that are not whole answers, and its master too."""
        state = self._ledger.state
        for known in (self.reasons, self._told, self._foreign):
            for server in known.keys() - state.joining.keys():
                del known[server]
        groups = homes(state.table)
        servers = [server for server in sorted(state.joining) if server in groups]
        found = await asyncio.gather(*(self._ask(groups[server], server) for server in servers))
        looks = dict(zip(servers, found, strict=True))
        whole = {server for server in servers if self._is_whole(groups[server], server, looks[server])}
        for server in whole:
            await self._keep(groups[server], server)
        if whole or len(servers) < len(state.joining):
            said = [
                Said(What.SERVER_WHOLE, f"server {server} of group {groups[server].id} holds a whole copy")
                for server in sorted(whole)
            ]
            await self._ledger.change(lambda state, epoch: without(state, whole), said)
        for server in sorted(whole):
            log.info("server_whole", group=groups[server].id, server=server)
        busy = {
            node
            for server in servers
            if server not in whole and self._is_filled(looks[server], server)
            for node in nodes_of(groups[server], server)
        }
        for server in servers:
            if server not in whole:
                self.reasons[server] = await self._see_to(groups[server], server, looks[server], busy)
        return any(not isinstance(looks[server], ServerFailed) for server in servers if server not in whole)

    async def _ask(self, group: Group, server: str) -> tuple[Replication, Replication] | ServerFailed:
        """What the master and the server say."""
        try:
            return await self._replication.look(group.servers[0]), await self._replication.look(server)
        except ServerFailed as error:
            return error

    def _is_whole(self, group: Group, server: str, look: tuple[Replication, Replication] | ServerFailed) -> bool:
        return not isinstance(look, ServerFailed) and obstacle(server, group.servers[0], *look) is None

    def _is_filled(self, look: tuple[Replication, Replication] | ServerFailed, server: str) -> bool:
        """Whether it is just being filled, or will be at any moment."""
        if isinstance(look, ServerFailed):
            return False
        now = asyncio.get_running_loop().time()
        return look[1].filling or now < self._told.get(server, -FILLING_SECONDS) + FILLING_SECONDS

    async def _see_to(
        self, group: Group, server: str, look: tuple[Replication, Replication] | ServerFailed, busy: set[str]
    ) -> str:
        """Have a server follow its master if it does not; why it is not whole yet."""
        if isinstance(look, ServerFailed):
            return str(look)
        master, (ahead, said) = group.servers[0], look
        if not ahead.is_master:
            return f"{master}, its master by the table, is a replica itself"
        now = asyncio.get_running_loop().time()
        if not said.is_master:
            since = self._foreign.setdefault(server, now)
            if not is_foreign(said, master):
                del self._foreign[server]
                return f"it is being filled by {master}" if said.filling else f"it has no link to {master} yet"
            if now < since + FOREIGN_SECONDS:
                return f"it follows another server than {master}, as it seems"
        try:
            entry = self._ledger.state.joining.get(server)
            problem = await self._problem_of(server) if said.is_master and entry and not entry.wipe else ""
            if problem:
                return f"{problem}; empty it, or remove it and add it again with --wipe"
            if busy & nodes_of(group, server):
                return "another server of its node, or of its master's, is being filled"
            return await self._tell(group, server, busy)
        except TopomError as error:
            return str(error)

    async def _tell(self, group: Group, server: str, busy: set[str]) -> str:
        master = group.servers[0]
        async with self._locking:
            await self._ledger.change(lambda state, epoch: unmarked(state, server))
            # one-owner: the server may have been removed meanwhile, and be the master of another group by now.
            table = self._ledger.table
            now = homes(table).get(server)
            if now is None or now.locked or now.master != master or server not in self._ledger.state.joining:
                return "its group was changed just now, or is being given another master"
            await self._replication.follow(server, master)
        log.info("server_told_to_join", group=group.id, server=server, master=master)
        self._told[server] = asyncio.get_running_loop().time()
        self._foreign.pop(server, None)
        busy |= nodes_of(group, server)
        return f"it was told to follow {master}"

    async def _keep(self, group: Group, server: str) -> None:
        """Have it remember its master, if topom told it."""
        if server in self._told:
            try:
                await self._replication.keep(server)
            except ServerFailed as error:
                log.debug("role_not_kept", server=server, reason=str(error))

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.joining is not new.joining or (new.joining and old.table.groups is not new.table.groups):
            self._news.set()


def nodes_of(group: Group, server: str) -> set[str]:
    """The nodes that filling a replica concerns: its own and its master's."""
    return {group.node_of(server), group.node_of(group.servers[0])}
