"""Servers that join a group as replicas: empty, with old data, or as copies already; each is made whole first.

Whoever is added to a group as a replica is *joining*, which is stored, until it was once seen to hold a whole copy of
its master's data: in the same stream of writes, its link up. Until then topom has it follow the master, which replaces
whatever it held, and does not choose it as a successor of a master that has failed: what it holds may be nothing, or
something else. (Proxies look for themselves, and read from no replica that does not follow the group's master with its
link up, in the master's stream: :mod:`proxy.replicagroup`.)

What may be the only copy of something is told to follow only if an operator has said that it may be wiped: a master
with keys of its own, a replica of somebody else that has lost its link to them, and a replica of another group. Of one
that joins again, because it follows its master no more, less is asked (:mod:`topom.strays`). **one-owner**: a server is
told only while nobody can lock slots or groups, and only if the table names it as a replica of that master at that
instant.
**bounded**: of the servers of a node, one at a time is filled, or fills another (:mod:`topom.filling`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from slots.table import Group, SlotTable
from topom.errors import Conflict, TopomError
from topom.events import Said, What
from topom.filling import Filling, FillingOvertaken
from topom.ledger import Ledger
from topom.placements.pool import HoldsKeys
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


async def _nothing(server: str, master: str) -> str:
    """What is held against wiping a server, where nobody has joined again."""
    return ""


async def _of_none(group_id: int, server: str, said: Replication) -> str:
    """Of which other group a server holds a copy, where there is none."""
    return ""


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


def _is_still(state: ClusterState, groups: Mapping[str, Group], server: str, seen: Seen) -> bool:
    group = groups.get(server)
    # The very entry: one that was added again may be equal.
    same = group is not None and (group.id, group.master) == (seen.group, seen.master)
    return same and state.joining.get(server) is seen.entry


def require_whole(state: ClusterState, address: str) -> None:
    """Raises NotWhole for a server that is joining: as a master it would have nothing, or something else."""
    if address in state.joining:
        raise NotWhole(
            f"{address} joins its group and was not seen whole since, so it may hold nothing, or old data; bring the "
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
        filling: has servers filled.
        problem_of: why a server is not to be wiped unasked, empty if nothing would be lost. Raises TopomError.
        problem_again: the same of one that was whole once, given its master, too.
        copy_of: says of which other group a server that is to be in this one holds a copy; empty if of none.
    """

    def __init__(
        self,
        ledger: Ledger,
        replication: ServerReplication,
        filling: Filling,
        problem_of: Callable[[str], Awaitable[str]],
        problem_again: Callable[[str, str], Awaitable[str]] = _nothing,
        copy_of: Callable[[int, str, Replication], Awaitable[str]] = _of_none,
    ) -> None:
        self._copy_of = copy_of
        self._ledger = ledger
        self._replication = replication
        self._filling = filling
        self._problem_of = problem_of
        self._problem_again = problem_again
        self._news = asyncio.Event()
        self._told: dict[str, float] = {}
        self._noted: set[str] = set()
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
        for server in self._noted - state.joining.keys():
            self._note(server, None)
        groups = homes(state.table)
        servers = [server for server in sorted(state.joining) if server in groups]
        found = await asyncio.gather(*(self._ask(groups[server], server) for server in servers))
        looks = dict(zip(servers, found, strict=True))
        whole = {server for server in servers if self._is_whole(groups[server], server, looks[server])}
        for server in whole:
            await self._keep(server)
        if whole or len(servers) < len(state.joining):
            said = [
                Said(What.SERVER_WHOLE, f"server {server} of group {groups[server].id} holds a whole copy")
                for server in sorted(whole)
            ]
            seen = {
                server: Seen(groups[server].id, groups[server].servers[0], state.joining[server]) for server in whole
            }
            await self._ledger.change(lambda state, epoch: without_whole(state, seen), said)
        for server in sorted(whole):
            log.info("server_whole", group=groups[server].id, server=server)
        for server in servers:
            is_filled = server not in whole and self._is_filled(looks[server], server)
            self._note(server, groups[server] if is_filled else None)
        for server in servers:
            if server not in whole:
                self.reasons[server] = await self._see_to(groups[server], server, looks[server])
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

    async def _see_to(self, group: Group, server: str, look: tuple[Replication, Replication] | ServerFailed) -> str:
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
            await self._require_spare(group, server, said)
            self._require_free(group, server)
            return await self._tell(group, server)
        except TopomError as error:
            return str(error)

    async def _require_spare(self, group: Group, server: str, said: Replication) -> None:
        """Raises HoldsKeys for a server that may have what nobody else has, if nobody said that it may be wiped."""
        entry = self._ledger.state.joining.get(server)
        master = group.servers[0]
        if entry is None or entry.wipe or said.follows(master):
            return
        if not said.is_master and said.link_up:
            # run-id: an address may lead to a replica of another group by now, or have done so from the start.
            if copy := await self._copy_of(group.id, server, said):
                raise HoldsKeys(copy)
            return
        problem = await (self._problem_again(server, master) if entry.again else self._problem_of(server))
        if problem:
            raise HoldsKeys(f"{problem}; empty it, or remove it and add it again with --wipe")

    def _require_free(self, group: Group, server: str) -> None:
        """Raises FillingOvertaken while another server of the same nodes is being filled."""
        if other := self._filling.in_the_way(server, nodes_of(group, server)):
            raise FillingOvertaken(f"another server of its node, or of its master's, is being filled: {other}")

    async def _tell(self, group: Group, server: str) -> str:
        master = group.servers[0]

        async def look() -> None:
            await self._require_spare(group, server, await self._replication.look(server))

        def require() -> None:
            # one-owner: the server may have been removed meanwhile, and be the master of another group by now.
            now = homes(self._ledger.table).get(server)
            if now is None or now.id != group.id or server not in self._ledger.state.joining:
                raise FillingOvertaken("its group was changed just now")
            self._require_free(group, server)

        self._note(server, group)
        try:
            await self._filling.tell(server, master, group.id, look, require)
        except TopomError:
            self._note(server, None)
            raise
        log.info("server_told_to_join", group=group.id, server=server, master=master)
        self._told[server] = asyncio.get_running_loop().time()
        self._foreign.pop(server, None)
        return f"it was told to follow {master}"

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


def nodes_of(group: Group, server: str) -> frozenset[str]:
    """The nodes that filling a replica concerns: its own and its master's."""
    return frozenset({group.node_of(server), group.node_of(group.servers[0])})
