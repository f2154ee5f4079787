"""A stream arrives with all that belongs to it: entries, ids, groups, consumers, what is pending, and its counters."""

from typing import Any

import pytest
from redis.asyncio import Redis

from migrator.errors import CopyLost
from migrator.pieces import cutter
from tests.integration.migrator.copies import KEY, TEMPORARY, Interrupted, Way
from tests.integration.migrator.streams import NEWER, add, busy, comparable, named, read, state


async def assert_same(way: Way) -> None:
    ours, theirs = await state(way.from_source), await state(way.to_target)
    assert comparable(theirs, ours) == comparable(ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize("entries", [1, 30, 3000])
async def test_a_busy_stream(any_way: Way, entries: int) -> None:
    await busy(any_way.source, entries)
    pending = await any_way.source.xpending(KEY, "all")
    assert pending["pending"] or entries == 1

    await any_way.move()

    await assert_same(any_way)


@pytest.mark.parametrize("elements", [1, 2, 7, 64])
async def test_pieces_of_any_size(way: Way, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutter, "PIECE_ELEMENTS", elements)
    await busy(way.source, 200)

    await way.move()

    await assert_same(way)


async def test_more_groups_than_are_asked_at_once(way: Way) -> None:
    await add(way.source, 1, 50)
    for number in range(150):
        await way.source.xgroup_create(KEY, f"group {number}", f"{number % 50}-0")
        await read(way.source, f"group {number}", f"consumer {number}", 1 + number % 7)
    await way.source.xdel(KEY, "3-0", "20-2", "50-2")

    await way.move()

    await assert_same(way)


@pytest.mark.long
async def test_a_large_stream(each_version: Way) -> None:
    for first in range(1, 100_001, 5000):
        await add(each_version.source, first, 5000, size=1)
    await each_version.source.xgroup_create(KEY, "group", "0")
    for number in range(20):
        await read(each_version.source, "group", f"consumer {number % 7}", 1000)

    await each_version.move()

    await assert_same(each_version)
    assert await each_version.target.xrange(KEY, "-", "+") == await each_version.source.xrange(KEY, "-", "+")


@pytest.mark.long
@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize("how", ["deleted", "trimmed", "last id set"])
async def test_streams_without_entries(any_way: Way, how: str, groups: int) -> None:
    redis = any_way.source
    await add(redis, 1, 300)
    for number in range(groups):
        await redis.xgroup_create(KEY, f"group {number}", "0")
        await read(redis, f"group {number}", "consumer", 200)
    if how == "deleted":
        await redis.xdel(KEY, *(f"{number}-{number % 3}" for number in range(1, 301)))
    else:
        await redis.xtrim(KEY, maxlen=0, approximate=False)
    if how == "last id set":
        await redis.execute_command("XSETID", KEY, "18446744073709551615-18446744073709551615")

    await any_way.move()

    await assert_same(any_way)
    assert await any_way.target.xlen(KEY) == 0


async def test_a_stream_that_never_had_an_entry(any_way: Way) -> None:
    await any_way.source.xgroup_create(KEY, "group", "0", mkstream=True)

    await any_way.move()

    await assert_same(any_way)


async def test_ids_at_both_ends(any_way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ["0-1", "0-18446744073709551615", "1-0", "18446744073709551615-0"]
    for entry in [*ids, "18446744073709551615-18446744073709551615"]:
        await any_way.source.execute_command("XADD", KEY, entry, "", "")
    await any_way.source.xgroup_create(KEY, "group", "0")
    await read(any_way.source, "group", "consumer", 10)
    monkeypatch.setattr(cutter, "PIECE_ELEMENTS", 1)

    await any_way.move()

    await assert_same(any_way)


async def test_what_an_older_server_does_not_count_is_as_after_a_migrate(any_way: Way) -> None:
    """given a stream of a server that keeps no counters, the target has the same counters either way."""
    if NEWER in named(await _stream_info(any_way.source)):
        pytest.skip("this source counts")
    redis = any_way.source
    await redis.delete(KEY)
    await add(redis, 1, 50)
    for number in (0, 1, 2, 25, 50):
        await redis.xgroup_create(KEY, f"group {number}", f"{number}-{number % 3}")
    await redis.xgroup_create(KEY, "ahead", "900-0")
    dumped = await redis.dump(KEY)
    assert dumped is not None

    await any_way.move()

    ours = await state(any_way.to_target)
    await any_way.target.restore(KEY, 0, dumped, replace=True)
    assert ours == await state(any_way.to_target)


async def _stream_info(redis: Redis) -> list[Any]:
    await redis.execute_command("XADD", KEY, "1-1", "a", "b")
    found = await redis.eval("return redis.call('XINFO', 'STREAM', KEYS[1])", 1, KEY)
    assert isinstance(found, list)
    return found


async def test_a_copy_whose_group_was_changed_is_not_taken(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(way.source, 1, 100)
    await way.source.xgroup_create(KEY, "group", "0")
    await read(way.source, "group", "consumer", 50)
    monkeypatch.setattr(cutter, "PIECE_ELEMENTS", 40)

    async def acknowledge() -> None:
        assert await way.target.xack(TEMPORARY, "group", "1-1")

    way.pace = Interrupted(5, acknowledge)

    with pytest.raises(CopyLost, match="the groups of stream"):
        await way.copy()

    assert await way.target.dbsize() == 0
