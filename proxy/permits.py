"""The permits by which this worker moves keys, see :mod:`slots.moving`: one a source, renewed when it is refused.

**one-way**: a permit is renewed only once nothing that an earlier attempt has sent can arrive at the target any more.
"""

import asyncio
from collections.abc import Callable

import structlog
from redis.asyncio import Redis

from proxy.settings import ProxySettings
from slots import address as addresses
from slots import moving
from slots.failures import FAILURES

log = structlog.get_logger()


class Permits:
    """The permits of one worker.

    Args:
        settings: timeouts, and how to get in at the servers.
        new_name: a name for one connection; by it the proxy can be cut off a server.
    """

    def __init__(self, settings: ProxySettings, new_name: Callable[[], str]) -> None:
        self._settings = settings
        self._new_name = new_name
        self._held: dict[tuple[str, str], str] = {}
        self._renewals: dict[tuple[str, str], asyncio.Task[str | None]] = {}

    def get(self, source: str, target: str) -> str:
        """What this worker believes to be the permit; empty if it has none."""
        return self._held.get((source, target), "")

    async def renew(self, source: str, target: str) -> str | None:
        """Get the permit that holds, settling what is unsettled; None once it is there, else why it is not.

        Whoever asks while it is being renewed gets the same answer.
        """
        pair = source, target
        task = self._renewals.get(pair)
        if task is None:
            task = self._renewals[pair] = asyncio.get_running_loop().create_task(self._renew(source, target))
            task.add_done_callback(lambda _: self._renewals.pop(pair))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return "keys do not move from there any more"

    async def end_under_way(self, address: str) -> str | None:
        """Have a server end every connection over which keys may be on their way to it; None, or why it has not."""
        limit = self._settings.backend_reply_seconds
        client = self._client(address)
        try:
            async with asyncio.timeout(limit):
                await moving.end_migrations(client)
        except TimeoutError:
            return f"no answer within {limit:g} s"
        except (moving.NotSettled, *FAILURES) as error:
            log.warning("moves_not_ended", server=address, reason=str(error))
            return str(error) or type(error).__name__
        finally:
            await client.aclose()
        return None

    def keep(self, sources: set[str]) -> None:
        """Forget the permits of all other sources."""
        self._held = {pair: permit for pair, permit in self._held.items() if pair[0] in sources}
        for pair, task in self._renewals.items():
            if pair[0] not in sources:
                task.cancel()

    async def close(self) -> None:
        """Stop renewing."""
        tasks = list(self._renewals.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(self, source: str, target: str) -> str | None:
        at_source, at_target = self._client(source), self._client(target)
        try:
            self._held[source, target] = await moving.settle(at_source, at_target, target)
        except (moving.NotSettled, moving.SameProcess, *FAILURES) as error:
            log.warning("permit_not_renewed", source=source, target=target, reason=str(error))
            return str(error) or type(error).__name__
        finally:
            await at_source.aclose()
            await at_target.aclose()
        return None

    def _client(self, address: str) -> Redis:
        host, port = addresses.split(address)
        limit = self._settings.backend_connect_seconds
        return self._settings.redis_access.client(
            host,
            port,
            client_name=self._new_name(),
            socket_connect_timeout=limit,
            socket_timeout=limit,
            single_connection_client=True,
        )
