"""A real Redis server for the tests that compare with one."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from slotferry.redis_server import start_redis


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``host:port`` of a server that lives as long as the tests."""
    server = asyncio.run(start_redis("redis", tmp_path_factory.mktemp("redis")))
    yield server.address
    asyncio.run(server.stop())


@pytest.fixture
async def redis(redis_address: str) -> AsyncIterator[Redis]:
    """A client of that server, which is empty."""
    host, _, port = redis_address.rpartition(":")
    async with Redis(host=host, port=int(port), protocol=2) as client:
        await client.flushall()
        yield client
