"""Values of snapshots of real servers, compared with what DUMP gives and what RESTORE takes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from rdb.snapshot import Snapshot, SnapshotKey
from slotferry.redis_server import RedisServer
from tests.integration.rdb import servers

MOST = 1 << 20
DEADLINE = 4_000_000_000_123


@pytest.fixture(params=servers.NAMES)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with servers.started(request.param, tmp_path) as running:
        yield running


def snapshot(client: redis.Redis) -> list[SnapshotKey]:
    path = servers.saved(client)
    with path.open("rb", buffering=0) as file:
        return list(Snapshot(file, str(path), MOST, path.stat().st_size))


@pytest.mark.long
def test_each_value_is_what_dump_gives(server: RedisServer) -> None:
    clients = {database: servers.client_of(server, database) for database in servers.DATABASES}
    for database, client in clients.items():
        servers.fill(client, seed=database)
        client.pexpireat("hash:1", DEADLINE)

    found = snapshot(clients[0])

    for database, client in clients.items():
        here = [key for key in found if key.database == database]
        assert {key.name for key in here} == set(client.scan_iter(count=1000))
        pipe = client.pipeline(transaction=False)
        for key in here:
            pipe.dump(key.name)
        assert [key.payload for key in here] == pipe.execute()
    assert {key.name for key in found if key.deadline_ms == DEADLINE} == {b"hash:1"}


@pytest.mark.long
def test_a_server_restores_each_value(server: RedisServer) -> None:
    client = servers.client_of(server)
    servers.fill(client)
    found = snapshot(client)
    client.flushall()

    pipe = client.pipeline(transaction=False)
    for key in found:
        pipe.restore(key.name, 0, key.payload)
    pipe.execute()

    # Tables are in no order, so not all bytes of a snapshot need be the same again.
    again = {key.name: key for key in snapshot(client)}
    assert again.keys() == {key.name for key in found}
    assert all(len(again[key.name].payload or b"") == len(key.payload or b"") for key in found)


@pytest.mark.long
def test_a_large_value_is_passed_over_and_what_follows_is_read(server: RedisServer) -> None:
    client = servers.client_of(server)
    chance = random.Random(1)
    client.set("large", chance.randbytes(3 * MOST))
    client.rpush("list", *(chance.randbytes(1000) for _ in range(3000)))
    client.set("almost", chance.randbytes(MOST - 1000))
    servers.fill(client)

    found = snapshot(client)

    assert {key.name for key in found if key.payload is None} == {b"large", b"list"}
    assert {key.name for key in found} == set(client.scan_iter(count=1000))
    assert [key.payload for key in found if key.name == b"almost"] == [client.dump("almost")]


@pytest.mark.parametrize("policy", ["allkeys-lfu", "allkeys-lru"])
def test_how_a_key_was_used_is_told_where_keys_are_evicted_by_it(server: RedisServer, policy: str) -> None:
    client = servers.client_of(server)
    client.config_set("maxmemory-policy", policy)
    client.set("key", "value")

    [key] = snapshot(client)

    if policy == "allkeys-lfu":
        assert key.idle_seconds is None
        assert key.frequency == 5
    else:
        assert key.frequency is None
        assert key.idle_seconds is not None
        assert key.idle_seconds < 60
