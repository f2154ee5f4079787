"""Clients that wait over slots: two keys at two servers, and the servers' word of who is told of changes."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

from slotferry.redis_server import RedisServer
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire


def _key(at_first: bool) -> str:
    return next(f"key{number}" for number in range(99) if (slot_of(f"key{number}") < 512) == at_first)


NEAR, FAR = _key(True), _key(False)
"""Keys of the first and of the second server of the fixture ``worker``."""


async def _info(servers: Sequence[RedisServer], section: str) -> list[bytes]:
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(server.address)) for server in servers]
        return await asyncio.gather(*(wire.say("INFO", section) for wire in wires))


async def told_of(servers: Sequence[RedisServer], keys: int) -> None:
    """Wait until the servers together are to tell workers of changes of so many keys."""

    async def look() -> bool:
        said = await _info(servers, "stats")
        return sum(int(text.partition(b"tracking_total_keys:")[2].split()[0]) for text in said) == keys

    await eventually(look, f"{keys} keys of which workers are told")


async def calls(servers: Sequence[RedisServer], command: str) -> int:
    """How often the servers have run a command."""
    found = [
        re.search(rb"cmdstat_%b:calls=(\d+)" % command.encode(), text) for text in await _info(servers, "commandstats")
    ]
    return sum(int(one[1]) for one in found if one is not None)


async def waits(worker: WorkerHarness, clients: int) -> None:
    """Wait until so many clients of the worker wait, and it asks the servers for nothing more."""
    settled = [-1, -1]

    async with Wire(worker.settings.listen) as wire:

        async def look() -> bool:
            listed = await wire.say("CLIENT", "LIST")
            total = sum([await calls(worker.servers, name) for name in ("lpop", "zpopmin", "type", "exists", "xread")])
            settled[:] = [settled[1], total]
            return listed.count(b"flags=b ") == clients and settled[0] == settled[1]

        await eventually(look, f"{clients} clients that wait")
