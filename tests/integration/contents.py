"""Compares what servers have, whatever their versions: every type, deadlines of keys and of fields, streams with their
groups.

What is compared is what clients see. So a value may be encoded in another way, and a score be written in another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import hiredis
import redis

from migrator.connection import Connection, pack
from migrator.errors import Refused
from migrator.pieces.abilities import has_field_deadlines
from migrator.pieces.deadlines import read_deadline
from migrator.stream.following import BIG_BYTES
from slots.reserved import RESERVED
from tests.integration.migrator import streams

READS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "string": ("GET", ()),
    "list": ("LRANGE", (0, -1)),
    "set": ("SMEMBERS", ()),
    "zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    "hash": ("HGETALL", ()),
}
AT_ONCE = 200
CLOCK_MS = 3
"""A server without PEXPIRETIME tells a deadline by its clock, which goes on meanwhile."""

FIELD_GONE = -2
"""What HPEXPIRETIME says of a field that is not there."""


@dataclass(frozen=True)
class Value:
    """What one key has.

    Attributes:
        kind: as TYPE says.
        content: comparable.
        deadline_ms: when it expires, in milliseconds since 1970; -1 for never.
        fields: the deadlines of a hash's fields that have one.
    """

    kind: str
    content: Any
    deadline_ms: int
    fields: dict[bytes, int] = field(default_factory=dict)

    def without_fields(self, gone_by_ms: int) -> Value:
        """It, without the fields that expire until then."""
        soon = {name for name, at in self.fields.items() if at <= gone_by_ms}
        if not soon:
            return self
        content = {name: value for name, value in self.content.items() if name not in soon}
        return replace(self, content=content, fields={name: at for name, at in self.fields.items() if name not in soon})

    def may_be_gone(self, by_ms: int) -> bool:
        """Whether it expires until then, by itself or with all its fields."""
        return 0 < self.deadline_ms <= by_ms or (self.kind == "hash" and not self.without_fields(by_ms).content)

    def differs_from(self, other: Value, inexact_ms: int = 0) -> str:
        """In which way it is another value than this one; empty if it is the same."""
        if self.kind != other.kind:
            return f"types {self.kind} and {other.kind}"
        if self.kind == "stream":
            one, two = streams.comparable(self.content, other.content), streams.comparable(other.content, self.content)
        else:
            one, two = self.content, other.content
        if one != two:
            return f"values {one!r:.300} and {two!r:.300}"
        if (self.deadline_ms < 0) != (other.deadline_ms < 0) or abs(self.deadline_ms - other.deadline_ms) > inexact_ms:
            return f"deadlines {self.deadline_ms} and {other.deadline_ms}"
        if self.fields != other.fields:
            return f"deadlines of fields {self.fields!r:.300} and {other.fields!r:.300}"
        return ""


def filled(client: redis.Redis, seed: int) -> None:
    """Write keys of every type and encoding that the server has, some with deadlines, to the client's database.

    Of each type some values are a bit smaller and some a bit larger than what goes whole.
    """
    chance = random.Random(seed)
    pipe = client.pipeline(transaction=False)

    def text(size: int) -> bytes:
        """Every other one of the larger ones can be compressed."""
        return chance.randbytes(size) if chance.randrange(2) or size < 64 else chance.randbytes(50) * (size // 50)

    for i, size in enumerate((0, 1, 12, 44, 45, 200, 20_000, BIG_BYTES - 100, BIG_BYTES + 100, 300_000)):
        for n in range(3):
            pipe.set(f"text:{i}:{n}", text(size))
            pipe.append(f"raw:{i}:{n}", text(size) + b".")
    for i in (0, 1, 9_999, -5, 2**15, -(2**31), 2**40, 2**63 - 1, -(2**63)):
        pipe.set(f"int:{i}", i)
    for i, count in enumerate((1, 3, 100, 129, 600)):
        for n, size in enumerate((2, 60, 70, 700)):
            name = f"{i}:{n}"
            pipe.rpush(f"list:of:{name}", *(text(size) for _ in range(count)))
            pipe.sadd(f"set:of:{name}", *(text(size) for _ in range(count)))
            pipe.sadd(f"intset:{name}", *(chance.randrange(2 ** (8 + 16 * n)) for _ in range(count)))
            pipe.zadd(f"zset:of:{name}", {text(size): chance.uniform(-1e9, 1e9) for _ in range(count)})
            pipe.hset(f"hash:of:{name}", mapping={text(8): text(size) for _ in range(count)})
            for entry in range(min(count, 130)):
                pipe.xadd(f"stream:of:{name}", {b"field": text(size), b"n": entry}, id=f"{entry + 1}-{n}")
            _groups(pipe, f"stream:of:{name}", count, chance)
    many = range(5_000)
    for name, small in (("a", 1), ("b", 0)):
        pipe.rpush(f"list:big:{name}", *(text(20) for _ in many))
        pipe.sadd(f"set:big:{name}", *(text(20) for _ in many))
        pipe.zadd(f"zset:big:{name}", {text(20): number / 7 for number in many})
        pipe.hset(f"hash:big:{name}", mapping={text(10): text(10) for _ in many})
        pipe.pfadd(f"dense:{name}", *many)
        pipe.pfadd(f"sparse:{name}", small)
        pipe.setbit(f"bits:{name}", 99_999, small)
        pipe.geoadd(f"geo:{name}", (13.4, 52.5, b"place", 2.3, 48.9, b"other"))
    pipe.zadd("zset:ends", {b"most": float("inf"), b"least": float("-inf"), b"zero": 0, b"tenth": 0.1})
    for key in (b"", b"\x00\xff\xfe", b"line\r\n", b"{tag}key", b"12", b"n" * 5000):
        pipe.set(key, b"value")
    pipe.xgroup_create("stream:empty", "group", mkstream=True)
    pipe.execute()
    now = int(client.time()[0]) * 1000
    names = sorted(client.keys("*"))
    for number, key in enumerate(names):
        if number % 3 == 0:
            pipe.pexpireat(key, now + chance.choice((2_000, 3_500, 6_000, 60_000, 10**7, 10**10)) + number)
    pipe.execute()
    if "hpexpireat" in client.command():
        for key in names[::2]:
            if client.type(key) == b"hash":
                some = list(client.hkeys(key))[::3]
                client.execute_command(
                    "HPEXPIREAT", key, now + chance.randrange(10**5, 10**9), "FIELDS", len(some), *some
                )


def _groups(pipe: Any, stream: str, count: int, chance: random.Random) -> None:
    """Groups with entries that are pending, were delivered several times, are done with, or deleted."""
    for group, first in (("one", "0"), ("two", "2"), ("end", "$")):
        pipe.xgroup_create(stream, group, id=first)
    for consumer in ("first", b"\x00\r\n", "third"):
        pipe.xreadgroup("one", consumer, {stream: ">"}, count=max(1, count // 4))
    pipe.xgroup_createconsumer(stream, "two", "idle")
    claim = ("XCLAIM", stream, "one", "third", 0, f"1-{stream[-1]}", "TIME", 5, "RETRYCOUNT", 9, "JUSTID")
    pipe.execute_command(*claim, parse_justid=True)
    pipe.xack(stream, "one", f"2-{stream[-1]}")
    pipe.xdel(stream, *(f"{chance.randrange(1, count + 1)}-{stream[-1]}" for _ in range(2)))


async def contents(
    connection: Connection,
    database: int,
    wanted: Callable[[bytes], bool] = lambda key: True,
    *,
    idle_consumers: bool = True,
) -> dict[bytes, Value]:
    """All keys of a database that are wanted, without Slotferry's own.

    Args:
        idle_consumers: whether consumers of streams are told of that have nothing pending.
    """
    await connection.select(database)
    names = [key for key in await connection.call("KEYS", "*") if not key.startswith(RESERVED) and wanted(key)]
    return await values(connection, database, names, idle_consumers=idle_consumers)


async def values(
    connection: Connection, database: int, names: Iterable[bytes], *, idle_consumers: bool = True
) -> dict[bytes, Value]:
    """Those of these keys that are there; the argument is as of :func:`contents`."""
    await connection.select(database)
    names = sorted(names)
    of_fields = await has_field_deadlines(connection)
    found = {}
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        kinds = [one.decode() for one in await _all(connection, [pack("TYPE", key) for key in part])]
        plain = [(key, kind) for key, kind in zip(part, kinds, strict=True) if kind in READS]
        reads = [pack(READS[kind][0], key, *READS[kind][1]) for key, kind in plain]
        read = dict(zip((key for key, _ in plain), await _all(connection, reads), strict=True))
        for key, kind in zip(part, kinds, strict=True):
            if kind == "none":
                continue
            deadline = await read_deadline(connection, key)
            if deadline is None:
                continue
            if kind == "stream":
                try:
                    content = await _stream(connection, key, idle_consumers)
                except Refused as error:
                    if "no such key" not in str(error):
                        raise
                    continue  # it has expired since its deadline was read
            else:
                content = _comparable(kind, read[key])
            fields = await _field_deadlines(connection, key, content) if kind == "hash" and of_fields else {}
            if not content and kind == "hash":
                continue  # all its fields have expired, and the server has not looked yet
            found[key] = Value(kind, content, deadline, fields)
    return found


async def _all(connection: Connection, commands: list[bytes]) -> list[Any]:
    replies = await connection.send(b"".join(commands), len(commands)) if commands else []
    for reply in replies:
        assert not isinstance(reply, hiredis.ReplyError), reply
    return replies


async def _stream(connection: Connection, key: bytes, idle_consumers: bool) -> dict[str, Any]:
    content = await streams.state(connection, key)
    for group in content["groups"]:
        # Redis 7.0 does not tell its replicas how many entries a group has read.
        for name in ("entries-read", "lag"):
            group.pop(name, None)
        if not idle_consumers:
            group["consumers"] = [one for one in group["consumers"] if one["pel-count"]]
    return content


def _comparable(kind: str, reply: Any) -> Any:
    if kind == "set":
        return sorted(reply)
    if kind == "hash":
        return dict(zip(reply[::2], reply[1::2], strict=True))
    if kind == "zset":
        return [(member, float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]
    return reply


async def _field_deadlines(connection: Connection, key: bytes, content: dict[bytes, bytes]) -> dict[bytes, int]:
    """The deadlines of a hash's fields that have one. Fields that have expired since it was read leave ``content``."""
    names = list(content)
    found: dict[bytes, int] = {}
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        told = await connection.call("HPEXPIRETIME", key, "FIELDS", len(part), *part)
        for name, at in zip(part, told or [FIELD_GONE] * len(part), strict=True):
            if at == FIELD_GONE:
                del content[name]
            elif at >= 0:
                found[name] = at
    return found


def differences(
    before: dict[bytes, Value], after: dict[bytes, Value], *, gone_by_ms: int = 0, inexact_ms: int = 0
) -> list[str]:
    """What is not the same, in words.

    Args:
        gone_by_ms: keys and fields that expire until then may be gone at one of them.
    """
    found = []
    for key in sorted(before.keys() | after.keys()):
        one, two = before.get(key), after.get(key)
        if one is not None and two is not None:
            if differs := one.without_fields(gone_by_ms).differs_from(two.without_fields(gone_by_ms), inexact_ms):
                found.append(f"{key!r}: {differs}")
        elif not (one or two).may_be_gone(gone_by_ms):  # type: ignore[union-attr]
            found.append(f"{key!r} is missing at {'the first' if one is None else 'the second'}: {one or two!r:.200}")
    return found
