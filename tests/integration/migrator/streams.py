"""Streams with all that belongs to them, and what servers tell of them."""

import random
from typing import Any

from redis.asyncio import Redis

from tests.integration.migrator.copies import KEY

NEWER = "entries-added"
"""A field that XINFO has from Redis 7.0 on."""


def named(flat: list[Any]) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def state(connection: Any, key: bytes = KEY) -> dict[str, Any]:
    """Everything about a stream except its layout in memory and when its consumers were last seen."""
    told = named(await connection.call("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    for name in ("radix-tree-keys", "radix-tree-nodes"):
        del told[name]
    told["groups"] = [named(group) for group in told["groups"]]
    for group in told["groups"]:
        group["consumers"] = [named(consumer) for consumer in group["consumers"]]
        for consumer in group["consumers"]:
            del consumer["seen-time"]
            consumer.pop("active-time", None)
    return told


def comparable(told: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Without the counters, unless both servers keep them."""
    if NEWER in told and NEWER in other:
        return told
    return {
        **{name: told[name] for name in ("length", "last-generated-id", "entries")},
        "groups": [
            {name: group[name] for name in ("name", "last-delivered-id", "pel-count", "pending", "consumers")}
            for group in told["groups"]
        ],
    }


async def add(redis: Redis, first: int, count: int, size: int = 5, key: bytes = KEY) -> None:
    pipeline = redis.pipeline(transaction=False)
    for number in range(first, first + count):
        pipeline.execute_command("XADD", key, f"{number}-{number % 3}", "field", b"\x00\r\n" * size, b"", str(number))
    await pipeline.execute()


async def read(redis: Redis, group: str, consumer: str, count: int, key: bytes = KEY) -> None:
    await redis.xreadgroup(group, consumer, {key: ">"}, count=max(1, count))


async def busy(redis: Redis, entries: int, key: bytes = KEY) -> None:
    """Groups in every situation; entries before, among and after the others pending and deleted."""
    await add(redis, 1, entries, key=key)
    await redis.xgroup_create(key, "all", "0")
    await redis.xgroup_create(key, b"nasty \x00\r\n", f"{entries // 2}-0")
    await redis.xgroup_create(key, "nothing read", "0")
    await redis.xgroup_create(key, "everything", "$")
    await redis.xgroup_create(key, "ahead", f"{entries * 10}-7")
    chosen = random.Random(entries)
    left = entries
    while left > 0:
        count = chosen.randrange(1, max(2, entries // 20))
        await read(redis, "all", chosen.choice("abc"), count, key)
        left -= count
    await read(redis, "nasty \x00\r\n", "\xff" * 9, entries // 4, key)
    await redis.xgroup_createconsumer(key, "all", "idle")
    await redis.xgroup_createconsumer(key, "nothing read", b"\x00\r\n")
    # Some were delivered again and again, some long ago, some are done with.
    some = [f"{number}-{number % 3}" for number in chosen.sample(range(1, entries + 1), entries // 3)]
    for start in range(0, len(some), 100):
        part = some[start : start + 100]
        options = ("TIME", chosen.randrange(10**12), "RETRYCOUNT", chosen.choice((0, 1, 10**9)), "JUSTID")
        await redis.execute_command("XCLAIM", key, "all", chosen.choice("abcd"), 0, *part, *options, parse_justid=True)
    await redis.xack(key, "all", *some[: entries // 10], "1-1")
    # Deleted, pending and not, at both ends and in between.
    await redis.xdel(key, *some[entries // 5 :], f"{entries}-{entries % 3}")
    await redis.xtrim(key, maxlen=max(1, await redis.xlen(key) - entries // 6), approximate=False)
