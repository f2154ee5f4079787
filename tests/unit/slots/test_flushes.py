"""The scripts of a flush, at a real server: what they keep away, what they keep, and when they refuse."""

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots.flushes import FLUSH, RELEASE, UNDER_WAY, WITHHOLD
from slots.reserved import FENCED, FLUSH_FIELD, STATE

OURS = f"{FLUSH_FIELD}ours"


async def under_way(redis: Redis, *dead: str) -> list[bytes]:
    found: list[bytes] = await redis.execute_command("EVAL", UNDER_WAY.text, 1, STATE, *dead)
    return sorted(found)


async def withhold(redis: Redis, field: str = OURS) -> None:
    await redis.execute_command("EVAL", WITHHOLD.text, 1, STATE, field)


async def flush(redis: Redis, field: str = OURS, *command: str) -> None:
    await redis.execute_command("EVAL", FLUSH.text, 2, STATE, FENCED, field, 0, *(command or ("FLUSHALL",)))


async def test_with_the_first_field_goes_the_permit_and_every_claim(redis: Redis) -> None:
    await redis.hset(STATE, mapping={"permit": "p", "accepts": "p", "claim:0:a": "m", f"{FLUSH_FIELD}other": "x"})
    await withhold(redis)
    assert sorted(await redis.hkeys(STATE)) == sorted([OURS.encode(), f"{FLUSH_FIELD}other".encode()])
    assert await under_way(redis) == sorted([OURS.encode(), f"{FLUSH_FIELD}other".encode()])


async def test_everything_goes_but_what_has_to_outlast_it(redis: Redis) -> None:
    await withhold(redis)
    await redis.hset(FENCED, "f" * 32, "1")
    await redis.set("key", "value")
    await flush(redis)
    assert sorted(await redis.keys("*")) == sorted([STATE, FENCED])
    assert await redis.hkeys(FENCED) == [b"f" * 32]


async def test_nothing_goes_where_the_field_does_not_stand_any_more(redis: Redis) -> None:
    await redis.set("key", "value")
    with pytest.raises(ResponseError, match="it was not flushed"):
        await flush(redis)
    # It stood before the server was started anew: its run id was another one.
    await redis.hset(STATE, OURS, "0" * 40)
    with pytest.raises(ResponseError, match="it was not flushed"):
        await flush(redis)
    assert await redis.get("key") == b"value"
    await flush(redis, "")
    assert await redis.get("key") is None, "no field was asked for"


async def test_what_the_server_says_of_a_wrong_command_is_said(redis: Redis) -> None:
    with pytest.raises(ResponseError, match="syntax error"):
        await flush(redis, "", "FLUSHDB", "NOW")


async def test_whoever_takes_its_field_back_learns_whether_it_stood(redis: Redis) -> None:
    await withhold(redis)
    assert await redis.execute_command("EVAL", RELEASE.text, 1, STATE, OURS) == 1
    assert await redis.execute_command("EVAL", RELEASE.text, 1, STATE, OURS) == 0
    await redis.hset(STATE, OURS, "0" * 40)
    assert await redis.execute_command("EVAL", RELEASE.text, 1, STATE, OURS) == 0, "of another process of the server"


async def test_fields_of_the_dead_are_taken_away_and_no_others(redis: Redis) -> None:
    await withhold(redis)
    await withhold(redis, f"{FLUSH_FIELD}dead")
    assert await under_way(redis, f"{FLUSH_FIELD}dead") == [OURS.encode()]
