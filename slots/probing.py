"""Asks servers again and again whether they answer and which process they are, and knows for how long each is silent.

topom and every proxy do so, each over its own links; what they find is put together in :mod:`topom.servers.detector`.

**bounded**: one connection to each server, one question at a time, which is given up after ``limit_seconds``.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, ResponseError

from slots.access import ServerAccess
from slots.connections import PREFIX
from slots.failures import FAILURES
from slots.replies import info_of

NAME = f"{PREFIX}.probing"
"""Name of these connections. They send nothing but INFO, and nobody ends them by it."""
ANSWERS = (ResponseError, AuthenticationError, BusyLoadingError)
"""Errors that only a server that answers can give."""


UNANSWERED_SECONDS = 5.0
"""A proxy says nothing of a server that has never answered it before it has asked for so long: it may be slow to begin.
So whoever says of a server that it answered more lately than that has had an answer."""


class Probing:
    """The servers of one process.

    Args:
        access: how to get in at the servers.
        seconds: between two questions to a server.
        limit_seconds: how long an answer may take.
        seen: told of each server that says it, and its run id.
    """

    def __init__(
        self,
        access: ServerAccess,
        seconds: float,
        limit_seconds: float,
        seen: Callable[[str, str], object] = lambda server, process: None,
    ) -> None:
        self._access = access
        self._seconds = seconds
        self._limit = limit_seconds
        self._seen = seen
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heard: dict[str, float] = {}
        self._answered: set[str] = set()
        self._closed = False

    def keep(self, servers: Iterable[str]) -> None:
        """Ask these servers, ``host:port`` each, and no others. Within a running event loop."""
        wanted = set() if self._closed else set(servers)
        for server in self._tasks.keys() - wanted:
            self._tasks.pop(server).cancel()
            self._heard.pop(server, None)
            self._answered.discard(server)
        for server in wanted - self._tasks.keys():
            self._heard[server] = asyncio.get_running_loop().time()
            self._tasks[server] = asyncio.create_task(self._ask(server), name=f"probing {server}")

    def silences(self, unanswered_from: float = 0.0) -> dict[str, float]:
        """Seconds since each server's latest answer, or since it was first asked.

        Args:
            unanswered_from: seconds before which a server that has never answered is left out.
        """
        now = asyncio.get_running_loop().time()
        silences = {server: round(now - heard, 3) for server, heard in self._heard.items()}
        return {
            server: silence
            for server, silence in silences.items()
            if server in self._answered or silence >= unanswered_from
        }

    async def close(self) -> None:
        """Ask nobody any more, whatever :meth:`keep` is told from now on."""
        tasks = list(self._tasks.values())
        self.keep(())
        self._closed = True
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, server: str) -> None:
        loop = asyncio.get_running_loop()
        host, _, port = server.rpartition(":")
        client = self._access.client(
            host.strip("[]"),
            int(port),
            client_name=NAME,
            socket_timeout=self._limit,
            socket_connect_timeout=self._limit,
            retry=Retry(NoBackoff(), 0),
            max_connections=1,
        )
        try:
            while True:
                began = loop.time()
                if await self._answers(server, client):
                    self._heard[server] = loop.time()
                    self._answered.add(server)
                wait = self._seconds * random.uniform(0.8, 1.2)
                await asyncio.sleep(wait)
                late = loop.time() - began - wait - self._limit
                if late > self._limit:
                    # This process was held up: the silence was ours, not the server's.
                    self._heard[server] += late
        finally:
            await client.aclose()

    async def _answers(self, server: str, client: Redis) -> bool:
        try:
            async with asyncio.timeout(self._limit):
                said = await info_of(client, "server")
            # Whatever says something else is no Redis server that could be used.
            self._seen(server, said.text("run_id"))
        except ANSWERS:
            return True
        except FAILURES:
            return False
        return True
