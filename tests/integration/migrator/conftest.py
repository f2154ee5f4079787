"""Two real servers to move keys between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from cli.redis_server import RedisServer, start_redis
from tests.integration.migrator.pairs import Pair, client_of


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two servers for all tests that leave them as they are."""
    folder = tmp_path_factory.mktemp("migrator")
    source = asyncio.run(start_redis("source", folder))
    target = asyncio.run(start_redis("target", folder))
    yield source, target
    asyncio.run(source.stop())
    asyncio.run(target.stop())


@pytest.fixture
async def pair(servers: tuple[RedisServer, RedisServer]) -> Pair:
    """The two servers, empty."""
    for server in servers:
        async with client_of(server) as redis:
            await redis.flushall()
    return Pair(*servers)


@pytest.fixture
async def fragile_pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two servers of the test's own, to be stopped or configured."""
    source = await start_redis("source", tmp_path)
    target = await start_redis("target", tmp_path)
    yield Pair(source, target)
    await source.stop()
    await target.stop()


@pytest.fixture
async def source(pair: Pair) -> AsyncIterator[Redis]:
    async with client_of(pair.source) as redis:
        yield redis


@pytest.fixture
async def target(pair: Pair) -> AsyncIterator[Redis]:
    async with client_of(pair.target) as redis:
        yield redis
