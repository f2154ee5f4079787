"""Big keys go in pieces while the rest moves, and those that clients ask for go at once."""

import asyncio
import random

from redis.asyncio import Redis

from migrator.errors import MigrationError
from migrator.pace import Pace, PaceSettings
from slots import moving, reserved
from slots.beginning import Beginning
from tests.integration.migrator.pairs import Pair, assert_moved, fill, size


async def fill_big(redis: Redis) -> dict[str, object]:
    """A big key of each kind, and what it holds."""
    random_numbers = random.Random(7)
    numbers = [random_numbers.random() for _ in range(5000)]
    contents: dict[str, object] = {
        "big:hash": {f"field:{n}".encode(): str(n).encode() for n in range(5000)},
        "big:list": [b"%d" % n for n in range(5000)],
        "big:set": {b"member:%d" % n for n in range(5000)},
        "big:zset": [(b"member:%d" % n, number) for n, number in enumerate(numbers)],
        "big:string": random_numbers.randbytes(3_000_000),
    }
    await redis.hset("big:hash", mapping=contents["big:hash"])
    await redis.rpush("big:list", *contents["big:list"])  # type: ignore[misc]
    await redis.sadd("big:set", *contents["big:set"])  # type: ignore[misc]
    await redis.zadd("big:zset", {b"member:%d" % n: number for n, number in enumerate(numbers)})
    await redis.set("big:string", contents["big:string"])  # type: ignore[arg-type]
    return contents


async def assert_big(redis: Redis, contents: dict[str, object]) -> None:
    assert await redis.hgetall("big:hash") == contents["big:hash"]
    assert await redis.lrange("big:list", 0, -1) == contents["big:list"]
    assert set(await redis.smembers("big:set")) == contents["big:set"]
    assert sorted(await redis.zrange("big:zset", 0, -1, withscores=True)) == sorted(contents["big:zset"])  # type: ignore[call-overload]
    assert await redis.get("big:string") == contents["big:string"]


async def test_big_keys_among_small_ones(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 2000)
    contents = await fill_big(source)
    await source.pexpire("big:hash", 600_000)

    await pair.migrate()

    await assert_moved(source, target, 2000)
    await assert_big(target, contents)
    assert 500_000 < await target.pttl("big:hash") <= 600_000
    assert await target.pttl("big:list") == -1
    assert await source.dbsize() == 0
    assert not [key for key in await target.keys("*") if key.startswith(reserved.RESERVED)]
    calls = (await source.info("commandstats"))["cmdstat_unlink"]["calls"]
    assert calls >= len(contents)


async def test_a_key_that_a_client_asks_for_moves_though_all_is_paused(
    pair: Pair, source: Redis, target: Redis
) -> None:
    contents = await fill_big(source)
    pair.pace = Pace(paused=True)
    call = asyncio.create_task(pair.migrate())
    await source.rpush(reserved.WANTED, b"0:big:list", b"0:no such key")
    async with asyncio.timeout(30):
        while await source.exists("big:list"):
            await asyncio.sleep(0.005)
    assert await target.lrange("big:list", 0, -1) == contents["big:list"]
    assert await size(source) == 4
    pair.pace.resume()
    await call
    await assert_big(target, contents)


async def _copied(source: Redis, target: Redis) -> bytes | None:
    """The key that is being copied; None if there is none yet."""
    claims = [field for field in await source.hkeys(reserved.STATE) if field.startswith(b"claim:0:")]
    if not claims:
        return None
    (key,) = (claim.removeprefix(b"claim:0:") for claim in claims)
    # The target has nothing of a string before its last byte is there.
    began = key == b"big:string" or any(name.endswith(b":found") for name in await target.keys("*"))
    return key if began else None


async def test_a_key_that_a_client_asks_for_while_it_is_copied_is_not_held_back_and_holds_up_no_other(
    pair: Pair, source: Redis, target: Redis
) -> None:
    """given a pause in the middle of a key that the scan found, clients wait for that key and for others."""
    contents = await fill_big(source)
    pair.pace = Pace(PaceSettings(bytes_per_second=20_000))
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while (copied := await _copied(source, target)) is None:
            await asyncio.sleep(0.005)
    pair.pace.pause()
    others = {name.encode() for name in contents} - {copied}
    await source.rpush(reserved.WANTED, *(b"0:" + name for name in (copied, *others)))
    async with asyncio.timeout(60):
        while await source.exists(copied, *others):
            await asyncio.sleep(0.005)
    await assert_big(target, contents)
    pair.pace.change(PaceSettings())
    pair.pace.resume()
    await call
    await assert_big(target, contents)


async def test_a_key_that_has_become_small_since_a_client_asked_for_it_goes_all_the_same(
    pair: Pair, source: Redis, target: Redis
) -> None:
    await fill(source, 100)
    pair.pace = Pace(paused=True)
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while not await source.hget(reserved.STATE, "permit"):
            await asyncio.sleep(0.005)
        await source.rpush(reserved.WANTED, "0:key:42")
        while await source.exists("key:42"):
            await asyncio.sleep(0.005)
    assert await target.get("key:42") == b"value:42"
    assert await size(source) == 99
    pair.pace.resume()
    await call
    await assert_moved(source, target, 100)


async def test_a_killed_call_leaves_nothing_that_the_next_one_does_not_mend(
    pair: Pair, source: Redis, target: Redis
) -> None:
    contents = await fill_big(source)
    # A mover that dies between the last two steps leaves this: a claim, and a finished copy that does not count.
    await source.hset(reserved.STATE, "claim:0:big:hash", f"{reserved.IN_PIECES}of somebody who died")
    await target.hset("big:hash", "stale", "copy")

    await pair.migrate()

    await assert_big(target, contents)
    assert await source.dbsize() == 0


async def test_a_flush_while_a_big_key_is_on_its_way_leaves_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    """A client's FLUSHALL asks the sources first, and the targets once those have answered."""
    await fill_big(source)
    pair.pace = Pace(PaceSettings(bytes_per_second=200_000))
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while not [key for key in await target.keys("*") if key.startswith(reserved.RESERVED)]:
            await asyncio.sleep(0.005)
    await source.flushall()
    await target.flushall()
    pair.pace.change(PaceSettings())
    # The flush took the permit along, and the marks by which connections are known.
    try:
        await call
    except MigrationError:
        await pair.migrate()
    assert await size(source) == await target.dbsize() == 0


async def test_only_what_is_big_goes_in_pieces(pair: Pair, source: Redis, target: Redis) -> None:
    await source.set("string", "x" * 2000)
    await source.rpush("list", *range(moving.BIG_ELEMENTS + 1))
    await source.config_resetstat()
    await pair.migrate()
    assert await target.lrange("list", 0, -1) == [b"%d" % n for n in range(moving.BIG_ELEMENTS + 1)]
    whole = (await source.info("commandstats"))["cmdstat_dump"]["calls"]
    assert whole == 1, "the string"
    assert await target.get("string") == b"x" * 2000


async def test_of_a_source_that_was_started_anew_the_targets_copies_count(
    pair: Pair, source: Redis, target: Redis
) -> None:
    """given keys on both servers, those at the target count, whether they are small or big."""
    await fill(source, 10)
    await fill_big(source)
    await target.mset({f"key:{n}": "the truth" for n in range(5)})
    await target.set("big:hash", "the truth")
    pair.beginning = Beginning("another process")

    await pair.migrate()

    assert await target.get("big:hash") == b"the truth"
    assert await target.mget([f"key:{n}" for n in range(10)]) == [b"the truth"] * 5 + [
        b"value:%d" % n for n in range(5, 10)
    ]
    assert await target.llen("big:list") == 5000
    assert await source.dbsize() == 0
