"""A copy by the replication stream between real servers, while clients write: at its end the target is **level**.

Nothing writes within the lock, as behind proxies that have locked.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection, Container, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from migrator import pair as pairs
from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, ServerUnavailable, SourceRefused
from migrator.pair import ServerPair
from migrator.stream import following, running
from migrator.stream.deadlines import DeadlineMissed
from migrator.stream.errors import NotNearlyLevel
from migrator.stream.running import NEARLY_SECONDS, ClockAhead, NeverLevel, RunningCopy, TargetEvicts, make_ready
from migrator.stream.sourcestream import SourceStream
from migrator.stream.streamfile import now_ms
from slotferry.redis_server import RedisServer
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from slots.reserved import LEADER, POSITION, RESERVED, SWEPT
from slots.rules import SlotRule
from tests.histories.relay import Relay
from tests.integration.migrator import streams
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS, Pair, client_of, slot_of
from tests.integration.migrator.stream.traffic import DATABASES, Writer, filled

MOVING = range(0, NUMBER_OF_SLOTS, 2)
READS = {
    "string": ("GET",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",),
}


class ReadyCopy(RunningCopy):
    """Both servers are made ready when it begins, as topom does."""

    async def nearly_level(self) -> None:
        if self._task is None:
            self._stream.run_id, self._run_id = await make_ready(
                self._source,
                self.target,
                self._id,
                stream=self._stream.id,
                replicas=self._stream.followed._replicas,
                access=ServerAccess(),
                instance=INSTANCE,
            )
        await super().nearly_level()


def copy_between(
    pair: Pair,
    folder: Path,
    replicas: Sequence[str] = (),
    rules: Sequence[SlotRule] = (),
    moving: Collection[int] = MOVING,
) -> RunningCopy:
    stream = SourceStream(
        pair.source.address, "", id="5eed", folder=folder, access=ServerAccess(), instance=INSTANCE, replicas=replicas
    )
    return ReadyCopy(
        stream,
        pair.target.address,
        moving,
        "c0ffee",
        run_id="",
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS, rules),
        pace=pair.pace,
        progress=pair.progress,
    )


async def connected(server: RedisServer) -> Connection:
    return await Connection.open(
        server.address,
        name="slotferry.test",
        access=ServerAccess(),
        unavailable=ServerUnavailable,
        refused=SourceRefused,
        timeouts=Timeouts(),
    )


async def contents(server: RedisServer, database: int, slots: Container[int]) -> dict[bytes, Any]:
    """Every key of these slots: its type, its value in a form that can be compared, and its deadline."""
    connection = await connected(server)
    await connection.select(database)
    found = {}
    for key in await connection.call("KEYS", "*"):
        if key.startswith(RESERVED) or slot_of(key) not in slots:
            continue
        kind = (await connection.call("TYPE", key)).decode()
        if kind == "none":
            continue
        if kind == "stream":
            value = await streams.state(connection, key)
            for group in value["groups"]:
                # Redis 7.0 does not tell its replicas how many entries a group has read.
                del group["entries-read"], group["lag"]
        else:
            name, *arguments = READS[kind]
            value = await connection.call(name, key, *arguments)
        if kind == "set":
            value = sorted(value)
        elif kind == "hash":
            value = dict(zip(value[::2], value[1::2], strict=True))
        deadline_ms = await connection.call("PEXPIRETIME", key)
        if deadline_ms != -2:  # it has not expired while it was read
            found[key] = kind, value, deadline_ms
    connection.close()
    return found


async def assert_level(pair: Pair, slots: Container[int] = MOVING) -> int:
    """Both have the same keys of the moving slots; gives how many. A key may expire between two looks."""
    number = 0
    for database in DATABASES:
        source, target = [await contents(server, database, slots) for server in (pair.source, pair.target)]
        async with client_of(pair.source, database) as redis:
            now = (await redis.time())[0] * 1000 + 1000
        for key in source.keys() | target.keys():
            have = source.get(key), target.get(key)
            if any(one is not None and 0 < one[2] <= now for one in have) and None in have:
                continue
            assert have[0] == have[1], f"{key!r} in database {database}"
        number += len(source)
    return number


@pytest.fixture
async def copy(pair: Pair, source: Redis, tmp_path: Path) -> AsyncIterator[RunningCopy]:
    # A server waits 5 s for other replicas before it begins a snapshot.
    await source.config_set("repl-diskless-sync-delay", 0)
    copy = copy_between(pair, tmp_path / "spool")
    yield copy
    await copy.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("renames", [True, False])
async def test_level_with_all_types_and_deadlines_under_writes(
    pair: Pair, copy: RunningCopy, seed: int, renames: bool
) -> None:
    await filled(pair.source, seed, 4000)
    writers = [Writer(pair.source, 10 * seed + number, renames=renames) for number in range(2)]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        async with asyncio.timeout(60):
            await copy.nearly_level()
        await asyncio.sleep(1.5)  # deadlines come within it
    finally:
        for writer in writers:
            writer.stop()
        await asyncio.gather(*tasks)
    async with asyncio.timeout(20):
        await copy.settle(MOVING)
    assert await assert_level(pair) > 100
    assert sum(writer.written for writer in writers) > 1000


@pytest.mark.long
async def test_hidden_and_one_way_only_moving_slots_come_and_the_source_keeps_all(
    pair: Pair, copy: RunningCopy, source: Redis, target: Redis
) -> None:
    await filled(pair.source, 7, 2000)
    before = await source.dbsize()
    await copy.nearly_level()
    await copy.settle(MOVING)
    keys = [key for key in await target.keys("*") if not key.startswith(RESERVED)]
    assert {slot_of(key) % 2 for key in keys} == {0}
    assert await source.dbsize() >= before - 60, "only expired keys go"


async def test_level_after_the_marker_nothing_of_the_source_reaches_the_target(
    pair: Pair, copy: RunningCopy, source: Redis, target: Redis
) -> None:
    """Cleaning at the source deletes the keys there, and the target keeps them."""
    keys = [b"key:%d" % number for number in range(200)]
    await source.mset(dict.fromkeys(keys, b"value"))
    await copy.nearly_level()
    await copy.settle(MOVING)
    await source.delete(*keys)
    await source.set("after", "1")
    await asyncio.sleep(0.5)
    moved = [key for key in keys if slot_of(key) in MOVING]
    assert await target.exists(*moved) == len(moved)


async def test_level_a_rule_gives_a_name_another_slot_in_another_database(
    pair: Pair, source: Redis, target: Redis, tmp_path: Path
) -> None:
    """Scripts at the source copy and move keys into a database whose slot moves, and out of it."""
    await source.config_set("repl-diskless-sync-delay", 0)
    five = slot_of(b"five")
    names = [name for number in range(20) if slot_of(name := b"k%d" % number) != five]
    copy = copy_between(pair, tmp_path / "spool", rules=[SlotRule("*", 5, "five")], moving=[five])
    try:
        async with client_of(pair.source, 5) as there, client_of(pair.target, 5) as seen:
            await source.mset(dict.fromkeys(names[1:], "old"))
            await there.mset({names[0]: "gone", names[1]: "replaced"})
            async with asyncio.timeout(30):
                await copy.nearly_level()
            await there.move(names[0].decode(), 0)
            await source.execute_command("COPY", names[2], names[1], "DB", 5, "REPLACE")
            await source.execute_command("COPY", names[2], "new", "DB", 5)
            await source.move(names[3].decode(), 5)
            await there.execute_command("COPY", names[1], "{five}", "DB", 0)
            await there.set("plain", "there")
            await copy.settle([five])
            have = {key: await there.get(key) for key in await there.keys("*")}
            assert have == {names[1]: b"old", b"new": b"old", names[3]: b"old", b"plain": b"there"}
            assert {key: await seen.get(key) for key in await seen.keys("*")} == have
        assert [key for key in await target.keys("*") if not key.startswith(RESERVED)] == [b"{five}"]
    finally:
        await copy.close()


async def test_owned_neither_server_counts_as_swept_any_more(copy: RunningCopy, source: Redis, target: Redis) -> None:
    for redis in (source, target):
        await redis.hset(SWEPT, mapping={"swept": "life", "data": "id", "token": "of a sweep under way"})
    await copy.nearly_level()
    assert await target.hkeys(SWEPT) == [b"data"]
    assert len(await source.hkeys(SWEPT)) == 3
    await copy.settle(MOVING)
    assert await source.hkeys(SWEPT) == [b"data"], "a sweep under way is not to count"


@pytest.mark.parametrize("begun", [False, True])
async def test_level_a_copy_that_was_never_nearly_level_is_not_settled(copy: RunningCopy, begun: bool) -> None:
    if begun:
        copy._stream.run_id, copy._run_id = await make_ready(
            copy._source,
            copy.target,
            copy._id,
            stream=copy._stream.id,
            access=ServerAccess(),
            instance=INSTANCE,
        )
        copy._stream.start()
    with pytest.raises(NotNearlyLevel, match="it begins anew"):
        await copy.settle(MOVING)


@pytest.mark.long
async def test_big_values_of_every_type(pair: Pair, copy: RunningCopy, source: Redis) -> None:
    pipe = source.pipeline(transaction=False)
    many = range(20_000)
    pipe.set("string:big", b"text" * 300_000)
    pipe.rpush("list:big", *(f"element {number}" for number in many))
    pipe.sadd("set:big", *(f"member {number}" for number in many))
    pipe.zadd("zset:big", {f"member {number}": number / 7 for number in many})
    pipe.hset("hash:big", mapping={f"field {number}": "value" for number in many})
    await pipe.execute()
    await streams.busy(source, 3000, b"stream:big")
    names = [f"{kind}:big:{number}" for kind in (*READS, "stream") for number in range(8)]
    copies = [name for name in names if slot_of(name.encode()) in MOVING]
    assert {name.partition(":")[0] for name in copies} == {*READS, "stream"}
    for name in copies:
        await source.copy(name.rpartition(":")[0], name)
        await source.pexpire(name, 3_600_000)
    await copy.nearly_level()
    for name in copies:
        if name.startswith("hash"):
            await source.hset(name, "field 1", "another value")
    await copy.settle(MOVING)
    assert await assert_level(pair) >= len(copies)


async def test_a_source_that_is_emptied_voids_the_copy(copy: RunningCopy, source: Redis) -> None:
    await source.set("key", "value")
    await copy.nearly_level()
    await source.flushdb()
    with pytest.raises(Exception, match="FLUSHDB"):
        async with asyncio.timeout(20):
            await copy.settle(MOVING)


@pytest.mark.long
async def test_persist_right_before_a_deadline_keeps_the_key(
    pair: Pair, copy: RunningCopy, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the time of the snapshot the deadlines are too far ahead to be withheld.
    monkeypatch.setattr(following, "BUILDING_MS", 6000)
    keys = [f"string:{number}" for number in range(300)]
    pipe = source.pipeline(transaction=False)
    for number, key in enumerate(keys):
        pipe.set(key, "value", px=8000 + 2 * number)
    await pipe.execute()
    await copy.nearly_level()
    while await source.pttl(keys[0]) > 300:
        await asyncio.sleep(0.05)
    assert copy._following is not None
    async with copy._following._turn:
        # The target hears of it only after the deadlines.
        pipe = source.pipeline(transaction=False)
        for key in keys:
            pipe.persist(key)
        assert all(await pipe.execute())
        await asyncio.sleep(1.5)
    await copy.settle(MOVING)
    moved = [key for key in keys if slot_of(key.encode()) in MOVING]
    assert await target.exists(*moved) == len(moved)
    assert {await target.pttl(key) for key in moved} == {-1}


@pytest.mark.long
async def test_what_is_left_of_a_copy_that_is_closed_begins_anew(
    pair: Pair, copy: RunningCopy, source: Redis, target: Redis, tmp_path: Path
) -> None:
    await source.set("string:1", "value")
    await copy.nearly_level()
    await copy.close()
    await target.flushall()
    again = copy_between(pair, tmp_path / "spool")
    await again.nearly_level()
    await again.settle(MOVING)
    await assert_level(pair)
    await again.close()


async def test_connections_of_a_former_process_are_ended_although_it_has_counted_them_alike(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_process(name: str) -> None:
        monkeypatch.setattr(pairs, "_PROCESS", name)
        monkeypatch.setattr(pairs, "_numbers", count(1))

    async with AsyncExitStack() as stack:
        in_process("former")
        former = ServerPair(stack, pair.source.address, pair.target.address, ServerAccess(), INSTANCE, Timeouts())
        connections = await former.connect_target(), await former.connect_source()
        in_process("next")
        await make_ready(
            pair.source.address,
            pair.target.address,
            "c0ffee",
            stream="5eed",
            access=ServerAccess(),
            instance=INSTANCE,
        )
        for connection in connections:
            with pytest.raises(MigrationError):
                await connection.call("PING")


@pytest.mark.parametrize("other", [0, 1])
async def test_servers_that_are_others_than_those_that_were_checked_are_not_made_ready(
    pair: Pair, target: Redis, other: int
) -> None:
    addresses = pair.source.address, pair.target.address
    run_ids = list(await make_ready(*addresses, "c0ffee", stream="5eed", access=ServerAccess(), instance=INSTANCE))
    run_ids[other] = "0" * 40
    with pytest.raises(MigrationError, match="another process"):
        await make_ready(
            *addresses,
            "decaf",
            stream="5eed",
            access=ServerAccess(),
            instance=INSTANCE,
            run_ids=(run_ids[0], run_ids[1]),
        )
    assert await target.get(POSITION) == b"c0ffee begun"


@pytest.mark.parametrize("other", [0, 1])
async def test_a_machine_that_reaches_other_servers_by_the_same_addresses_makes_no_copy(
    pair: Pair, tmp_path: Path, source: Redis, target: Redis, other: int
) -> None:
    addresses = pair.source.address, pair.target.address
    run_ids = list(await make_ready(*addresses, "c0ffee", stream="5eed", access=ServerAccess(), instance=INSTANCE))
    run_ids[other] = "0" * 40
    await source.set("string:1", "value")
    for server in (source, target):
        await server.delete(LEADER)
    stream = SourceStream(
        addresses[0], run_ids[0], id="5eed", folder=tmp_path, access=ServerAccess(), instance=INSTANCE, term=7
    )
    copy = RunningCopy(
        stream,
        addresses[1],
        MOVING,
        "c0ffee",
        run_id=run_ids[1],
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
        pace=pair.pace,
        progress=pair.progress,
    )
    try:
        async with asyncio.timeout(30):
            with pytest.raises(MigrationError, match="another process"):
                await copy.nearly_level()
    finally:
        await copy.close()
    assert not await (source, target)[other].exists(LEADER), "a server of somebody else keeps its leader"
    assert not await target.exists("string:1")


async def test_a_request_that_topom_has_broken_off_takes_no_connection_from_a_later_one(
    copy: RunningCopy, source: Redis, target: Redis
) -> None:
    await source.set("string:1", "value")
    connecting, go_on = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(30):
        await copy.nearly_level()
        assert copy._pair is not None
        assert copy._copy is not None
        connect, settle = copy._pair.connect_source, copy._copy.settle

        async def late() -> Connection:
            connecting.set()
            await go_on.wait()
            return await connect()

        async def meanwhile(*arguments: Any) -> None:
            go_on.set()
            await asyncio.wait((broken_off,))
            await settle(*arguments)

        copy._pair.connect_source, copy._copy.settle = late, meanwhile  # type: ignore[method-assign, assignment]
        broken_off = asyncio.create_task(copy.nearly_level())
        await connecting.wait()
        asyncio.get_running_loop().call_later(0.3, go_on.set)
        await copy.settle(MOVING)
    assert await target.get("string:1") == await source.get("string:1")


@pytest.mark.long
async def test_a_target_that_begins_to_evict_voids_the_copy(copy: RunningCopy, source: Redis, target: Redis) -> None:
    await source.set("string:1", "value")
    await copy.nearly_level()
    memory, policy = await target.config_get("maxmemory"), await target.config_get("maxmemory-policy")
    try:
        await target.config_set("maxmemory-policy", "allkeys-lru")
        await target.config_set("maxmemory", 1 << 40)
        with pytest.raises(TargetEvicts):
            await copy.settle(MOVING)
    finally:
        for name, value in {**memory, **policy}.items():
            await target.config_set(name, value)


@pytest.mark.long
async def test_a_target_that_stands_still_past_a_deadline_voids_the_copy(
    pair: Pair, copy: RunningCopy, source: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the placeholder too late, and may have lost the key by then."""
    monkeypatch.setattr(following, "BUILDING_MS", 3500)
    keys = [f"string:{number}" for number in range(40)]
    for key in keys:
        await source.set(key, "value", px=9000)
    await copy.nearly_level()
    assert pair.target.pid is not None
    os.kill(pair.target.pid, signal.SIGSTOP)
    try:
        while await source.pttl(keys[-1]) > 0:
            await asyncio.sleep(0.05)
    finally:
        os.kill(pair.target.pid, signal.SIGCONT)
    with pytest.raises(DeadlineMissed):
        async with asyncio.timeout(20):
            await copy.settle(MOVING)


async def test_a_target_whose_clock_is_ahead_gets_no_copy(copy: RunningCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys would expire before their deadlines are withheld. Here this process's clock is late."""
    monkeypatch.setattr(running, "now_ms", lambda: now_ms() - 1500)
    with pytest.raises(ClockAhead):
        await copy.nearly_level()


async def test_a_clock_that_is_set_ahead_voids_the_copy(copy: RunningCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    await copy.nearly_level()
    monkeypatch.setattr(running, "now_ms", lambda: now_ms() - 1500)
    with pytest.raises(ClockAhead):
        await copy.settle(MOVING)


@pytest.fixture
async def far(pair: Pair, source: Redis, tmp_path: Path) -> AsyncIterator[tuple[RunningCopy, Relay]]:
    """A copy whose source is reached by a relay, over which its stream may come late."""
    await source.config_set("repl-diskless-sync-delay", 0)
    await source.set("string:1", "value")
    relay = await Relay(pair.source.address).accept()
    stream = SourceStream(
        relay.address, "", id="5eed", folder=tmp_path / "spool", access=ServerAccess(), instance=INSTANCE
    )
    copy = ReadyCopy(
        stream,
        pair.target.address,
        MOVING,
        "c0ffee",
        run_id="",
        key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
        pace=pair.pace,
        progress=pair.progress,
    )
    async with asyncio.timeout(30):
        await copy.nearly_level()
    yield copy, relay
    await copy.close()
    await relay.stop()


@pytest.mark.long
async def test_a_copy_whose_stream_is_late_is_not_nearly_level(
    pair: Pair, far: tuple[RunningCopy, Relay], source: Redis
) -> None:
    """Within the lock all that was written before would have to come by as late."""
    copy, relay = far
    assert copy._following is not None
    expect, expected = copy._following.expect, asyncio.Event()
    markers: list[bytes] = []

    def expecting(marker: bytes, slots: Collection[int]) -> AbstractContextManager[asyncio.Event]:
        markers.append(marker)
        if len(markers) == 2:
            expected.set()
        return expect(marker, slots)

    copy._following.expect = expecting  # type: ignore[method-assign, assignment]
    relay.late_seconds = NEARLY_SECONDS + 0.5
    again = asyncio.create_task(copy.nearly_level())
    async with asyncio.timeout(30):
        await asyncio.wait((again, asyncio.ensure_future(expected.wait())), return_when=asyncio.FIRST_COMPLETED)
        assert not again.done(), "its first marker was late"
        relay.late_seconds = 0.0
        await again
        await source.set("string:2", "value")
        await copy.settle(MOVING)
    assert await assert_level(pair) > 0


async def test_a_copy_whose_stream_stays_late_is_given_up(
    far: tuple[RunningCopy, Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, relay = far
    monkeypatch.setattr(running, "LEVEL_SECONDS", 0.3)
    relay.late_seconds = 600.0
    async with asyncio.timeout(30):
        with pytest.raises(NeverLevel, match="the stream that is followed is late"):
            await copy.nearly_level()
