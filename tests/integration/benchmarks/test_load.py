"""The benchmarks' own tools against a real server, with a few requests: that they work, not what they measure."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis import Redis

from benchmarks.clients import Clients, ClientsFailed
from benchmarks.load import Load, LoadFailed, fill, prefix_of, run
from slotferry.redis_server import RedisServer, ask, start_redis

LIMIT = 60.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    started = await start_redis("redis", tmp_path, extra=["--maxclients", "40"])
    yield started
    await started.stop()


async def calls(server: RedisServer, command: str) -> int:
    """How often a server was asked for a command."""

    def look() -> int:
        with Redis(port=server.port) as client:
            return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))

    return await asyncio.to_thread(look)


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not installed")
async def test_loads_are_what_they_say(server: RedisServer) -> None:
    for size in (64, 16_384):
        await asyncio.to_thread(fill, server.address, 20, size, prefix_of(size))
    filled = await calls(server, "set")
    mix = Load("mix", 1, 1000, 10, 20, 16_384)
    outcome = await run(server.address, mix)
    assert outcome.requests_per_second > 0
    assert outcome.max_milliseconds >= outcome.p99_milliseconds >= outcome.p50_milliseconds
    # redis-benchmark may send one more for each client before it sees that it is done.
    assert 800 <= await calls(server, "get") <= 808
    assert 200 <= await calls(server, "set") - filled <= 202
    assert await ask(server.address, "GET", "key16384:000000000019") == "$16384"
    assert await ask(server.address, "DBSIZE") == ":40"
    await run(server.address, Load("mget", 16, 320, 5, 20, 64))
    assert 320 <= await calls(server, "mget") <= 320 + 5 * 16


@pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="redis-benchmark is not installed")
async def test_a_load_that_a_server_refuses_fails(server: RedisServer) -> None:
    with pytest.raises(LoadFailed, match="get 64 B -c 100 -P 1"):
        await run(server.address, Load("get", 1, 1000, 100, 20, 64))


async def test_clients_are_held_get_stuck_and_go(server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        clients = await Clients.start(stack, server.address)
        assert await clients.tell("hold 20") == {"clients": 20}
        assert await clients.tell("hold 10") == {"clients": 30}
        assert await clients.tell("look") == {"idle": 30, "stuck": 0, "requests": 0}
        assert await clients.tell("stick 4") == {"stuck": 4}
        async with asyncio.timeout(LIMIT):
            while (seen := await clients.tell("look"))["requests"] < 4 * 64:
                pass
        assert (seen["idle"], seen["stuck"]) == (26, 4)
        assert await clients.tell("drop") == {"stuck": 0}
        with pytest.raises(ClientsFailed, match="hold 30: the proxy refused client"):
            await clients.tell("hold 30")
        with pytest.raises(ClientsFailed, match="has ended"):
            await clients.tell("look")


async def test_clients_that_were_closed_are_noticed(server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        clients = await Clients.start(stack, server.address)
        await clients.tell("hold 10")
        await clients.tell("stick 3")
        await server.stop()
        async with asyncio.timeout(LIMIT):
            while (seen := await clients.tell("look"))["stuck"] or seen["idle"]:
                pass
