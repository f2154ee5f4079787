"""A worker whose servers have replicas, and ways to hold a replica back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Any, Self

import redis.asyncio

from slotferry.redis_server import RedisServer, start_redis
from slots.group import Group
from slots.messages.questions import WorkerCounters
from tests.integration.worker.harness import LIMIT, WorkerHarness

PERIOD = 0.5
"""Seconds between two looks at a replica, in these tests. One that is silent for as long is not read."""
PROMPT = ("--repl-diskless-sync-delay", "0")
"""A master that sends its data to a new replica at once."""


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a condition holds."""
    try:
        async with asyncio.timeout(LIMIT):
            while not await condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"gave up waiting for {what}") from None


class Gate:
    """Stands between a replica and its master; shut, what the master writes does not arrive, and the link stays up."""

    def __init__(self, master: RedisServer) -> None:
        self._master = master
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusing = False
        """Whether a replica that connects anew is turned away."""
        self.port = 0

    @classmethod
    async def before(cls, master: RedisServer) -> Self:
        gate = cls(master)
        gate._server = await asyncio.start_server(gate._accept, "127.0.0.1", 0)
        gate.port = gate._server.sockets[0].getsockname()[1]
        return gate

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._master.port)
        for task in (
            asyncio.create_task(self._pass(reader, ours, gated=False)),
            asyncio.create_task(self._pass(theirs, writer, gated=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gated: bool) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65536):
                    if gated:
                        await self._open.wait()
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()


class Replicated:
    """A worker, and the replicas of its servers by group."""

    def __init__(self, worker: WorkerHarness) -> None:
        self.worker = worker
        self.replicas: dict[int, list[RedisServer]] = {}
        self.gates: dict[int, Gate] = {}
        self._numbers = count(1)

    @classmethod
    @asynccontextmanager
    async def around(cls, worker: WorkerHarness) -> AsyncIterator[Self]:
        """Use it within the block; its replicas end with it, the worker does not."""
        replicated = cls(worker)
        try:
            yield replicated
        finally:
            for gate in replicated.gates.values():
                await gate.close()
            for server in (server for servers in replicated.replicas.values() for server in servers):
                if server.running:
                    os.kill(server.pid, signal.SIGCONT)
                await server.stop()

    async def add(self, group: int, gated: bool = False) -> RedisServer:
        """Start one more replica of a group's server, behind a gate if asked for; the worker is not told."""
        port = self.worker.servers[group - 1].port
        if gated:
            self.gates[group] = await Gate.before(self.worker.servers[group - 1])
            port = self.gates[group].port
        server = await start_redis(
            f"replica-{next(self._numbers)}",
            self.worker.directory,
            extra=["--replicaof", "127.0.0.1", str(port), *PROMPT],
        )
        self.replicas.setdefault(group, []).append(server)
        return server

    def groups(self, datacenters: dict[str, str] | None = None) -> list[Group]:
        """All groups with the replicas there are."""
        return [
            Group(
                number,
                (server.address, *(replica.address for replica in self.replicas.get(number, []))),
                datacenters or {},
            )
            for number, server in enumerate(self.worker.servers, 1)
        ]

    async def slots_read(self) -> int:
        """Slots that the worker reads from a replica now."""
        return int((await self.worker.asked(WorkerCounters()))["replica_slots"])

    async def reading(self, slots: int) -> None:
        """Wait until so many slots are read from replicas."""

        async def met() -> bool:
            return await self.slots_read() == slots

        await eventually(met, f"{slots} slots to be read from replicas, now {await self.slots_read()}")

    async def rounds(self, number: int = 4) -> None:
        """Wait until each master with replicas, and each replica, was asked so many times."""
        everyone = [server for servers in self.replicas.values() for server in servers]
        everyone += [self.worker.servers[group - 1] for group in self.replicas]
        before = {server.address: await calls(server, "info") for server in everyone}
        looks = 0

        async def met() -> bool:
            # The looks taken here count at the servers, too.
            nonlocal looks
            looks += 1
            return all([await calls(server, "info") - before[server.address] - looks >= number for server in everyone])

        await eventually(met, f"{number} more questions to each server")


def to(server: RedisServer, **options: Any) -> redis.asyncio.Redis:
    """A client of a server."""
    return redis.asyncio.Redis(host="127.0.0.1", port=server.port, **options)


async def calls(server: RedisServer, command: str) -> int:
    """How often a server has run a command, from any sender."""
    async with to(server) as client:
        statistics = await client.info("commandstats")
    return int(statistics.get(f"cmdstat_{command}", {}).get("calls", 0))


async def refused_writes(server: RedisServer) -> int:
    """How many writes a replica has refused."""
    async with to(server) as client:
        statistics = await client.info("errorstats")
    return int(statistics.get("errorstat_READONLY", {}).get("count", 0))


async def replicated_to(server: RedisServer, key: str, value: bytes) -> None:
    """Wait until a replica has a value."""
    async with to(server) as client:

        async def met() -> bool:
            return bool(await client.get(key) == value)

        await eventually(met, f"{key} at {server.name}")


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    """A server whose socket takes commands in while it runs none, until the block ends."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if server.running:
            os.kill(server.pid, signal.SIGCONT)
