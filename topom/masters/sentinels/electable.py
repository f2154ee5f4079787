"""Keeps Sentinels from electing servers that hold no whole copy of their group, or should not be in it.

A Sentinel elects any server that follows a group's master, known to topom or not: a copy that is just being made, one
that differs from its master, a server that has left its group. It elects no server with a ``replica-priority`` of 0. So
topom sets that at the server itself, before the server is told to follow, and sets it back once the server may be
elected. The former priority is stored before the change, so that the next leader can set it back. A priority of 0 that
topom has not set stays. If a server left before its priority was set back, the stored one is kept: its configuration
file may have the 0, and it may come back.

A restarted server has the priority of its configuration file. A Sentinel asks for priorities every ten seconds, and at
once when it finds the master down. So it may take :data:`LOOK_SECONDS` and a moment until what is set here counts. A
server that is elected in between is not followed, unless it is in the group (:mod:`topom.masters.sentinels.following`).
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from slots.counting import counted
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, known_servers, leaving_servers
from topom.masters.choice import electable
from topom.periodic import Look, Loop
from topom.servers.lastcopy import ServerFailed
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)

LOOK_SECONDS = 10.0
"""Seconds between two looks at whether servers have the right priority."""
MOST_KEPT = 256
"""How many priorities are stored; if there are more, those of servers that topom does not know now are forgotten."""


def barred(state: ClusterState, has_failed: Callable[[str], bool], following: Collection[str]) -> frozenset[str]:
    """Servers that Sentinels must not elect: replicas that :mod:`topom.masters.choice` refuses, and servers that follow
    a group's master without being in the group.

    Args:
        has_failed: whether a server counts as failed, so that it could not be elected.
        following: servers that follow the master of a group without being in it.
    """
    run = state.placement.run
    copying = {step.server for step in run.steps if step.state == "copying"} if run is not None else set()
    found = {*following, *(copying & state.pool.keys())}
    leaving = leaving_servers(state)
    for group in state.table.groups.values():
        found |= electable(state, group, leaving, has_failed).keys()
    return frozenset(found)


class Priorities(Loop):
    """The priorities of one topom's servers.

    Args:
        wanted: gives the servers that must not be elected now.
    """

    name = "priorities"

    def __init__(self, ledger: Ledger, replication: ServerReplication, wanted: Callable[[], Collection[str]]) -> None:
        super().__init__()
        self._ledger = ledger
        self._replication = replication
        self._wanted = wanted
        self._one_at_a_time = asyncio.Lock()
        ledger.listen(self._changed)
        self._said: dict[str, str] = {}
        self._gone: set[str] = set()
        """Servers that topom does not know now, and that did not answer when topom wanted to set their priority
        back."""

    async def bar(self, server: str) -> None:
        """Keep Sentinels from electing a server from now on; :meth:`look` keeps it so while that is wanted.

        Raises:
            ServerFailed: it does not answer, or does not let topom change its configuration.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        async with self._one_at_a_time:
            await self._bar(server)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        self.wake()

    async def look(self) -> Look:
        """Set priorities, and set them back, as is wanted now.

        Raises as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        wanted = frozenset(self._wanted())
        kept = self._ledger.state.priorities.keys()
        if not wanted and not kept:
            self._said.clear()
            return Look("", LOOK_SECONDS)
        async with self._one_at_a_time:
            await asyncio.gather(*(self._try_to_bar(server) for server in sorted(wanted)))
            self._gone &= kept - {*known_servers(self._ledger.state)}
            await asyncio.gather(*(self._set_back(server) for server in sorted(kept - wanted - self._gone)))
        for server in self._said.keys() - wanted:
            del self._said[server]
        return Look(f"{counted(len(wanted), 'server is', 'servers are')} kept from being elected", LOOK_SECONDS)

    async def _try_to_bar(self, server: str) -> None:
        try:
            await self._bar(server)
        except ServerFailed as error:
            if self._said.get(server) != str(error):
                log.warning("server_may_be_elected", server=server, reason=str(error))
            self._said[server] = str(error)
        else:
            self._said.pop(server, None)

    async def _bar(self, server: str) -> None:
        priority = await self._replication.priority(server)
        if priority == 0:
            return
        # The former priority is stored first, so that the next leader can set it back.
        await self._ledger.change(lambda state, epoch: _with(state, server, priority))
        await self._replication.set_priority(server, 0)
        log.info("server_not_electable", server=server, priority=priority)

    async def _set_back(self, server: str) -> None:
        """Set a server's former priority back; if it does not answer, again and again while topom knows it."""
        try:
            now = await self._replication.priority(server)
            if server in self._wanted():
                return
            priority = self._ledger.state.priorities.get(server, 0)
            if now == 0 and priority:
                await self._replication.set_priority(server, priority)
                # Its configuration file may have been written meanwhile, with the 0 in it.
                await self._replication.keep(server)
                log.info("server_electable", server=server, priority=priority)
        except ServerFailed as error:
            log.debug("priority_not_set_back", server=server, reason=str(error))
            if server not in known_servers(self._ledger.state):
                self._gone.add(server)
            return
        await self._ledger.change(lambda state, epoch: _without(state, server))


def _with(state: ClusterState, server: str, priority: int) -> ClusterState:
    if state.priorities.get(server) == priority:
        return state
    known = known_servers(state)
    strange = [other for other in state.priorities if other not in known]
    dropped = strange[: max(0, len(state.priorities) + 1 - MOST_KEPT)]
    kept = {other: value for other, value in state.priorities.items() if other not in dropped}
    return replace(state, priorities={**kept, server: priority})


def _without(state: ClusterState, server: str) -> ClusterState:
    if server not in state.priorities:
        return state
    return replace(state, priorities={name: value for name, value in state.priorities.items() if name != server})
