"""Files that real servers write, compared with what those servers say of their keys."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rdb.errors import RdbError
from sizing.rdb.parser import Key, read_keys, rows
from sizing.rdb.scanner import Scanner
from slotferry.redis_server import RedisServer, start_redis
from slots.functions import slot
from tests.integration.rdb import servers as rdb_servers

TABLE_TOLERANCE = 0.06
"""Of the bytes of all keys of an encoding with a table, as a part of what MEMORY USAGE gives for them."""
TABLES = ("hashtable", "skiplist")
LOADED_TOLERANCE = 0.01
"""Of tables on a server that has loaded the file, where none is growing."""
TYPE_TOLERANCE = {"jemalloc": 0.005, "jemalloc16": 0.005, "glibc": 0.05}
"""Of those of any other type and encoding. glibc gives more than it was asked for where too little would be left."""
TOTAL_TOLERANCE = 0.03

CLOCK_TICK_SECONDS = 0.01
"""How far ``time(2)``, by which a server dates its file, may be behind the clock that tests read: a tick of a kernel
with 100 a second."""

MEASURED = {(False, (6, 2)), (False, (7, 0)), (False, (8, 0)), (True, (9, 0)), (True, (9, 1))}
"""Valkey or not, and the versions that :mod:`rdb.layout` was made for."""


@pytest.fixture(params=rdb_servers.NAMES)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with rdb_servers.started(request.param, tmp_path) as running:
        yield running


@pytest.mark.long
def test_every_key_is_found_as_the_server_has_it(server: RedisServer) -> None:
    deadline = (int(time.time()) + 100_000) * 1000 + 123
    clients = {database: rdb_servers.client_of(server, database) for database in rdb_servers.DATABASES}
    first = clients[0]
    for database, client in clients.items():
        rdb_servers.fill(client, seed=database)
        client.pexpireat("text:1", deadline)
        client.pexpireat("hash:1", deadline)
        client.expireat("list:1", deadline // 1000)
    if rdb_servers.version(first)[1] >= (7,):
        first.execute_command("FUNCTION", "LOAD", rdb_servers.CODE)
    before = time.time()
    path = rdb_servers.saved(first)
    after = time.time()

    found = list(read_keys(path, function="crc16", number_of_slots=16384))

    assert len({(key.database, key.key) for key in found}) == len(found)
    for database, client in clients.items():
        here = [key for key in found if key.database == database]
        assert {key.key for key in here} == set(client.scan_iter(count=1000))
        pipe = client.pipeline(transaction=False)
        for key in here:
            pipe.type(key.key)
            pipe.object("encoding", key.key)
        said = pipe.execute()
        assert [key.type.encode() for key in here] == said[::2]
        assert [(key.key, key.encoding.encode()) for key in here] == [
            (key.key, encoding) for key, encoding in zip(here, said[1::2], strict=True)
        ]
        for key in here:
            assert key.elements == rdb_servers.element_count(client, key.type, key.key), key
            assert key.slot == slot("crc16", key.key, 16384)
        with_ttl = {key.key: key.ttl_ms for key in here if key.ttl_ms is not None}
        assert set(with_ttl) == {b"text:1", b"hash:1", b"list:1"}
        # The file says in whole seconds when it was made, by a clock that may be a tick behind ours.
        made = deadline - with_ttl[b"text:1"]
        assert int(before - CLOCK_TICK_SECONDS) * 1000 <= made <= after * 1000
        assert made % 1000 == 0
        assert deadline - with_ttl[b"hash:1"] == made
        assert deadline // 1000 * 1000 - with_ttl[b"list:1"] == made
        client.close()
    # Few bytes belong to no key: the head, a few fields, a function, the checksum.
    assert 0 < path.stat().st_size - sum(key.serialized_bytes for key in found) < 1000


def test_estimated_memory_is_near_what_the_server_says(server: RedisServer) -> None:
    client = rdb_servers.client_of(server)
    valkey, version = rdb_servers.version(client)
    if (valkey, version[:2]) not in MEASURED:
        pytest.skip(f"what version {version} says of memory is no measure, or was never compared")
    rdb_servers.fill(client)
    for i in range(0, 1000, 2):
        client.expire(f"text:{i}", 100_000)
    allocator = rdb_servers.allocator(client)
    found = list(read_keys(rdb_servers.saved(client), allocator=allocator))
    pipe = client.pipeline(transaction=False)
    for key in found:
        pipe.memory_usage(key.key, samples=0)
    said = pipe.execute()
    client.close()

    estimated: dict[str, int] = defaultdict(int)
    real: dict[str, int] = defaultdict(int)
    for key, usage in zip(found, said, strict=True):
        estimated[f"{key.type} {key.encoding}"] += key.bytes
        real[f"{key.type} {key.encoding}"] += usage
    errors = {kind: estimated[kind] / real[kind] - 1 for kind in real}
    print({kind: f"{error:+.2%}" for kind, error in sorted(errors.items())})
    total = sum(estimated.values()) / sum(real.values()) - 1
    print(f"total {total:+.2%}")
    for kind, error in errors.items():
        assert abs(error) < (TABLE_TOLERANCE if kind.endswith(TABLES) else TYPE_TOLERANCE[allocator]), kind
    assert abs(total) < TOTAL_TOLERANCE


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu"])
def test_when_or_how_often_keys_were_used_may_stand_before_them(server: RedisServer, policy: str) -> None:
    client = rdb_servers.client_of(server)
    client.config_set("maxmemory-policy", policy)
    client.mset({f"key:{number}": number for number in range(100)})
    client.expire("key:5", 1000)
    found = list(read_keys(rdb_servers.saved(client)))
    assert {key.key for key in found} == set(client.scan_iter())
    assert [key.key for key in found if key.ttl_ms is not None] == [b"key:5"]
    client.close()


async def test_files_without_checksum_or_compression(tmp_path: Path) -> None:
    extra = ["--rdbchecksum", "no", "--rdbcompression", "no"]
    server = await start_redis("server", tmp_path, extra=extra)
    client = rdb_servers.client_of(server)
    rdb_servers.fill(client)
    path = rdb_servers.saved(client)
    assert path.read_bytes()[-8:] == bytes(8)
    plain = list(read_keys(path))
    client.config_set("rdbcompression", "yes")
    compressed = list(read_keys(rdb_servers.saved(client)))
    client.close()
    await server.stop()

    def measured(keys: list[Key]) -> list[tuple[bytes, str, int, int | None]]:
        return sorted((key.key, key.encoding, key.bytes, key.elements) for key in keys)

    assert measured(plain) == measured(compressed)
    assert sum(key.serialized_bytes for key in compressed) < sum(key.serialized_bytes for key in plain)


def test_a_real_file_cut_anywhere(server: RedisServer) -> None:
    client = rdb_servers.client_of(server)
    client.rpush("list", "a", "b", 3)
    client.sadd("set", "a", 1)
    client.hset("hash", mapping={"field": "value", "long": "x" * 80})
    client.zadd("zset", {"a": 1.5, "y" * 80: 2})
    client.xadd("stream", {"field": "value"})
    client.xgroup_create("stream", "group", id="0")
    client.xreadgroup("group", "consumer", {"stream": ">"})
    client.set("text", "abc" * 40, ex=1000)
    data = rdb_servers.saved(client).read_bytes()
    client.close()

    def scanned(part: bytes) -> tuple[list[Key], RdbError | None]:
        scanner = Scanner(io.BytesIO(part), "dump.rdb")
        found: list[Key] = []
        while batch := scanner.batch():
            found += rows(batch, scanner.types)
        return found, scanner.error

    whole, error = scanned(data)
    assert error is None, error
    assert len(whole) == 6
    for cut in range(len(data)):
        found, error = scanned(data[:cut])
        assert error is not None
        assert error.offset <= cut
        assert found == whole[: len(found)]


@pytest.mark.long
async def test_tables_are_as_a_server_that_loads_the_file_makes_them(server: RedisServer, tmp_path: Path) -> None:
    # On the server that wrote the file, only tables that were still growing differ.
    client = rdb_servers.client_of(server)
    valkey, version = rdb_servers.version(client)
    if (valkey, version[:2]) not in MEASURED:
        pytest.skip(f"what version {version} says of memory is no measure, or was never compared")
    rdb_servers.fill(client)
    path = rdb_servers.saved(client)
    allocator = rdb_servers.allocator(client)
    client.close()
    (tmp_path / "loaded").mkdir()
    path.rename(tmp_path / "loaded" / "dump.rdb")
    loaded = await start_redis("loaded", tmp_path, binary=server.binary)
    client = rdb_servers.client_of(loaded)
    found = list(read_keys(tmp_path / "loaded" / "dump.rdb", allocator=allocator))
    for encoding in TABLES:
        # A small key that was a table because of earlier content is not a table any more.
        tables = [
            key for key in found if key.encoding == encoding and client.object("encoding", key.key) == encoding.encode()
        ]
        real = sum(client.memory_usage(key.key, samples=0) for key in tables)
        error = sum(key.bytes for key in tables) / real - 1
        print(f"{encoding} {error:+.2%}")
        assert abs(error) < LOADED_TOLERANCE
    client.close()
    await loaded.stop()
