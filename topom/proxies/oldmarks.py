"""Deletes the marks of old fences at servers, so that they do not gather there for ever.

A mark keeps a proxy off that comes back after a pause or a cut. Most such proxies never come back, for their processes
have died, but topom cannot tell which. So a mark is kept for longer than any proxy believes a server without having
heard topom (**final-fence**; :data:`proxy.supervisor.standdown.evidence.KNOWN_SECONDS`, half as long by a clock that
does not step). After that a proxy must be answered by topom before it uses the server, and topom refuses it.

The age of a mark is not taken from the time of day: servers' clocks step. topom counts from when it first saw the mark
itself, at any server, for as long as it leads. The proxy was cut off before that. Another leader counts anew. So if no
topom leads for long enough the marks stay, which does no harm.

**bounded**: one number for each mark, and one look at each server in an hour, with the limits of
:class:`topom.servers.redis_servers.RedisServers`.
"""

import time
from collections.abc import Callable

import structlog
from redis.asyncio import Redis

from slots.connections import forget_marks, marks_of
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.periodic import Look, Loop, never_held
from topom.reasons import Reason
from topom.servers.replication import Servers

log = structlog.get_logger(__name__)

EVERY_SECONDS = 3600.0
FORGET_SECONDS = 14 * 86_400.0


class OldMarks(Loop):
    """The marks at the servers of one topom, in one term.

    Args:
        held: as for :class:`topom.periodic.Loop`.
        clock: a clock that no operator sets.
    """

    name = "old marks"
    first_seconds = EVERY_SECONDS

    def __init__(
        self,
        ledger: Ledger,
        servers: Servers,
        held: Callable[[], Reason | None] = never_held,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(held)
        self._ledger = ledger
        self._servers = servers
        self._clock = clock
        self._since: dict[str, float] = {}
        """When the mark of each instance was first seen."""

    async def look(self) -> Look:
        """Let every server forget old marks. A server that refuses, such as one without ACL, is left as it is."""
        servers = all_servers(self._ledger.table)
        found = [await self._forget(server) for server in servers]
        if None not in found:
            there = {instance for marks in found for instance in marks or ()}
            self._since = {instance: since for instance, since in self._since.items() if instance in there}
        silent = sum(marks is None for marks in found)
        return Look(f"{silent} of {len(servers)} servers keep their old marks" if silent else "", EVERY_SECONDS)

    async def _forget(self, server: str) -> set[str] | None:
        """The marks that a server has; None if it does not say."""
        marks: set[str] = set()

        async def forget(client: Redis) -> None:
            marks.update(await marks_of(client))
            now = self._clock()
            old = sorted(mark for mark in marks if self._since.setdefault(mark, now) <= now - FORGET_SECONDS)
            if old:
                await forget_marks(client, old)
                log.info("old_marks_forgotten", server=server, instances=len(old))

        if (problem := await self._servers.guarded(server, forget)) is not None:
            log.debug("old_marks_kept", server=server, reason=problem)
            return None
        return marks
