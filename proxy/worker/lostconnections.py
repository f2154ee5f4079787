"""Connections that were lost with replies outstanding, until their servers have ended them (**drained**).

A server may still run the commands in a lost connection's socket buffer. So a worker acknowledges no lock at a server
while a connection that it lost there may be open: it reconnects, finds the lost connection by its name and has the
server end it.
"""

import asyncio
from collections.abc import Callable, Collection

import structlog

from proxy.settings import ProxySettings
from slots import address as addresses
from slots.backoff import Backoff
from slots.connections import admin_name, end_connections
from slots.failures import FAILURES

log = structlog.get_logger()


class LostConnections:
    """The lost connections of one worker that servers may still have open; has the servers end them.

    Args:
        settings: timeouts, and how to log in at the servers.
        on_ended: called whenever a server has ended all of them.
    """

    def __init__(self, settings: ProxySettings, on_ended: Callable[[], None]) -> None:
        self._settings = settings
        self._on_ended = on_ended
        self._names: dict[str, set[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._servers: frozenset[str] | None = None

    def lost(self, address: str, name: str) -> None:
        """Note that a connection ended with replies outstanding, and begin to have its server end it.

        A server that is no longer in the slot table is ignored.
        """
        if self._servers is not None and address not in self._servers:
            return
        self._names.setdefault(address, set()).add(name)
        if address not in self._tasks:
            self._tasks[address] = asyncio.get_running_loop().create_task(self._end_at(address))

    def servers_among(self, servers: Collection[str]) -> list[str]:
        """The ``servers`` at which commands of this worker may still run."""
        return sorted(address for address in servers if self._names.get(address))

    def keep_servers(self, servers: Collection[str]) -> None:
        """Forget servers that are no longer in the slot table: no slot can leave one of them."""
        self._servers = frozenset(servers)
        for address in self._names.keys() - self._servers:
            self._names[address].clear()

    def all_servers(self) -> list[str]:
        """All servers at which commands of this worker may still run."""
        return self.servers_among(self._names)

    async def close(self) -> None:
        """Stop trying."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _end_at(self, address: str) -> None:
        backoff = Backoff(self._settings.backend_retry_seconds_min, self._settings.backend_retry_seconds_max)
        try:
            while self._names.get(address):
                try:
                    await self._end(address)
                except FAILURES as error:
                    wait = backoff.next()
                    log.debug("lost_connection_not_ended", server=address, reason=str(error), retry_seconds=wait)
                    await asyncio.sleep(wait)
        finally:
            del self._tasks[address]
        self._on_ended()

    async def _end(self, address: str) -> None:
        host, port = addresses.split(address)
        names = sorted(self._names[address])
        limit = self._settings.backend_connect_seconds
        client = self._settings.redis_access.client(
            host,
            port,
            socket_connect_timeout=limit,
            socket_timeout=limit,
            protocol=2,
            client_name=admin_name(names[0]),
            single_connection_client=True,
        )
        try:
            for name in names:
                ended = await end_connections(client, name)
                self._names[address].discard(name)
                log.info("lost_connection_ended", server=address, connection=name, ended=ended)
        finally:
            await client.aclose()
