"""The most trusting client that caches: it keeps each value as it comes until it is told to drop it, and no longer than
its connections; and a load of such clients, whose values have to be those of the servers in the end."""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import hiredis
import redis.asyncio
import redis.exceptions

from proxy.engine.backend import command

LIMIT = 60.0
READS_AT_ONCE = 8
ERRORS = (redis.exceptions.RedisError, hiredis.HiredisError, OSError)

Requests = list[tuple[bytes | str | int, ...]]
CACHING = ("CLIENT", "CACHING", "YES")


def plainly(key: bytes) -> Requests:
    return [("GET", key)]


def with_others(key: bytes) -> Requests:
    return [("MGET", key, b"key:1", b"key:2", b"key:3")]


def by_script(key: bytes) -> Requests:
    return [("EVAL", "return redis.call('GET', KEYS[1])", 1, key)]


def in_transaction(key: bytes) -> Requests:
    return [("MULTI",), ("PTTL", key), ("GET", key), ("EXEC",)]


def by_choice(key: bytes) -> Requests:
    return [CACHING, ("GET", key)]


def by_choice_in_transaction(key: bytes) -> Requests:
    return [CACHING, *in_transaction(key)]


def value_in(reply: Any, how: "How") -> Any:
    """The value of the key in the last reply."""
    if not isinstance(reply, list):
        return reply
    return reply[0] if how is with_others else reply[-1]


How = Callable[[bytes], Requests]
"""How a client reads a key: the requests, which go in one piece."""
WAYS: tuple[tuple[How, tuple[str, ...]], ...] = (
    (plainly, ()),
    (plainly, ("BCAST",)),
    (plainly, ("OPTOUT", "NOLOOP")),
    (with_others, ()),
    (by_script, ()),
    (in_transaction, ()),
    (by_choice, ("OPTIN",)),
    (by_choice_in_transaction, ("OPTIN",)),
    (plainly, ("REDIRECT",)),
    (in_transaction, ("BCAST", "REDIRECT")),
)
"""With the options of CLIENT TRACKING. The client adds the number of the connection to REDIRECT, and speaks RESP2."""
CHANNEL = b"__redis__:invalidate"


class CachingClient:
    """One connection and its cache; with REDIRECT, another connection over which it is told.

    Args:
        address: of the proxy.
        how: it reads a key.
        options: of CLIENT TRACKING.

    Attributes:
        values: the cache, by key.
        hits: reads answered from it.
        drops: keys that it was told to drop.
        flushes: how often it was told to drop everything.
    """

    def __init__(self, address: str, how: How, options: Sequence[str]) -> None:
        self.name = " ".join((how.__name__, *options))
        self._how = how
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._options = options
        self.values: dict[bytes, Any] = {}
        self.hits = self.drops = self.flushes = 0
        self._pending: deque[tuple[bytes | None, asyncio.Future[Any]]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._listening is not None:
            self._listening.cancel()
            self._other.close()
        self._writer.close()

    async def _connect(self) -> None:
        options: list[str | int] = list(self._options)
        if "REDIRECT" in options:
            options.append(await self._listen())
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._reading = asyncio.create_task(self._read())
        if "REDIRECT" not in options:
            await self._ask(None, "HELLO", 3)
        await self._ask(None, "CLIENT", "TRACKING", "ON", *options)

    async def _listen(self) -> int:
        """Open the connection over which it is told; its number."""
        reader, self._other = await asyncio.open_connection(self._host, self._port)
        self._other.write(command(("CLIENT", "ID")))
        number = int((await reader.readline())[1:])
        self._other.write(command(("SUBSCRIBE", CHANNEL)))
        self._listening = asyncio.create_task(self._hear(reader))
        return number

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        parser = hiredis.Reader()
        with suppress(OSError):
            while data := await reader.read(65536):
                parser.feed(data)
                while (message := parser.gets()) is not False:
                    if message[0] == b"message":
                        self._drop(message[2])
                        # The value may be on its way over the other connection.
                        self._pending = deque(
                            (None if message[2] is None or key in message[2] else key, reply)
                            for key, reply in self._pending
                        )
        # Nobody tells it any more.
        self._writer.close()

    def _ask(self, key: bytes | None, *words: bytes | str | int) -> asyncio.Future[Any]:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append((key, reply))
        self._writer.write(command(words))
        return reply

    async def _read(self) -> None:
        parser = hiredis.Reader()
        with suppress(OSError):
            while data := await self._reader.read(65536):
                parser.feed(data)
                while (reply := parser.gets()) is not False:
                    self._take(reply)
        self._lost()

    def _take(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification):
            self._drop(reply[1])
            return
        key, waiting = self._pending.popleft()
        if key is not None and not isinstance(reply, hiredis.ReplyError):
            self.values[key] = value_in(reply, self._how)
        if not waiting.done():
            waiting.set_result(reply)

    def _drop(self, keys: list[bytes] | None) -> None:
        if keys is None:
            self.flushes += 1
            self.values.clear()
        for key in keys or ():
            self.drops += 1
            self.values.pop(key, None)

    def _lost(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            self._other.close()
        self.values.clear()
        self._reading = None
        while self._pending:
            _, waiting = self._pending.popleft()
            if not waiting.done():
                waiting.set_exception(ConnectionError("the connection was lost"))

    async def get(self, key: bytes) -> Any:
        """The value of a key, from the cache if it is there."""
        if key in self.values:
            self.hits += 1
            return self.values[key]
        if self._reading is None:
            await self._connect()
        *before, last = self._how(key)
        for words in before:
            self._ask(None, *words)
        return await self._ask(key, *last)


class Load:
    """Clients that read, and writers that write, until told to end.

    Args:
        addresses: of the proxies; each has a client that caches for each of the ways.
        keys: that are read and written.
    """

    def __init__(self, addresses: Sequence[str], keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._addresses = addresses
        self.clients = [
            CachingClient(address, how, options) for address, (how, options) in itertools.product(addresses, WAYS)
        ]
        self.written = 0
        self._ending = False

    async def run(self, disturb: Callable[[], Awaitable[None]]) -> None:
        """Read and write while ``disturb`` runs; then all caches have to come to hold what the servers hold."""
        for client in self.clients:
            await client.__aenter__()
        tasks = [asyncio.create_task(self._reads(client, at)) for client in self.clients for at in range(READS_AT_ONCE)]
        tasks += [asyncio.create_task(self._writes(address)) for address in self._addresses]
        try:
            await disturb()
        finally:
            self._ending = True
            await asyncio.gather(*tasks)
        await self._settle()
        for client in self.clients:
            await client.__aexit__(None, None, None)
        assert self.written
        assert all(client.hits and client.drops for client in self.clients)

    async def _reads(self, client: CachingClient, at: int) -> None:
        for key in itertools.cycle(self._keys[at:] + self._keys[:at]):
            if self._ending:
                return
            try:
                await client.get(key)
            except ERRORS:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0)

    async def _writes(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        async with redis.asyncio.Redis(host=host, port=int(port), socket_timeout=LIMIT) as client:
            for key in itertools.cycle(self._keys):
                if self._ending:
                    return
                with suppress(*ERRORS):
                    self.written += 1
                    await client.set(key, self.written)
                await asyncio.sleep(0.002)

    async def _settle(self) -> None:
        """Nobody writes or reads any more: what is kept has to be what is there."""
        host, _, port = self._addresses[0].rpartition(":")
        stale: list[Any] = []
        try:
            async with redis.asyncio.Redis(host=host, port=int(port)) as plain, asyncio.timeout(LIMIT):
                while stale := await self._stale(plain):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"(client, key, what it keeps, what is there): {stale[:20]}") from None

    async def _stale(self, plain: redis.asyncio.Redis) -> list[tuple[str, bytes, Any, Any]]:
        try:
            there = {key: await plain.get(key) for key in self._keys}
        except ERRORS as error:
            return [("", b"", None, error)]
        return [
            (client.name, key, kept, there[key])
            for client in self.clients
            for key, kept in client.values.items()
            if kept != there[key]
        ]


async def kill_what_tells(ports: Sequence[int]) -> int:
    """End the connections by which the servers at these ports tell workers of changes; how many there were."""
    killed = 0
    for port in ports:
        async with redis.asyncio.Redis(port=port, socket_timeout=LIMIT) as server:
            for one in await server.client_list():
                if "t" in one["flags"]:
                    with suppress(redis.exceptions.ResponseError):  # it is gone
                        killed += await server.client_kill_filter(_id=one["id"])
    return killed
