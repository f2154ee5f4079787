"""Clients that cache what they have read: redis-py, node-redis, ioredis, and those that trust in every word that they
are told.

redis-py wants Redis 7.4 for its cache, which not every tester has. So the tests let it do with the version that is
there: what it needs from a server came with Redis 6.
"""

import asyncio
from collections.abc import Iterator

import pytest
import redis
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from slotferry.local import LocalCluster
from tests.integration.caching import Load, kill_what_tells
from tests.integration.clients.javascript import run_application

Address = tuple[str, int]

ROUNDS = 20
SECONDS = 3.0
KEYS = 50
READS = 2000
"""Within so many reads a changed value has been seen."""


@pytest.fixture
def cached(address: Address, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """redis-py with its cache."""
    monkeypatch.setattr(CacheProxyConnection, "MIN_ALLOWED_VERSION", "6.0.0")
    host, port = address
    with redis.Redis(host=host, port=port, protocol=3, cache_config=CacheConfig(), decode_responses=True) as client:
        yield client


@pytest.mark.long
def test_redis_py(address: Address, cached: redis.Redis) -> None:
    host, port = address
    keys = [f"redis-py-cache:{number}" for number in range(KEYS)]
    cache = cached.get_cache()
    assert cache is not None
    with redis.Redis(host=host, port=port) as writer:
        for turn in range(ROUNDS):
            writer.mset(dict.fromkeys(keys, f"value {turn}"))
            for key in keys:
                assert any(cached.get(key) == f"value {turn}" for _ in range(READS)), key
        assert cache.size
        assert cached.mget(keys) == [f"value {ROUNDS - 1}"] * KEYS
        assert cached.mget(keys) == [f"value {ROUNDS - 1}"] * KEYS
        writer.delete(*keys)
        for key in keys:
            assert any(cached.get(key) is None for _ in range(READS)), key
        assert any(cached.mget(keys) == [None] * KEYS for _ in range(READS))


def test_redis_py_asks_no_server_for_what_it_has(address: Address, cached: redis.Redis, at_rest: bool) -> None:
    if not at_rest:
        pytest.skip("a key that moves is dropped")
    host, port = address
    with redis.Redis(host=host, port=port) as plain:
        plain.set("redis-py-cache:hit", "value")
        assert cached.get("redis-py-cache:hit") == "value"
        before = plain.info("commandstats")["cmdstat_get"]["calls"]
        for _ in range(100):
            assert cached.get("redis-py-cache:hit") == "value"
        assert plain.info("commandstats")["cmdstat_get"]["calls"] - before < 50


@pytest.mark.long
def test_node_redis(address: Address) -> None:
    seen = run_application("node-redis-cache.mjs", address)
    hits = seen.pop("hits")
    assert seen == {"rounds": ROUNDS, "gone": True}
    assert hits > 0


@pytest.mark.long
def test_ioredis(address: Address) -> None:
    """By RESP2, over another connection at the same worker and at another one."""
    seen = {"rounds": 10, "hit": True, "again": True, "later": True}
    assert run_application("ioredis-cache.mjs", address) == {"together": seen, "apart": seen}


def test_redis_py_by_resp2(address: Address) -> None:
    host, port = address
    key = "redis-py-redirected"
    with (
        redis.Redis(host=host, port=port, protocol=2, single_connection_client=True) as reader,
        redis.Redis(host=host, port=port, protocol=2) as writer,
        writer.pubsub(ignore_subscribe_messages=True) as told,
    ):
        told.execute_command("CLIENT ID")
        assert told.connection is not None
        number = told.connection.read_response()
        told.subscribe("__redis__:invalidate")
        assert reader.client_tracking_on(clientid=number)
        assert reader.client_getredir() == number
        reader.get(key)
        writer.set(key, "value")
        while (message := told.get_message(timeout=30)) is None:
            pass
        # While slots move, it may be word of everything.
        assert message["data"] in ([key.encode()], None)


@pytest.mark.long
def test_nothing_is_kept_for_ever_that_has_changed(address: Address, cluster: LocalCluster) -> None:
    """Over two workers, while slots move and connections are lost."""
    host, port = address
    keys = [b"trusting:%d" % number for number in range(200)]
    ports = [server.port for group in cluster.servers.values() for server in group]

    async def disturb() -> None:
        for _ in range(3):
            await asyncio.sleep(SECONDS / 3)
            assert await kill_what_tells(ports)

    # Several of each: the system spreads them over the workers.
    asyncio.run(Load([f"{host}:{port}"] * 3, keys).run(disturb))
