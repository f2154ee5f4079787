"""Snapshots of real servers, filtered and sent to empty servers of the same version."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from rdb.snapshot import Snapshot
from slotferry.redis_server import RedisServer
from slots.keyslots import KeySlots
from tests.integration.rdb import servers

SLOTS = KeySlots("crc32", 1024)
WANTED = bytearray([1, 2, 0, 0] * 256)
"""A quarter of the slots goes to each of two copies, and half of them to none."""
PLACEHOLDER = 9_000_000_000_000
DEADLINE = 4_000_000_000_123
BIG = 20_000
DATABASES = (0, 15)
LIMIT_SECONDS = 30.0

Place = tuple[int, bytes]
"""Of a key: the number of its database, and its name."""


@pytest.fixture(params=servers.NAMES)
def which(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def folder(parent: Path, name: str) -> Path:
    path = parent / name
    path.mkdir()
    return path


@pytest.fixture
async def three(which: str, tmp_path: Path) -> AsyncIterator[list[RedisServer]]:
    """A source, and a target for each copy."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(servers.started(which, folder(tmp_path, name)))
            for name in ("source", "first", "second")
        ]


def filtered(path: Path, withheld_until_ms: int = 0) -> Iterator[Batch | BigKey]:
    with path.open("rb", buffering=0) as file:
        found = SnapshotFilter(
            file,
            str(path),
            SLOTS,
            WANTED,
            most_bytes=1 << 16,
            most_keys=100,
            big_bytes=BIG,
            most_work=1 << 20,
            big_work=1 << 20,
            placeholder_ms=PLACEHOLDER,
            size=path.stat().st_size,
        )
        found.withheld_until_ms = found.noted_until_ms = withheld_until_ms
        yield from found


def send(connection: redis.Connection, batch: Batch) -> None:
    """Apply it at a target; every reply has to be OK."""
    connection.send_command("SELECT", batch.database)
    connection.read_response()
    connection.send_packed_command([batch.commands])
    assert [connection.read_response() for _ in range(batch.count)] == [b"OK"] * batch.count


def content(client: redis.Redis, key: bytes) -> Any:
    """What a key has, in no order: of the types whose tables are dumped in none."""
    kind = client.type(key)
    if kind == b"set":
        return client.smembers(key)
    assert kind == b"hash"
    return client.hgetall(key)


def deadlines(client: redis.Redis) -> dict[Place, int]:
    path = servers.saved(client)
    with path.open("rb", buffering=0) as file:
        return {(key.database, key.name): key.deadline_ms for key in Snapshot(file, str(path), 0) if key.deadline_ms}


@pytest.mark.long
async def test_every_key_of_wanted_slots_is_equal_at_its_target_and_no_other_is_there(
    three: list[RedisServer],
) -> None:
    source = {database: servers.client_of(three[0], database) for database in DATABASES}
    soon = int(time.time() * 1000) + 600_000
    given: dict[Place, int] = {}
    for database, client in source.items():
        servers.fill(client, seed=database)
        for number in range(100):
            given[database, b"hash:%d" % number] = DEADLINE + number
            given[database, b"text:%d" % number] = soon + number
        for (place, name), deadline in given.items():
            if place == database:
                client.pexpireat(name, deadline)
    client.set("__slotferry:moving", "x")
    everything = {(number, name) for number, client in source.items() for name in client.scan_iter(count=1000)}
    copy_of = {(number, name): WANTED[SLOTS.slot_of(number, name)] for number, name in everything}
    copy_of[DATABASES[-1], b"__slotferry:moving"] = 0
    path = servers.saved(source[0])

    withheld: set[Place] = set()
    big: set[Place] = set()
    expiring: set[Place] = set()
    connections = {copy: redis.Connection(host="127.0.0.1", port=three[copy].port) for copy in (1, 2)}
    for item in filtered(path, withheld_until_ms=soon + 50):
        if isinstance(item, Batch):
            send(connections[item.copy], item)
            assert item.deadlines == []
            withheld.update((item.database, name) for name in item.withheld)
        else:
            assert copy_of[item.database, item.name] == item.copy
            assert item.type.encode() == source[item.database].type(item.name)
            assert item.fields_expire == item.name.startswith(b"fields:")
            (expiring if item.fields_expire else big).add((item.database, item.name))
    for connection in connections.values():
        connection.disconnect()

    for copy in (1, 2):
        wanted = {place for place, of in copy_of.items() if of == copy} - big - expiring
        assert len(wanted) > 500
        for database, client in source.items():
            target = servers.client_of(three[copy], database)
            here = sorted(name for number, name in wanted if number == database)
            assert sorted(target.scan_iter(count=1000)) == here
            dumps = []
            for side in (client, target):
                pipe = side.pipeline(transaction=False)
                for name in here:
                    pipe.dump(name)
                dumps.append(pipe.execute())
            for name, ours, theirs in zip(here, *dumps, strict=True):
                # Behind type and content, DUMP has ten bytes.
                assert len(ours) - 11 <= BIG
                assert ours == theirs or content(client, name) == content(target, name), name
        assert deadlines(servers.client_of(three[copy])) == {
            place: PLACEHOLDER if deadline <= soon + 50 else deadline
            for place, deadline in given.items()
            if place in wanted
        }
    assert withheld == {place for place, deadline in given.items() if deadline <= soon + 50 and copy_of[place]}
    assert len(withheld) > 20
    assert expiring == {(number, name) for (number, name), of in copy_of.items() if of and name.startswith(b"fields:")}
    assert big
    assert all(len(source[database].dump(name) or b"") - 11 > BIG for database, name in big)


@pytest.mark.parametrize("policy", ["allkeys-lfu", "allkeys-lru"])
async def test_how_a_key_was_used_is_kept(which: str, tmp_path: Path, policy: str) -> None:
    name = next(b"key:%d" % number for number in range(100) if WANTED[SLOTS.slot_of(0, b"key:%d" % number)] == 1)
    async with (
        servers.started(which, folder(tmp_path, "source")) as source,
        servers.started(which, folder(tmp_path, "target")) as target,
    ):
        clients = [servers.client_of(server) for server in (source, target)]
        for client in clients:
            client.config_set("maxmemory-policy", policy)
            client.config_set("lfu-decay-time", 0)
        clients[0].set("other", "value")
        clients[0].restore(
            name,
            DEADLINE,
            clients[0].dump("other"),
            absttl=True,
            **({"frequency": 77} if policy == "allkeys-lfu" else {"idletime": 5000}),
        )
        [batch] = filtered(servers.saved(clients[0]))
        assert isinstance(batch, Batch)
        connection = redis.Connection(host="127.0.0.1", port=target.port)
        send(connection, batch)
        connection.disconnect()

        if policy == "allkeys-lfu":
            assert clients[1].object("freq", name) == 77
        else:
            assert clients[1].object("idletime", name) in range(5000, 5030)


def replicated(port: int) -> bytes:
    """The snapshot that a server sends to a new replica."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) as connection:
        connection.sendall(b"PSYNC ? -1\r\n")
        with connection.makefile("rb") as file:
            line = b""
            # The server keeps the connection alive with empty lines.
            while not line.startswith(b"$"):
                line = file.readline().strip()
                assert line[:1] in (b"", b"+", b"$"), line
            return file.read(int(line[1:]))


async def test_a_replicas_snapshot_tells_in_which_database_its_stream_goes_on(which: str, tmp_path: Path) -> None:
    async with (
        servers.started(which, folder(tmp_path, "master")) as master,
        servers.started(which, folder(tmp_path, "replica")) as replica,
    ):
        clients = [servers.client_of(server) for server in (master, replica)]
        for client in clients:
            client.config_set("repl-diskless-sync", "no")
        clients[1].replicaof("127.0.0.1", master.port)
        until = time.monotonic() + LIMIT_SECONDS
        while clients[1].info("replication")["master_link_status"] != "up":
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        servers.client_of(master, 3).set("key", "value")
        assert clients[0].wait(1, int(LIMIT_SECONDS * 1000)) == 1
        (tmp_path / "snapshot").write_bytes(replicated(replica.port))

        with (tmp_path / "snapshot").open("rb") as file:
            found = SnapshotFilter(
                file,
                "snapshot",
                SLOTS,
                bytearray([1]) * 1024,
                most_bytes=1000,
                most_keys=10,
                big_bytes=1000,
                most_work=1 << 20,
                big_work=1 << 20,
                placeholder_ms=PLACEHOLDER,
            )
            [batch] = found

        assert batch.database == 3
        assert found.stream_database == 3
