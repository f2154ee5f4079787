"""Elements of values in snapshots of real servers, compared with what those servers say of them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from rdb.elements import NEVER, Consumer, Counters, Element, Entry, Field, Group, Owned, Pending, Scored
from rdb.snapshot import Snapshot, SnapshotKey
from slotferry.redis_server import RedisServer
from tests.integration.rdb import servers


@pytest.fixture(params=servers.NAMES)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with servers.started(request.param, tmp_path) as running:
        yield running


def read(client: redis.Redis) -> list[tuple[SnapshotKey, list[Element]]]:
    path = servers.saved(client)
    with path.open("rb", buffering=0) as file:
        snapshot = Snapshot(file, str(path), 0, path.stat().st_size)
        return [(key, list(snapshot.elements())) for key in snapshot]


def whole_stream(raw: redis.Redis, name: bytes, counts: bool, active: bool) -> list[Element]:
    """What the server tells of a stream, in the order in which a snapshot has it."""

    def pairs(flat: list[Any]) -> dict[bytes, Any]:
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def number(text: bytes) -> tuple[int, int]:
        first, second = text.split(b"-")
        return int(first), int(second)

    entries = raw.execute_command("XRANGE", name, "-", "+")
    about = pairs(raw.execute_command("XINFO", "STREAM", name))
    found: list[Element] = [Entry(number(entry), fields) for entry, fields in entries]
    ids = [entry.id for entry in found if isinstance(entry, Entry)]
    found.append(
        Counters(
            len(entries),
            number(about[b"last-generated-id"]),
            (ids[0] if ids else (0, 0)) if counts else None,
            number(about[b"max-deleted-entry-id"]) if counts else None,
            about[b"entries-added"] if counts else None,
        )
    )
    for group in map(pairs, raw.execute_command("XINFO", "GROUPS", name)):
        read = group.get(b"entries-read")
        found.append(
            Group(
                group[b"name"],
                number(group[b"last-delivered-id"]),
                None if not counts else -1 if read is None else read,
            )
        )
        pending = raw.execute_command("XPENDING", name, group[b"name"], "-", "+", 10_000)
        found += [Pending(number(entry), 0, deliveries) for entry, _, _, deliveries in pending]
        for consumer in sorted(
            map(pairs, raw.execute_command("XINFO", "CONSUMERS", name, group[b"name"])), key=lambda one: one[b"name"]
        ):
            found.append(Consumer(consumer[b"name"], 0, 0 if active else None))
            found += [Owned(number(entry)) for entry, owner, *_ in pending if owner == consumer[b"name"]]
    return found


def without_times(elements: Sequence[Element]) -> list[Element]:
    """The server tells how long ago something was, so its times are never the same twice."""
    return [
        element._replace(delivered_ms=0)
        if isinstance(element, Pending)
        else element._replace(seen_ms=0, active_ms=None if element.active_ms is None else 0)
        if isinstance(element, Consumer)
        else element
        for element in elements
    ]


@pytest.mark.long
def test_every_key_has_the_elements_that_its_server_has(server: RedisServer) -> None:
    client = servers.client_of(server)
    servers.fill(client)
    # Some entries are gone, so that parts of a stream have holes.
    client.xtrim("stream:3", maxlen=150)
    for entry, _ in client.xrange("stream:1", count=50)[::3]:
        client.xdel("stream:1", entry)
    client.set("compressed", b"0123456789" * 200_000 + random.Random(1).randbytes(300_000))
    client.zadd("scores", {"least": float("-inf"), "most": float("inf"), "tiny": 5e-324, "third": 1 / 3})
    _, version = servers.version(client)
    raw = redis.Redis(host="127.0.0.1", port=server.port, protocol=2)
    raw.response_callbacks.clear()

    for key, found in read(client):
        if key.type == "string":
            assert b"".join(part for part in found if isinstance(part, bytes)) == client.get(key.name)
        elif key.type == "list":
            assert found == client.lrange(key.name, 0, -1)
        elif key.type == "set":
            assert len(found) == client.scard(key.name)
            assert set(found) == client.smembers(key.name)
        elif key.type == "zset":
            scores = [element for element in found if isinstance(element, Scored)]
            assert sorted(map(tuple, scores)) == sorted(client.zrange(key.name, 0, -1, withscores=True))
        elif key.type == "hash":
            fields = [element for element in found if isinstance(element, Field)]
            assert len(fields) == client.hlen(key.name)
            assert {field.name: field.value for field in fields} == client.hgetall(key.name)
            deadlines = {field.name: field.deadline_ms for field in fields if field.deadline_ms != NEVER}
            assert deadlines.keys() == ({b"field0"} if key.name.startswith(b"fields:") else set())
            if deadlines:
                said = client.execute_command("HPEXPIRETIME", key.name, "FIELDS", 1, "field0")
                assert [deadlines[b"field0"]] == said
        else:
            assert key.type == "stream"
            here = whole_stream(raw, key.name, version >= (7,), version >= (7, 2))
            assert without_times(found) == here, key.name


def test_items_of_all_lengths_about_the_limits_of_their_encodings(server: RedisServer) -> None:
    client = servers.client_of(server)
    for setting in ("hash-max-listpack-value", "hash-max-ziplist-value"):
        with suppress(redis.ResponseError):
            client.config_set(setting, 5_000_000)
    sizes = [*range(60, 68), *range(120, 132), *range(4090, 4100), *range(16_370, 16_390), *range(2_097_140, 2_097_155)]
    for size in sizes:
        client.hset(f"hash:{size}", "f", "x" * size)

    found = {key.name: elements for key, elements in read(client)}

    assert client.object("encoding", "hash:16378") in (b"listpack", b"ziplist")
    assert found == {b"hash:%d" % size: [Field(b"f", b"x" * size, NEVER)] for size in sizes}


def test_an_entry_that_is_pending_has_the_time_of_its_delivery(server: RedisServer) -> None:
    client = servers.client_of(server)
    client.xadd("stream", {"field": "value"}, id="5-1")
    client.xgroup_create("stream", "group", id="0")
    client.xreadgroup("group", "consumer", {"stream": ">"})
    client.execute_command(
        *("XCLAIM", "stream", "group", "other", 0, "5-1", "TIME", 1_700_000_000_123, "RETRYCOUNT", 7, "FORCE")
    )

    [(key, found)] = read(client)

    assert key.type == "stream"
    assert [element for element in found if isinstance(element, Pending)] == [Pending((5, 1), 1_700_000_000_123, 7)]
    assert [element for element in found if isinstance(element, Consumer | Owned)][-1] == Owned((5, 1))
