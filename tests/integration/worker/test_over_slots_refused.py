"""Clients that wait over slots, when a look is refused though nothing was run: they go on waiting, as in Redis."""

import asyncio

import pytest

from slotferry.redis_server import RedisServer
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

SLOT = slot_of(NEAR)
OTHER = next(f"key{number}" for number in range(99) if slot_of(f"key{number}") < 512 and f"key{number}" != NEAR)
"""Another key of the first server."""


async def refused(server: RedisServer, error: str) -> None:
    """Wait until a server has answered a command with this error."""
    async with Wire(server.address) as wire:

        async def look() -> bool:
            return b"errorstat_%b:count=" % error.encode() in await wire.say("INFO", "errorstats")

        await eventually(look, f"a command that got {error}")


@pytest.mark.parametrize(
    ("error", "refuse", "allow"),
    [
        ("NOREPLICAS", ("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-to-write", 0)),
        ("READONLY", ("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
    ],
)
async def test_a_server_that_takes_no_writes_for_a_while(
    worker: WorkerHarness, error: str, refuse: tuple[str | int, ...], allow: tuple[str | int, ...]
) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[0].address) as server:
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        await worker.act([SLOT], SlotState.PREPARED)
        await server.say("RPUSH", NEAR, "element")
        assert await server.say(*refuse) == b"+OK\r\n"
        await worker.act([SLOT], SlotState.PREPARING)
        await refused(worker.servers[0], error)
        await server.say(*allow)
        assert (await wire.heard()).endswith(b"element\r\n")
        assert await server.say("LLEN", NEAR) == b":0\r\n"


@pytest.mark.long
async def test_a_key_that_its_source_does_not_let_through(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=0.5, backend_reply_seconds=60.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        await worker.act([SLOT], SlotState.PREPARED)
        async with frozen(worker.servers[0]):
            await worker.act([SLOT], SlotState.MIGRATING)
            for _ in range(2):
                assert (await other.say("LLEN", NEAR)).startswith(b"-")
        async with Wire(worker.servers[0].address) as source:
            assert await source.say("PING") == b"+PONG\r\n"
        other.send("RPUSH", NEAR, "element")
        assert (await wire.heard()).endswith(b"element\r\n")
        assert await other.heard() == b":1\r\n"


@pytest.mark.long
async def test_a_worker_whose_server_was_away_serves_others(start_worker: StartWorker) -> None:
    """given two keys there that may hold something, while the connection for requests is not up yet."""
    worker = await start_worker(backend_connect_seconds=0.3, backend_reply_seconds=1.5)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with (
        Wire(worker.settings.listen) as wire,
        Wire(worker.settings.listen) as asking,
        Wire(worker.settings.listen) as other,
    ):
        wire.send("BLPOP", NEAR, OTHER, FAR, 0)
        await waits(worker, 1)
        for _ in range(3):
            async with frozen(worker.servers[0]):
                said = b""
                while b"did not accept a connection" not in said:
                    said = await asking.say("GET", NEAR)
            for _ in range(5):
                assert await other.say("GET", FAR) == b"$-1\r\n"
                await asyncio.sleep(0.1)
        await until_pushed(asking)
        assert (await wire.heard()).endswith(b"element\r\n")


async def until_pushed(client: Wire) -> None:
    """Push to the first key, once its server can be reached."""

    async def push() -> bool:
        return await client.say("RPUSH", NEAR, "element") == b":1\r\n"

    await eventually(push, "the server to be reached again")
