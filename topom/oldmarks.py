"""Has servers forget the marks of old fences, so that they do not gather there for ever.

A mark keeps a proxy off that comes back after a pause or a cut, and nobody can say of most that they never will: their
processes have died. So a mark is kept for longer than any proxy believes a server without having heard topom
(**final-fence**; :data:`proxy.unfenced.KNOWN_SECONDS`, half as long by a clock that does not step). After that a proxy
has to be answered by topom before it uses the server, and topom refuses it. The ACL user goes first, at replicas, too,
and the field by which its age is known a day later.

**bounded**: one look at each server an hour, with the limits of :class:`topom.redis_servers.RedisServers`.
"""

import asyncio

import structlog
from redis.asyncio import Redis

from slots.connections import forget_old_marks
from topom.batches import all_servers
from topom.ledger import Ledger
from topom.redis_servers import RedisServers

log = structlog.get_logger(__name__)

EVERY_SECONDS = 3600.0
DAY = 86_400.0
USER_SECONDS, FIELD_SECONDS = 14 * DAY, 15 * DAY


class OldMarks:
    """The marks at the servers of one topom."""

    def __init__(self, ledger: Ledger, servers: RedisServers) -> None:
        self._ledger = ledger
        self._servers = servers

    async def run(self) -> None:
        """Look every hour, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            for server in all_servers(self._ledger.table):
                await self.forget(server)

    async def forget(self, server: str) -> None:
        """Have one server forget. One that refuses, as servers without ACL do, is left as it is."""

        async def forget(client: Redis) -> None:
            if gone := await forget_old_marks(client, USER_SECONDS, FIELD_SECONDS):
                log.info("old_marks_forgotten", server=server, instances=len(gone))

        if (problem := await self._servers.guarded(server, forget)) is not None:
            log.debug("old_marks_kept", server=server, reason=problem)
