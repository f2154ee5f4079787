"""Has servers forget the marks of old fences, so that they do not gather there for ever.

A mark keeps a proxy off that comes back after a pause or a cut, and nobody can say of most that they never will: their
processes have died. So a mark is kept for longer than any proxy believes a server without having heard topom
(**final-fence**; :data:`proxy.unfenced.KNOWN_SECONDS`, half as long by a clock that does not step). After that a proxy
has to be answered by topom before it uses the server, and topom refuses it.

How old a mark is, no clock of day says: those of servers step. topom counts from when it first saw the mark itself, at
whichever server, for as long as it leads; the proxy was cut off before that. A topom that leads anew begins anew, so
where none leads for long the marks stay, which does no harm.

**bounded**: one number a mark, and one look at each server an hour, with the limits of
:class:`topom.servers.redis_servers.RedisServers`.
"""

import asyncio
import time
from collections.abc import Callable

import structlog
from redis.asyncio import Redis

from slots.connections import forget_marks, marks_of
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.servers.replication import Servers

log = structlog.get_logger(__name__)

EVERY_SECONDS = 3600.0
FORGET_SECONDS = 14 * 86_400.0


class OldMarks:
    """The marks at the servers of one topom, in one term of leading.

    Args:
        clock: one that no operator sets.
    """

    def __init__(self, ledger: Ledger, servers: Servers, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._servers = servers
        self._clock = clock
        self._since: dict[str, float] = {}
        """When the mark of each instance was first seen."""

    async def run(self) -> None:
        """Look every hour, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Have every server forget. One that refuses, as servers without ACL do, is left as it is."""
        servers = all_servers(self._ledger.table)
        found = [await self._forget(server) for server in servers]
        if None not in found:
            there = {instance for marks in found for instance in marks or ()}
            self._since = {instance: since for instance, since in self._since.items() if instance in there}

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
