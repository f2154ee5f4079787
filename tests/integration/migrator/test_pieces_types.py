"""Every type of key that goes in pieces arrives as it was, from and to servers of every version."""

import random
from collections.abc import Callable, Iterator

import pytest
from redis.asyncio import Redis

from migrator.pieces import cutter
from tests.integration.migrator.copies import KEY, NASTY, Way

ELEMENTS = 100_000
FOOTER = 10
"""Bytes at the end of a DUMP that name the version and check the rest."""


def members(count: int = ELEMENTS) -> list[bytes]:
    """Different ones, some of them nasty."""
    return NASTY + [b"member:%d" % number if number % 3 else b"%d" % number for number in range(10, 10 + count)]


def scores(count: int) -> list[float]:
    """Scores that are hard to write down."""
    chosen = random.Random(7)
    special = [float("inf"), float("-inf"), 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1, 1 / 3, 2.0**53, -1e17, 1e22]
    return special + [chosen.choice((chosen.uniform(-1, 1), chosen.random() * 1e300, 1.0)) for _ in range(count)]


def thousands(items: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(items), 2000):
        yield items[start : start + 2000]


async def fill_hash(redis: Redis, count: int) -> None:
    for some in thousands(members(count)):
        await redis.hset(KEY, mapping={field: field[::-1] for field in some})


async def fill_set(redis: Redis, count: int) -> None:
    for some in thousands(members(count)):
        await redis.sadd(KEY, *some)


async def fill_sorted_set(redis: Redis, count: int) -> None:
    score = iter(scores(count + len(NASTY)))
    for some in thousands(members(count)):
        await redis.zadd(KEY, {member: next(score) for member in some})


async def fill_list(redis: Redis, count: int) -> None:
    for some in thousands(members(count)):
        await redis.rpush(KEY, *some, *some[:5])


async def content(redis: Redis) -> object:
    """Equal for keys that hold the same."""
    match await redis.type(KEY):
        case b"hash":
            return await redis.hgetall(KEY)
        case b"set":
            return await redis.smembers(KEY)
        case b"zset":
            # Servers write the same number in their own ways.
            return [
                (member, repr(float(score)))
                for member, score in await redis.zrange(KEY, 0, -1, withscores=True, score_cast_func=bytes)
            ]
        case b"list":
            return await redis.lrange(KEY, 0, -1)
        case b"string":
            return await redis.get(KEY)
    raise AssertionError("no such key")


Fill = Callable[[Redis, int], object]
FILLS = [fill_hash, fill_set, fill_sorted_set, fill_list]


@pytest.mark.long
@pytest.mark.parametrize("fill", FILLS)
async def test_a_large_collection(each_version: Way, fill: Fill) -> None:
    await fill(each_version.source, ELEMENTS)  # type: ignore[misc]
    before = await content(each_version.source)
    assert isinstance(before, (dict, set, list))
    assert len(before) >= ELEMENTS

    copied = await each_version.move()

    assert await content(each_version.target) == before
    assert await content(each_version.source) == before
    assert copied.pieces >= ELEMENTS / cutter.PIECE_ELEMENTS
    if fill is fill_sorted_set:
        # A DUMP of a large sorted set has the members in order, and the bits of the scores.
        ours, theirs = await each_version.source.dump(KEY), await each_version.target.dump(KEY)
        assert ours is not None
        assert theirs is not None
        assert ours[:-FOOTER] == theirs[:-FOOTER]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("elements", [1, 3, 512])
async def test_small_pieces_and_small_collections(
    way: Way, fill: Fill, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutter, "PIECE_ELEMENTS", elements)
    await fill(way.source, 40)  # type: ignore[misc]

    await way.move()

    assert await content(way.target) == await content(way.source)


@pytest.mark.parametrize(
    "command",
    [
        ("HSET", "a", "1"),
        ("HSET", "a", "1", "b", "x" * 65),
        ("SADD", *range(100)),
        ("SADD", *range(600)),
        ("SADD", "a"),
        ("ZADD", "1", "a", "-0", "b", "inf", "c"),
        ("ZADD", "1", "a" * 65),
        ("RPUSH", ""),
        ("RPUSH", *range(5000)),
        ("SET", ""),
        ("SET", "12345"),
        ("SET", "a short one"),
        ("PFADD", *range(10)),
        ("PFADD", *range(10_000)),
        ("GEOADD", "13.361389", "38.115556", "Palermo"),
    ],
)
async def test_small_keys_keep_their_encoding(way: Way, command: tuple[str | int, ...]) -> None:
    name, *arguments = command
    await way.source.execute_command(str(name), KEY, *arguments)

    await way.move()

    assert await content(way.target) == await content(way.source)
    encoding = await way.source.object("ENCODING", KEY)
    assert await way.target.object("ENCODING", KEY) == encoding
    if encoding != b"hashtable":  # which has an order of its own at each server
        assert await way.target.dump(KEY) == await way.source.dump(KEY)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 127 * 1024 + 1, 3_000_000, 40 * 1024 * 1024])
async def test_strings(any_way: Way, size: int) -> None:
    value = random.Random(size).randbytes(size)
    await any_way.source.set(KEY, value)

    await any_way.move()

    assert await any_way.target.get(KEY) == value


@pytest.mark.long
async def test_elements_larger_than_a_piece(each_version: Way) -> None:
    await each_version.source.hset(KEY, mapping={f"field {number}": "x" * (number * 1000) for number in range(600)})
    await each_version.source.hset(KEY, "large", b"\x00" * 20_000_000)
    before = await content(each_version.source)

    copied = await each_version.move()

    assert await content(each_version.target) == before
    assert copied.pieces >= copied.size / 2 / 1_000_000


async def test_lists_whose_elements_grow_on_the_way(way: Way) -> None:
    for some in thousands([b"x"] * 20_000 + [b"y" * 50_000] * 300 + [b"z"] * 20_000):
        await way.source.rpush(KEY, *some)

    await way.move()

    assert await content(way.target) == await content(way.source)


async def test_what_a_server_gives_at_once_is_written_in_parts(way: Way) -> None:
    """given a server told to keep large sets as integers, a scan of one has one page."""
    for redis in (way.source, way.target):
        await redis.config_set("set-max-intset-entries", 50_000)
    try:
        for start in range(0, 50_000, 5000):
            await way.source.sadd(KEY, *range(start, start + 5000))
        assert await way.source.object("ENCODING", KEY) == b"intset"

        copied = await way.move()

        assert await content(way.target) == await content(way.source)
        assert await way.target.object("ENCODING", KEY) == b"intset"
        assert copied.pieces >= 50_000 / 512
    finally:
        for redis in (way.source, way.target):
            await redis.config_set("set-max-intset-entries", 512)


async def test_a_hash_that_was_larger_is_found_whole(way: Way) -> None:
    """given a table that has more room than fields, a scan finds all fields that are left."""
    await fill_hash(way.source, 50_000)
    fields = await way.source.hkeys(KEY)
    for some in thousands([field for number, field in enumerate(fields) if number % 100]):
        await way.source.hdel(KEY, *some)

    await way.move()

    assert await content(way.target) == await content(way.source)


async def test_other_databases(way: Way) -> None:
    for connection in (way.from_source, way.to_target):
        await connection.call("SELECT", 9)
    way.database = 9
    await way.from_source.call("RPUSH", KEY, *range(5000))

    await way.finish(await way.copy())

    assert await way.target.dbsize() == 0
    assert await way.to_target.call("LRANGE", KEY, 0, -1) == await way.from_source.call("LRANGE", KEY, 0, -1)
