"""The permits by which this worker moves keys, see :mod:`slots.permits`: one for each source, renewed when doubted.

**one-way**: once a doubted permit was renewed, steps that were sent with it have no effect.
"""

import asyncio
from collections.abc import Callable

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy.settings import ProxySettings
from slots import address as addresses
from slots import permits
from slots.failures import FAILURES

log = structlog.get_logger()


class Permits:
    """The permits of one worker.

    Args:
        settings: timeouts, and how to log in at the servers.
        new_name: a name for one connection; by it the proxy can be cut off a server.
    """

    def __init__(self, settings: ProxySettings, new_name: Callable[[], str]) -> None:
        self._settings = settings
        self._new_name = new_name
        self._held: dict[tuple[str, str], str] = {}
        self._doubted: dict[tuple[str, str], str] = {}
        self._renewals: dict[tuple[str, str], asyncio.Task[str | None]] = {}
        # Why a renewal failed. It is logged once, for it is tried many times a second.
        self._reasons: dict[tuple[str, str], str] = {}

    def get(self, source: str, target: str) -> str:
        """The permit that this worker believes to hold; empty if it has none, or doubts it."""
        return self._held.get((source, target), "")

    def doubt(self, source: str, target: str, permit: str) -> None:
        """Steps with this permit may have run or not; it is not used any more."""
        pair = source, target
        if self._held.get(pair) == permit:
            self._doubted[pair] = self._held.pop(pair)

    async def renew(self, source: str, target: str) -> str | None:
        """Get a permit that holds in place of the doubted one. Gives None once there is one, else why there is none.

        A call during a renewal gets the same answer.
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

    def keep(self, sources: set[str]) -> None:
        """Forget the permits of all other sources."""
        for known in (self._held, self._doubted, self._reasons):
            for pair in [pair for pair in known if pair[0] not in sources]:
                del known[pair]
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
            doubted = self._doubted.get((source, target), "")
            permit = await permits.renew(at_source, at_target, target, doubted)
            while permit == self._doubted.get((source, target)):
                # It may have changed since it was looked at.
                doubted = permit
                permit = await permits.renew(at_source, at_target, target, doubted)
            self._held[source, target] = permit
            self._reasons.pop((source, target), None)
            # Another permit may have been doubted meanwhile.
            if self._doubted.get((source, target)) == doubted:
                self._doubted.pop((source, target))
        except (permits.NoPermit, permits.SameProcess, *FAILURES) as error:
            reason = str(error) or type(error).__name__
            if self._reasons.get((source, target)) != reason:
                self._reasons[source, target] = reason
                log.warning("permit_not_renewed", source=source, target=target, reason=reason)
            return reason
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
            # bounded: the waiting keys are tried again earlier than redis-py would give up.
            retry=Retry(NoBackoff(), 0),
        )
