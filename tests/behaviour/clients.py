"""Clients at work, and what counts as an error to them.

Each client counts up keys of its own, one after the other, and knows what the next answer has to be. It uses any
proxy that lets it in. **A client error** is

- a reply that is an error;
- another number than the next one: an increment that ran though it was not answered, ran twice, or was lost;
- no proxy that lets it in, or no answer, for as long as tests wait.

A connection that the proxy ends is not a client error, even with a request under way, *if that request has not run*.
The client then connects to any proxy and sends the request again. A client library does so by itself, if it retries
after a lost connection. Some of these clients are redis-py with three retries; any exception of theirs is a client
error, too.
"""

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tests.integration.cluster.harness import LIMIT, eventually, plain_client

KEYS = 12
"""The keys of one client, spread over all groups."""
PIPELINES = (1, 1, 1, 8)
"""Requests that clients without a library send at a time; there is one such client for each number."""
LIBRARY_CLIENTS = 2
REST_SECONDS = 0.02
"""Between two requests of a client."""
RETRIES = 3


class Client:
    """One client; ``counts`` is what was answered last, by key."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        name = secrets.token_hex(4)
        self.counts = {f"{name}:{number}": 0 for number in range(KEYS)}
        self.answers = 0
        self.errors: list[str] = []
        self.moved = 0
        """How often its connection was ended and it went somewhere else."""
        self.ending = False

    async def work(self) -> None:
        """Until ``ending``."""
        raise NotImplementedError

    def take(self, key: str, answer: object) -> None:
        """The answer to one increment."""
        self.answers += 1
        if answer == self.counts[key] + 1:
            self.counts[key] += 1
            return
        self.errors.append(f"{key} was answered {answer!r} at {self.counts[key]}")
        if isinstance(answer, int):
            self.counts[key] = answer


class BareClient(Client):
    """One without a library, which sends ``pipelined`` requests at a time."""

    def __init__(self, addresses: Sequence[str], pipelined: int) -> None:
        super().__init__(addresses)
        self.pipelined = pipelined

    async def work(self) -> None:
        keys = itertools.cycle(self.counts)
        waiting: deque[str] = deque()
        for address in itertools.cycle(self.addresses):
            if self.ending:
                return
            host, _, port = address.rpartition(":")
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
            except ConnectionError:
                await asyncio.sleep(REST_SECONDS)
                continue
            try:
                while waiting or not self.ending:
                    waiting.extend(itertools.islice(keys, self.pipelined - len(waiting)))
                    writer.write(b"".join(b"INCR %s\r\n" % key.encode() for key in waiting))
                    while waiting:
                        line = await reader.readline()
                        if not line.endswith(b"\r\n"):
                            raise ConnectionResetError
                        answer = line.decode().strip()
                        self.take(waiting.popleft(), int(answer[1:]) if answer.startswith(":") else answer)
                    await asyncio.sleep(REST_SECONDS)
            except ConnectionError:
                self.moved += 1
            finally:
                writer.close()


class Everywhere(redis.asyncio.Connection):
    """A connection of redis-py that goes to the first proxy that lets it in."""

    addresses: ClassVar[list[str]] = []

    async def _connect(self) -> None:
        for address in self.addresses:
            self.host, _, port = address.rpartition(":")
            self.port = int(port)
            try:
                return await super()._connect()
            except ConnectionRefusedError:
                continue
        raise ConnectionRefusedError("no proxy lets us in")


class LibraryClient(Client):
    """One that uses redis-py, with a few retries."""

    async def work(self) -> None:
        Everywhere.addresses = list(self.addresses)
        pool: Any = redis.asyncio.ConnectionPool(
            connection_class=Everywhere, retry=Retry(NoBackoff(), RETRIES), socket_timeout=LIMIT
        )
        async with redis.asyncio.Redis(connection_pool=pool) as client:
            for key in itertools.cycle(self.counts):
                if self.ending:
                    return
                try:
                    self.take(key, await client.incr(key))
                except (RedisError, OSError) as error:
                    self.take(key, f"{type(error).__name__}: {error}")
                await asyncio.sleep(REST_SECONDS)


class Clients:
    """Several clients of both kinds, at work inside the block."""

    def __init__(self, addresses: Sequence[str]) -> None:
        turned = itertools.cycle([*addresses[at:], *addresses[:at]] for at in range(len(addresses)))
        self.clients: list[Client] = [BareClient(next(turned), pipelined) for pipelined in PIPELINES]
        self.clients += [LibraryClient(addresses) for _ in range(LIBRARY_CLIENTS)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(client.work()) for client in self.clients]
        await self.go_on()
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            client.ending = True
        for task in self._tasks:
            if error[0] is not None:
                task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=error[0] is not None)
        assert len(ended) == len(self.clients)

    @property
    def errors(self) -> list[str]:
        """All client errors up to now."""
        return [error for client in self.clients for error in client.errors]

    @property
    def moved(self) -> int:
        """How often the connection of one of them was ended."""
        return sum(client.moved for client in self.clients)

    async def go_on(self) -> None:
        """Wait until every client has had answers for each of its keys."""
        enough = [client.answers + KEYS for client in self.clients]

        async def look() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return all(client.answers >= least for client, least in zip(self.clients, enough, strict=True))

        await eventually(look, bool, f"answers to all clients ({self.errors[-3:]})")

    async def check(self, address: str) -> None:
        """Through this proxy everything is as it was answered last. After the block."""
        counts = {key: count for client in self.clients for key, count in client.counts.items()}
        async with plain_client(address) as client:
            values = await client.mget(list(counts))
        found = dict(zip(counts, (int(value or 0) for value in values), strict=True))
        assert found == counts
