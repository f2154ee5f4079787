"""Ends the connections that dead workers, and former identities of live ones, have left at the servers.

A closed socket is not enough for **drained**: the server may not have read the last bytes yet. So the server is asked
for the connections by name and told to end them; see :mod:`slots.connections`. Until that is done, nothing leaves the
groups whose master it is. (A live worker does the same for single connections that it loses; see
:mod:`proxy.worker.lostconnections`.)
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from slots import address
from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.connections import ADMIN, end_connections
from slots.failures import FAILURES

CONNECT_SECONDS = 1.0
REPLY_SECONDS = 2.0
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 2.0
COMPLAIN_EVERY = 15  # failures between two log events about the same server

log = structlog.get_logger()


class Leftovers:
    """The connections that have to be ended, by server; ends them.

    Args:
        access: how to log in at the servers.
        ended: called each time a server has ended them.
    """

    def __init__(self, access: ServerAccess, ended: Callable[[], None]) -> None:
        self._access = access
        self._ended = ended
        self._groups: dict[tuple[str, str], frozenset[int]] = {}  # (prefix, server) -> the groups whose master it was
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def groups(self) -> frozenset[int]:
        """Groups at whose masters old connections may still be alive."""
        return frozenset().union(*self._groups.values())

    @property
    def servers(self) -> list[str]:
        """Servers that are still to be dealt with."""
        return sorted({server for _, server in self._groups})

    def hold(self, prefix: str, servers: Mapping[str, Iterable[int]]) -> None:
        """Count the servers as those that have leftovers from now on; :meth:`begin` starts to end the connections.

        Args:
            prefix: what the names of the connections begin with.
            servers: ``host:port``, and the groups whose master it was meanwhile.
        """
        for server, groups in servers.items():
            self._groups[prefix, server] = frozenset(groups)

    def begin(self, prefix: str) -> None:
        """New connections with that name are no longer opened: end the existing ones."""
        for key in self._groups:
            if key[0] == prefix and key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._end_at(*key))

    def keep_only(self, servers: Iterable[str]) -> None:
        """Forget servers that are not in the newest table: what happens there no longer matters."""
        kept = set(servers)
        for key in [key for key in self._groups if key[1] not in kept]:
            log.warning("leftover_connections_forgotten", server=key[1], connections=key[0])
            del self._groups[key]
            if (task := self._tasks.pop(key, None)) is not None:
                task.cancel()

    async def wait(self, seconds: float) -> bool:
        """Wait until everything begun is done, for ``seconds`` at most; say whether all is."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)
        return not self._groups

    async def close(self) -> None:
        """Stop trying."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_at(self, prefix: str, server: str) -> None:
        """End the connections at one server; try until it works."""
        failures = 0
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        while True:
            try:
                ended = await self._end(prefix, server)
            except (*FAILURES, ValueError) as error:
                if failures % COMPLAIN_EVERY == 0:
                    log.warning(
                        "leftover_connections_not_ended",
                        server=server,
                        connections=prefix,
                        error=str(error) or repr(error),
                    )
                failures += 1
                await asyncio.sleep(backoff.next())
            else:
                log.info("leftover_connections_ended", server=server, connections=prefix, ended=ended)
                del self._tasks[prefix, server]
                del self._groups[prefix, server]
                self._ended()
                return

    async def _end(self, prefix: str, server: str) -> int:
        host, port = address.split(server)
        client = self._access.client(
            host,
            port,
            protocol=2,
            client_name=ADMIN,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=REPLY_SECONDS,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
        )
        try:
            return await end_connections(client, prefix)
        finally:
            await client.aclose()
