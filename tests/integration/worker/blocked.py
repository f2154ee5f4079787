"""Clients of a worker that wait at a server, and the server's word that they do."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from slotferry.redis_server import RedisServer
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire


async def blocked_at(server: RedisServer, count: int = 1) -> None:
    """Wait until so many clients are blocked at a server."""
    async with Wire(server.address) as wire:

        async def look() -> bool:
            return b"blocked_clients:%d\r\n" % count in await wire.say("INFO", "clients")

        await eventually(look, f"{count} blocked clients")


async def keep_connections(worker: WorkerHarness, count: int) -> None:
    """Have a worker keep so many connections of sessions' own, for later ones."""
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(worker.settings.listen)) for _ in range(count)]
        await asyncio.gather(*(wire.say("BLPOP", "nothing", "0.05") for wire in wires))


@asynccontextmanager
async def frozen(server: RedisServer) -> AsyncIterator[None]:
    """A server whose socket takes commands in while it runs none, until the block ends."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


class Blocked(AsyncExitStack):
    """Clients of the proxy that wait, each with a command of its own."""

    def __init__(self, worker: WorkerHarness) -> None:
        super().__init__()
        self._worker = worker
        self.wires: list[Wire] = []

    async def add(self, *words: str | int, protocol: int = 2) -> Wire:
        """Connect, and send a command."""
        wire = await self.enter_async_context(Wire(self._worker.settings.listen, protocol))
        wire.send(*words)
        self.wires.append(wire)
        return wire
