"""Clients that cache what they have read (CLIENT TRACKING), beside all others: a changed value must not live on.

A client keeps each value until it is told to drop it, and no longer than its connection. A proxy that stands still says
nothing, so a client gives up a connection over which it hears nothing for :data:`PATIENCE_SECONDS`. Otherwise it trusts
in every word that it is told, and in every silence.

A value of the keys here comes once: each write has another. So a value is older than a change if it was read before the
change was sent. It may be used for :data:`PROMISED_SECONDS` after the change was acknowledged, and once nothing fails
any more, no client may keep anything else than what is there.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import hiredis

from migrator.connection import pack
from tests.histories.clients import CONNECT_SECONDS, Lost
from tests.histories.cluster import PROXY_SETTINGS
from tests.histories.operations import Operation, Outcome, Partition
from tests.histories.report import Finding
from tests.histories.workload import DATABASES, FLUSHED_DATABASE, Workload

OPTIONS: dict[int, tuple[str, ...]] = {DATABASES[0]: (), DATABASES[1]: ("BCAST",), FLUSHED_DATABASE: ()}
"""Those of CLIENT TRACKING, by the database: each proxy has a client for each."""
READ_SECONDS = 0.025
"""Between two reads of a client."""
PAUSE_SECONDS = 0.1
"""Before a client connects again."""
PATIENCE_SECONDS = 1.5 * PROXY_SETTINGS["lock_hold_seconds"]
"""Longer than a proxy holds a request, or waits for a server: what is behind it waits, too."""
LATE_SECONDS = 1.0
"""What a busy machine takes."""
PROMISED_SECONDS = 2 * PROXY_SETTINGS["backend_reply_seconds"] + PATIENCE_SECONDS + LATE_SECONDS
"""For so long a value may be old (docs/client-caching.md), with the patience of a client whose proxy stands still."""
LOOK_SECONDS = 0.05
SHOWN = 5


@dataclass(slots=True)
class Kept:
    """A value in a cache.

    Attributes:
        client: that has it, in words.
        partition: of its key.
        value: of the key; None if there was none.
        read: when it came, in seconds of the run.
        used: when it was taken from the cache last.
    """

    client: str
    partition: Partition
    value: Any
    read: float
    used: float


class CachingClient:
    """One connection after another, each with its cache.

    Args:
        address: of the proxy.
        number: of the proxy.
        database: that its keys are in.
        options: of CLIENT TRACKING.
        workload: has the keys that it reads.
        chance: chooses among them.
        now: the seconds of the run.
    """

    def __init__(
        self,
        address: str,
        number: int,
        database: int,
        options: Sequence[str],
        workload: Workload,
        chance: random.Random,
        now: Callable[[], float],
    ) -> None:
        self.name = f"{' '.join(('caching client', *options))} of proxy {number + 1} in database {database}"
        self.values: dict[bytes, Kept] = {}
        self.past: list[Kept] = []
        """What it has had in its cache, and used."""
        self._host, _, self._port = address.rpartition(":")
        self._database = database
        self._options = options
        self._workload = workload
        self._chance = chance
        self._now = now
        self._heard = 0.0
        self._asked: deque[tuple[Partition | None, asyncio.Future[Any]]] = deque()

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                with suppress(OSError, Lost, hiredis.HiredisError):
                    await self._connected()
                self.drop()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.drop()  # what it has used is judged

    def drop(self, key: bytes | None = None) -> None:
        """Drop a key, or everything."""
        keys = list(self.values) if key is None else [key]
        gone = [self.values.pop(one) for one in keys if one in self.values]
        self.past += [kept for kept in gone if kept.used > kept.read]

    async def _connected(self) -> None:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(self._host, int(self._port))
        self._heard = self._now()
        self._asked.clear()
        listening = asyncio.create_task(self._listen(reader))
        try:
            ready = [
                self._ask(writer, None, *words)
                for words in (
                    ("HELLO", "3"),
                    ("SELECT", str(self._database)),
                    ("CLIENT", "TRACKING", "ON", *self._options),
                )
            ]
            for reply in ready:
                if isinstance(await self._hear(listening, reply), hiredis.ReplyError):
                    return
            while True:
                await asyncio.sleep(READ_SECONDS)
                await self._hear(listening, self._read(writer))
        finally:
            listening.cancel()
            writer.close()

    async def _hear(self, listening: "asyncio.Task[None]", reply: "asyncio.Future[Any] | None") -> Any:
        """A reply; raises Lost if the connection ends, or is silent for too long."""
        while not listening.done():
            if reply is None or reply.done():
                if self._now() - self._heard > PATIENCE_SECONDS:
                    break
                return None if reply is None else reply.result()
            await asyncio.wait([listening, reply], timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if self._now() - self._heard > PATIENCE_SECONDS:
                break
        raise Lost("the connection has ended, or is silent")

    def _ask(self, writer: asyncio.StreamWriter, partition: Partition | None, *words: str) -> "asyncio.Future[Any]":
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append((partition, reply))
        writer.write(pack(*words))
        return reply

    def _read(self, writer: asyncio.StreamWriter) -> "asyncio.Future[Any] | None":
        """Read a key, from the cache if it is there. None if nothing has to be waited for."""
        partitions = self._workload.cached(self._database)
        if self._now() - self._heard > PATIENCE_SECONDS / 3:
            return self._ask(writer, None, "PING")
        if not partitions:
            return None
        partition = self._chance.choice(partitions)
        kept = self.values.get(partition.keys[0].encode())
        if kept is None:
            return self._ask(writer, partition, "GET", partition.keys[0])
        kept.used = self._now()
        return None

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        parser = hiredis.Reader()
        with suppress(OSError):
            while data := await reader.read(65536):
                self._heard = self._now()
                parser.feed(data)
                while (reply := parser.gets()) is not False:
                    self._take(reply)

    def _take(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification):
            if reply[1] is None:
                self.drop()
            for key in reply[1] or ():
                self.drop(key)
            return
        partition, waiting = self._asked.popleft()
        if partition is not None and not isinstance(reply, hiredis.ReplyError):
            now = self._now()
            self.values[partition.keys[0].encode()] = Kept(self.name, partition, reply, now, now)
        if not waiting.done():
            waiting.set_result(reply)


class Caches:
    """The clients of a run, which read while it is a context.

    Args:
        proxies: addresses of the proxies.
        workload: has the keys that they read.
        seed: of their choices.
        now: the seconds of the run.
    """

    def __init__(self, proxies: Sequence[str], workload: Workload, seed: int, now: Callable[[], float]) -> None:
        chance = random.Random(f"caches {seed}")
        self._now = now
        self._clients = [
            CachingClient(address, number, database, options, workload, chance, now)
            for number, address in enumerate(proxies)
            for database, options in OPTIONS.items()
        ]

    async def __aenter__(self) -> Self:
        self._running = [asyncio.create_task(client.run()) for client in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def used(self) -> list[Kept]:
        """All values that were taken from a cache, once no client reads any more."""
        return [kept for client in self._clients for kept in client.past]

    async def settled(self) -> list[Finding]:
        """What is still kept although the read at the end found something else, and the promised time is over."""
        until = self._now() + PROMISED_SECONDS
        while (wrong := self._wrong()) and self._now() < until:
            await asyncio.sleep(LOOK_SECONDS)
        return wrong

    def _wrong(self) -> list[Finding]:
        kept = [kept for client in self._clients for kept in client.values.values()]
        return [Finding("staleness", text, one.partition) for one in kept if (text := differs(one))][:SHOWN]


def differs(kept: Kept) -> str:
    """Whether the read at the end found something else than what was kept before it, in words."""
    last = kept.partition.operations[-1]
    if last.replies is None or kept.read > last.invoked or kept.value == last.replies[0]:
        return ""
    return f"{kept.client} keeps {kept.value!r}, read at {kept.read:.4f}, but {last}"


def lived_on(used: Sequence[Kept]) -> list[Finding]:
    """Which values were used for too long after a change."""
    found = []
    for kept in used:
        change = _change(kept)
        if change is not None:
            text = f"{kept.client} used {kept.value!r}, read at {kept.read:.4f}, until {kept.used:.4f}, after {change}"
            found.append(Finding("staleness", text, kept.partition))
    return found[:SHOWN]


def _change(kept: Kept) -> Operation | None:
    """A change after which a value was used for too long. A key that was not there may be so again."""
    if kept.value is None:
        return None
    for it in kept.partition.operations:
        if it.invoked > kept.read and it.answered + PROMISED_SECONDS < kept.used and _changes(it):
            return it
    return None


def _changes(operation: Operation) -> bool:
    if operation.outcome is not Outcome.ANSWERED or operation.replies is None:
        return False
    return any(
        call.name in ("SET", "APPEND", "DEL", "GETDEL", "FLUSHDB") or (call.name == "SETNX" and reply == 1)
        for call, reply in zip(operation.calls, operation.replies, strict=True)
    )
