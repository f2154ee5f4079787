"""A copy that is not whole never becomes the key; whatever happens on the way, no half of it stays."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from migrator.connection import Timeouts
from migrator.errors import CopyLost, KeyGone, Refusal, SourceUnavailable, TargetRefused, TargetUnavailable
from migrator.pieces import copying, piece
from migrator.pieces.deadlines import read_deadline
from tests.integration.migrator.copies import KEY, TEMPORARY, Interrupted, Way, way_between
from tests.integration.migrator.pairs import Pair

Fill = Callable[[Redis], Awaitable[object]]


async def a_hash(redis: Redis) -> None:
    await redis.hset(KEY, mapping={f"field {number}": "value" for number in range(5000)})


async def a_set(redis: Redis) -> None:
    await redis.sadd(KEY, *(f"member {number}" for number in range(5000)))


async def a_sorted_set(redis: Redis) -> None:
    await redis.zadd(KEY, {f"member {number}": number for number in range(5000)})


async def a_list(redis: Redis) -> None:
    await redis.rpush(KEY, *(f"value {number}" for number in range(5000)))


async def a_string(redis: Redis) -> None:
    await redis.set(KEY, b"value" * 300_000)


async def a_stream(redis: Redis) -> None:
    pipeline = redis.pipeline(transaction=False)
    for number in range(1, 5001):
        pipeline.xadd(KEY, {"field": number}, id=f"{number}-0")
    await pipeline.execute()
    await redis.xgroup_create(KEY, "group", "0")


async def a_stream_with_pending_entries(redis: Redis) -> None:
    await a_stream(redis)
    await redis.xreadgroup("group", "consumer", {KEY: ">"}, count=5000)


COLLECTIONS = [a_hash, a_set, a_sorted_set, a_list, a_stream]
EVERYTHING = [*COLLECTIONS, a_string]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once it holds."""
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize("fill", EVERYTHING)
async def test_times_to_live_are_kept_to_the_millisecond(any_way: Way, fill: Fill) -> None:
    await fill(any_way.source)
    deadline = int(time.time() * 1000) + 3_600_123
    await any_way.source.pexpireat(KEY, deadline)

    await any_way.move()

    assert await read_deadline(any_way.to_target, KEY) == deadline
    # The server's own word, without what reads deadlines here.
    left, now = await any_way.target.pttl(KEY), time.time() * 1000
    assert abs(now + left - deadline) < 5000


@pytest.mark.parametrize("fill", EVERYTHING)
async def test_a_key_without_a_deadline_has_none_afterwards(way: Way, fill: Fill) -> None:
    await fill(way.source)

    await way.move()

    assert await way.target.pttl(KEY) == -1


@pytest.mark.parametrize("fill", [a_hash, a_string])
async def test_a_stale_key_at_the_target_is_replaced(way: Way, fill: Fill) -> None:
    await fill(way.source)
    await way.target.zadd(KEY, {f"stale {number}": number for number in range(10_000)})
    await way.target.expire(KEY, 1000)
    await way.target.rpush(TEMPORARY, "left over")

    copied = await way.copy()
    assert await way.target.zcard(KEY) == 10_000
    assert await way.finish(copied)

    assert await way.target.type(KEY) == await way.source.type(KEY)
    assert await way.target.pttl(KEY) == -1
    assert await way.target.keys() == [KEY]


async def test_a_key_that_expires_between_is_removed_not_made(way: Way) -> None:
    await a_hash(way.source)
    await way.source.pexpireat(KEY, int(time.time() * 1000) + 3_600_000)
    await way.target.set(KEY, "stale")
    copied = await way.copy()
    soon = int(time.time() * 1000) + 20
    late = type(copied)(**{name: getattr(copied, name) for name in copied.__slots__} | {"deadline": soon})

    async def over() -> bool:
        return int((await way.target.time())[0]) * 1000 + (await way.target.time())[1] // 1000 > soon

    await until(over)

    assert await way.finish(late), "the key is to be dropped at the source as well"

    assert await way.target.dbsize() == 0


@pytest.mark.long
@pytest.mark.parametrize("fill", [*EVERYTHING, a_stream_with_pending_entries])
@pytest.mark.parametrize("number", [1, 5])
async def test_a_key_that_goes_while_it_is_copied(any_way: Way, fill: Fill, number: int) -> None:
    await fill(any_way.source)
    pace = any_way.pace = Interrupted(number, lambda: any_way.source.delete(KEY))

    with pytest.raises(KeyGone, match="expired or was evicted at source"):
        await any_way.copy()

    assert pace.asked >= number
    assert await any_way.target.dbsize() == 0
    # Both connections are as good as before.
    await any_way.source.rpush(KEY, *range(1000))
    await any_way.move()


async def test_a_string_that_goes_and_comes_back_is_not_patched_together(way: Way) -> None:
    await a_string(way.source)
    way.pace = Interrupted(3, lambda: way.source.delete(KEY), {6: lambda: a_string(way.source)})

    with pytest.raises(KeyGone):
        await way.copy()

    assert await way.target.dbsize() == 0


async def test_a_key_that_is_not_there(way: Way) -> None:
    with pytest.raises(KeyGone):
        await way.copy()


@pytest.mark.parametrize("fill", COLLECTIONS)
async def test_a_copy_that_goes_while_it_is_made(way: Way, fill: Fill) -> None:
    """given a target that evicts the unfinished copy, later pieces make another copy, which is short."""
    await fill(way.source)
    seen: list[int] = []

    async def evict() -> None:
        seen.append(await way.target.delete(TEMPORARY))

    way.pace = Interrupted(5, evict)

    with pytest.raises(CopyLost, match="has gone from target"):
        await way.copy()

    assert seen == [1]
    assert way.pace.asked == 5
    assert await way.target.dbsize() == 0


@pytest.mark.parametrize(
    ("fill", "spoil"),
    [
        (a_hash, ("EVAL", "return redis.call('HDEL', KEYS[1], redis.call('HRANDFIELD', KEYS[1]))", 1, TEMPORARY)),
        (a_set, ("SPOP", TEMPORARY)),
        (a_sorted_set, ("ZADD", TEMPORARY, "7", "one more")),
        (a_list, ("LPOP", TEMPORARY)),
        (a_stream, ("XTRIM", TEMPORARY, "MAXLEN", "1")),
    ],
)
async def test_a_copy_that_is_changed_while_it_is_made(
    way: Way, fill: Fill, spoil: tuple[str | bytes | int, ...]
) -> None:
    await fill(way.source)
    way.pace = Interrupted(5, lambda: way.target.execute_command(*spoil))  # type: ignore[arg-type]

    with pytest.raises(CopyLost, match="elements instead of"):
        await way.copy()

    assert await way.target.dbsize() == 0


@pytest.mark.parametrize(
    "spoil",
    [
        ("HDEL", TEMPORARY, "field 1"),
        ("HSET", TEMPORARY, "one more", "1"),
        ("DEL", TEMPORARY),
        ("SET", TEMPORARY, "of another type"),
    ],
)
async def test_a_copy_that_is_not_whole_is_never_finished(way: Way, spoil: tuple[str | bytes, ...]) -> None:
    await a_hash(way.source)
    await way.target.set(KEY, "stale")
    copied = await way.copy()
    await way.target.execute_command(*spoil)  # type: ignore[arg-type]

    with pytest.raises(CopyLost, match="gone or no longer whole"):
        await way.finish(copied)

    assert await way.target.get(KEY) == b"stale"
    assert await way.source.hlen(KEY) == 5000


async def test_a_copy_is_not_finished_twice(way: Way) -> None:
    await a_hash(way.source)
    copied = await way.copy()
    assert await way.finish(copied)
    with pytest.raises(CopyLost):
        await way.finish(copied)
    assert await way.target.hlen(KEY) == 5000


@pytest.mark.parametrize("fill", COLLECTIONS)
async def test_what_is_left_behind_expires(way: Way, fill: Fill) -> None:
    """given a mover that dies while it copies, the half copy had an expiry from its first command on."""
    await fill(way.source)

    async def die() -> None:
        assert 0 < await way.target.pttl(TEMPORARY) <= 60_000
        way.to_target.close()

    way.pace = Interrupted(4, die)

    with pytest.raises(TargetUnavailable):
        await way.copy()

    assert await way.target.exists(KEY) == 0
    assert 0 < await way.target.pttl(TEMPORARY) <= 60_000
    await way.target.pexpire(TEMPORARY, 50, lt=True)  # as if the rest had passed

    async def gone() -> bool:
        return await way.target.dbsize() == 0

    await until(gone)


async def test_half_a_string_is_no_key_at_all(way: Way) -> None:
    await a_string(way.source)

    async def die() -> None:
        assert await way.target.dbsize() == 0
        way.to_target.close()

    way.pace = Interrupted(4, die)

    with pytest.raises(TargetUnavailable):
        await way.copy()

    assert await way.target.dbsize() == 0


@pytest.mark.long
async def test_a_pause_keeps_what_is_there(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    await a_hash(way.source)
    monkeypatch.setattr(copying, "EXPIRY_SECONDS", 4.0)
    monkeypatch.setattr(piece, "EXPIRY_SECONDS", 4.0)

    async def pause() -> None:
        way.pace.pause()

    way.pace = Interrupted(3, pause)
    call = asyncio.create_task(way.copy())
    lowest = [10_000]

    async def renewed() -> bool:
        left = await way.target.pttl(TEMPORARY)
        lowest[0] = min(lowest[0], left) if left > 0 else lowest[0]
        return left > lowest[0] + 100

    for _ in range(2):
        lowest[0] = 10_000
        await until(renewed)
    assert not call.done()
    way.pace.resume()

    assert await way.finish(await call)

    assert await way.target.hgetall(KEY) == await way.source.hgetall(KEY)


async def test_a_cancelled_copy_is_dropped(way: Way) -> None:
    await a_hash(way.source)
    reached = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    pace, way.pace = way.pace, Interrupted(4, wait)
    call = asyncio.create_task(way.copy())
    await asyncio.wait_for(reached.wait(), 30)
    assert await way.target.exists(TEMPORARY)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert await way.target.dbsize() == 0
    way.pace = pace
    await way.move()


async def test_a_copy_cancelled_between_any_two_steps(way: Way) -> None:
    """given cancellations at any moment, nothing is left at the target and both connections can be used again."""
    await a_hash(way.source)
    for steps in range(0, 60, 3):
        call = asyncio.create_task(way.copy())
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await way.target.dbsize() == 0
        assert await way.from_source.quiet(5)
    await way.move()


@pytest.fixture
async def fragile_way(fragile_pair: Pair) -> AsyncIterator[Way]:
    async with way_between(fragile_pair.source, fragile_pair.target, Timeouts(reply_seconds=5)) as found:
        yield found


@pytest.mark.parametrize("fill", EVERYTHING)
async def test_a_target_without_room_refuses(fragile_way: Way, fill: Fill) -> None:
    way = fragile_way
    await fill(way.source)
    used = (await way.target.info("memory"))["used_memory"]
    await way.target.config_set("maxmemory", used + 150_000)

    with pytest.raises(TargetRefused) as raised:
        await way.copy()

    assert raised.value.refusal is Refusal.MEMORY
    assert await way.target.dbsize() == 0
    await way.target.config_set("maxmemory", 0)
    await way.move()


@pytest.mark.parametrize("fill", [a_list, a_string])
async def test_a_source_that_dies_leaves_nothing_at_the_target(
    fragile_pair: Pair, fragile_way: Way, fill: Fill
) -> None:
    way = fragile_way
    await fill(way.source)
    way.pace = Interrupted(4, fragile_pair.source.kill)

    with pytest.raises(SourceUnavailable):
        await way.copy()

    assert await way.target.dbsize() == 0


async def test_a_read_under_way_ends_before_an_error_is_raised(fragile_pair: Pair, fragile_way: Way) -> None:
    """given a source that is slow when the copy is lost, its connection can be used again all the same."""
    way, source = fragile_way, fragile_pair.source.pid
    await a_hash(way.source)

    async def stop() -> None:
        await asyncio.sleep(0.05)  # the read ahead is there; the one after it finds the source stopped
        os.kill(source, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.5, os.kill, source, signal.SIGCONT)

    way.pace = Interrupted(4, stop, {5: lambda: way.target.delete(TEMPORARY)})

    with pytest.raises(CopyLost):
        await way.copy()

    assert await way.from_source.call("PING") == b"PONG"
