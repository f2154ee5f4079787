"""Servers that join a group as replicas: empty, with old data, or as copies already; each is made whole first.

Whoever is added to a group as a replica is *joining*, which is stored, until it was once seen to hold a whole copy of
its master's data: in the same stream of writes, its link up. Until then topom has it follow the master, which replaces
whatever it held, and does not choose it as a successor of a master that has failed: what it holds may be nothing, or
something else. (Proxies look for themselves, and read from no replica that does not follow the group's master with its
link up, in the master's stream: :mod:`proxy.replicagroup`.)

Nobody is told who may have what nobody else has, unless an operator has said that it may be wiped: that is decided by
:mod:`topom.servers.lastcopy`. A replica that an operator wants to be filled *anew* joins, too: it is told to forget
what it has, and is whole once the very process that was told has a copy again. **one-owner**: a server is told only
while nobody can lock slots or groups, and only if the table names it as a replica of that master at that instant.
**bounded**: of the servers of a node, one at a time is filled, or fills another (:mod:`topom.copies.filling`).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from slots.table import Group
from topom.cluster import differing
from topom.cluster.events import Said, What
from topom.cluster.joins import homes, without
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Joining
from topom.copies.filling import Filling, FillingOvertaken
from topom.errors import TopomError
from topom.reasons import Kind, Reason, Reasons
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.replication import ServerReplication
from topom.servers.whole import copy_refused

log = structlog.get_logger(__name__)

Look = tuple[Replication, Reading]
"""What the master says, and the server that joins."""

LOOK_SECONDS = 0.2
"""Between two looks at servers that are not whole."""
SILENT_LOOK_SECONDS = 2.0
"""The same, while none of them answers."""
FOREIGN_SECONDS = 3.0
"""For how long a replica has to follow another server than the master, as it seems, before it is told to follow it."""
FILLING_SECONDS = 10.0
"""For how long others wait for a server that was told to follow and has not begun to be filled."""


@dataclass(frozen=True, slots=True)
class Seen:
    """As what a server was looked at: a replica of this group, with this master, joining by this entry."""

    group: int
    master: str
    entry: Joining


def without_whole(state: ClusterState, whole: Mapping[str, Seen]) -> ClusterState:
    """As :func:`without`, for those servers that are still what they were when they were seen whole, by address.

    One that was removed and added again meanwhile, or has another master, was not seen whole as what it is now.
    """
    groups = homes(state.table)
    return without(state, {server for server, seen in whole.items() if _is_still(state, groups, server, seen)})


def filled(state: ClusterState, whole: Mapping[str, Seen]) -> ClusterState:
    """As :func:`without_whole`; nothing is known any more against those that were filled anew."""
    new = without_whole(state, whole)
    anew = {server for server, entry in state.joining.items() if entry.anew and server not in new.joining}
    return differing.without(new, anew) if anew else new


def with_told(state: ClusterState, server: str, entry: Joining, run_id: str) -> ClusterState:
    """The state in which this process was told to forget what it has, if it still joins as it did."""
    if state.joining.get(server) is not entry:
        return state
    return replace(state, joining={**state.joining, server: replace(entry, told=run_id)})


def _is_still(state: ClusterState, groups: Mapping[str, Group], server: str, seen: Seen) -> bool:
    group = groups.get(server)
    # The very entry: one that was added again may be equal.
    same = group is not None and (group.id, group.master) == (seen.group, seen.master)
    return same and state.joining.get(server) is seen.entry


def is_foreign(said: Replication, master: str) -> bool:
    """Whether a replica seems to follow another server than its master, and is not just being filled.

    One that was told another name of its master looks the same before it is connected.
    """
    return not said.is_master and not said.follows(master) and not said.filling


class Joins:
    """Makes the servers that join whole, for as long as :meth:`run` runs.

    Args:
        filling: has servers filled.
    """

    def __init__(self, ledger: Ledger, replication: ServerReplication, filling: Filling) -> None:
        self._ledger = ledger
        self._replication = replication
        self._filling = filling
        self._news = asyncio.Event()
        self._told: dict[str, float] = {}
        self._noted: set[str] = set()
        self._foreign: dict[str, float] = {}
        self.reasons = Reasons[str]("server_not_whole", level="info")
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
        self.reasons.keep_only(state.joining.keys())
        for known in (self._told, self._foreign):
            for server in known.keys() - state.joining.keys():
                del known[server]
        for server in self._noted - state.joining.keys():
            self._note(server, None)
        groups = homes(state.table)
        servers = [server for server in sorted(state.joining) if server in groups]
        found = await asyncio.gather(*(self._ask(groups[server], server) for server in servers))
        looks = dict(zip(servers, found, strict=True))
        whole = {
            server for server in servers if self._is_whole(groups[server], server, state.joining[server], looks[server])
        }
        for server in whole:
            await self._keep(server)
        if whole or len(servers) < len(state.joining):
            said = [_said_whole(groups[server], server, state.joining[server]) for server in sorted(whole)]
            seen = {
                server: Seen(groups[server].id, groups[server].servers[0], state.joining[server]) for server in whole
            }
            await self._ledger.change(lambda state, epoch: filled(state, seen), said)
        for server in sorted(whole):
            log.info("server_whole", group=groups[server].id, server=server)
        for server in servers:
            is_filled = server not in whole and self._is_filled(looks[server], server)
            self._note(server, groups[server] if is_filled else None)
        for server in servers:
            if server not in whole:
                why = await self._see_to(groups[server], server, looks[server])
                self.reasons.waits(server, why, server=server, group=groups[server].id)
        return any(not isinstance(looks[server], ServerFailed) for server in servers if server not in whole)

    async def _ask(self, group: Group, server: str) -> Look | ServerFailed:
        """What the master and the server say."""
        try:
            return await self._replication.look(group.servers[0]), await self._replication.read(server)
        except ServerFailed as error:
            return error

    def _is_whole(self, group: Group, server: str, entry: Joining, look: Look | ServerFailed) -> bool:
        if isinstance(look, ServerFailed) or _is_to_forget(entry, look[1]):
            return False
        return copy_refused(server, group.servers[0], look[0], look[1].replication) is None

    def _is_filled(self, look: Look | ServerFailed, server: str) -> bool:
        """Whether it is just being filled, or will be at any moment."""
        if isinstance(look, ServerFailed):
            return False
        now = asyncio.get_running_loop().time()
        return look[1].replication.filling or now < self._told.get(server, -FILLING_SECONDS) + FILLING_SECONDS

    async def _see_to(self, group: Group, server: str, look: Look | ServerFailed) -> Reason | TopomError:
        """Have a server follow its master if it does not; why it is not whole yet."""
        if isinstance(look, ServerFailed):
            return look
        master, ahead, said = group.servers[0], look[0], look[1].replication
        entry = self._ledger.state.joining.get(server)
        if entry is None:
            return Reason(Kind.BUSY, "its group was changed just now")
        if not ahead.is_master:
            return Reason(Kind.SERVER, f"{master}, its master by the table, is a replica itself")
        now = asyncio.get_running_loop().time()
        if not said.is_master and not _is_to_forget(entry, look[1]):
            since = self._foreign.setdefault(server, now)
            if not is_foreign(said, master):
                del self._foreign[server]
                filled = f"it is being filled by {master}" if said.filling else f"it has no link to {master} yet"
                return Reason(Kind.BUSY, filled)
            if now < since + FOREIGN_SECONDS:
                return Reason(Kind.SERVER, f"it follows another server than {master}, as it seems")
        try:
            await self._replication.require(server, master, as_what(entry))
            self._require_free(group, server)
            return await self._tell(group, server, entry)
        except TopomError as error:
            return error

    def _require_free(self, group: Group, server: str) -> None:
        """Raises FillingOvertaken while another server of the same nodes is being filled."""
        if other := self._filling.in_the_way(server, nodes_of(group, server)):
            raise FillingOvertaken(f"another server of its node, or of its master's, is being filled: {other}")

    async def _tell(self, group: Group, server: str, entry: Joining) -> Reason:
        master = group.servers[0]

        def require() -> None:
            # one-owner: the server may have been removed meanwhile, and be the master of another group by now.
            now = homes(self._ledger.table).get(server)
            if now is None or now.id != group.id or self._ledger.state.joining.get(server) is not entry:
                raise FillingOvertaken("its group was changed just now")
            self._require_free(group, server)

        self._note(server, group)
        try:
            run_id = await self._filling.tell(
                server, master, group.id, as_what(entry), require, entry.anew, entry.copy_of
            )
        except TopomError:
            self._note(server, None)
            raise
        log.info("server_told_to_join", group=group.id, server=server, master=master)
        self._told[server] = asyncio.get_running_loop().time()
        self._foreign.pop(server, None)
        if entry.anew:
            await self._ledger.change(lambda state, epoch: with_told(state, server, entry, run_id))
        return Reason(Kind.BUSY, f"it was told to follow {master}")

    def _note(self, server: str, group: Group | None) -> None:
        """A server is being filled by its group's master, or not any more."""
        if group is None:
            self._noted.discard(server)
            self._filling.over(server)
        else:
            self._noted.add(server)
            self._filling.note(server, nodes_of(group, server))

    async def _keep(self, server: str) -> None:
        """Have it remember its master: restarted without that, it would be a master, by what it holds then."""
        try:
            await self._replication.keep(server)
        except ServerFailed as error:
            log.debug("role_not_kept", server=server, reason=str(error))

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.joining is not new.joining or (new.joining and old.table.groups is not new.table.groups):
            self._news.set()


def as_what(entry: Joining) -> As:
    """As what a server that joins is told to follow."""
    if entry.wipe:
        return As.ANEW if entry.anew else As.SPARE
    return As.AGAIN if entry.again else As.NEW


def _is_to_forget(entry: Joining, said: Reading) -> bool:
    """Whether it has yet to be told to forget what it has: a process that was started since has its data of before."""
    return entry.anew and entry.told != said.run_id


def _said_whole(group: Group, server: str, entry: Joining) -> Said:
    if entry.anew:
        return Said(What.REPLICA_RESYNCED, f"replica {server} was filled anew by its master, and holds a whole copy")
    return Said(What.SERVER_WHOLE, f"server {server} of group {group.id} holds a whole copy")


def nodes_of(group: Group, server: str) -> frozenset[str]:
    """The nodes that filling a replica concerns: its own and its master's."""
    return frozenset({group.node_of(server), group.node_of(group.servers[0])})
