"""The steps by which a key moves, at one real server that is source and target, and how replies are read."""

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots import moving, scripts
from slots.moving import BIG_BYTES, BIG_ELEMENTS, Taken, put_aside, strangers
from slots.replies import NotUnderstood
from slots.reserved import ASIDE, RESERVED_KEYS, STATE, WANTED
from slots.scripts import Script

MOVER = "worker 1"
PERMIT = "a b token"
"""As text of the shape that permits have: the run ids of source and target, and what tells it from others."""


async def run(redis: Redis, script: Script, *arguments: Any) -> Any:
    return await redis.execute_command("EVAL", script.text, *arguments)


async def take(redis: Redis, *keys: bytes, whole: bool = False) -> Taken:
    arguments = moving.take_arguments(PERMIT, 3, MOVER, keys, False, enough_bytes=100_000, wanted=True, whole=whole)
    return Taken.of(await run(redis, moving.TAKE, *arguments), keys)


@pytest.fixture
async def server(redis: Redis) -> Redis:
    """It has the permit at both ends, and keys in database 3."""
    await redis.hset(STATE, mapping={"permit": PERMIT, "accepts": PERMIT})
    await redis.execute_command("SELECT", "3")
    await redis.set("small", "value", px=100_000)
    await redis.rpush("large", *range(BIG_ELEMENTS + 1))
    await redis.execute_command("SELECT", "0")
    return redis


async def test_a_key_is_claimed_and_given_and_its_deadline_with_it(server: Redis) -> None:
    taken = await take(server, b"small", b"absent", b"large")
    assert (taken.looked_at, taken.keys, taken.places, taken.big, taken.busy) == (3, [b"small"], (0,), (2,), ())
    assert await server.hgetall(STATE) == {
        b"permit": PERMIT.encode(),
        b"accepts": PERMIT.encode(),
        b"claim:3:small": MOVER.encode(),
    }
    assert await server.lrange(WANTED.decode(), 0, -1) == [b"3:large"]
    assert (await take(server, b"small")).busy == (0,), "it is on its way"
    await server.execute_command("SELECT", "3")
    assert await server.execute_command("PEXPIRETIME", "small") == taken.deadlines[0]


@pytest.mark.parametrize("whole", [False, True])
async def test_a_key_is_big_by_its_elements_or_by_its_bytes(server: Redis, whole: bool) -> None:
    await server.execute_command("SELECT", "3")
    await server.rpush("elements", *range(BIG_ELEMENTS))
    await server.rpush("more elements", *range(BIG_ELEMENTS + 1))
    await server.set("bytes", "x" * (BIG_BYTES * 3 // 4))
    await server.set("more bytes", "x" * BIG_BYTES)
    taken = await take(server, b"elements", b"more elements", b"bytes", b"more bytes", whole=whole)
    assert (taken.places, taken.big) == (((0, 1, 2, 3), ()) if whole else ((0, 2), (1, 3)))


async def test_what_was_taken_is_placed_and_then_dropped(server: Redis) -> None:
    taken = await take(server, b"small")
    await server.execute_command("SELECT", "3")
    await server.delete("small")
    placed = await run(server, moving.PLACE, *moving.place_arguments(PERMIT, 3, taken, False, keeps_target=True))
    assert moving.refused(placed, 1) == {}
    await server.execute_command("SELECT", "3")
    assert await server.get("small") == b"value"
    assert await server.execute_command("PEXPIRETIME", "small") == taken.deadlines[0]
    said = await run(server, moving.DROP, *moving.drop_arguments(PERMIT, 3, MOVER, taken.keys, False, deletes=1))
    assert moving.dropped(said, 1) == 1
    assert not await server.hexists(STATE, "claim:3:small")
    again = await run(server, moving.DROP, *moving.drop_arguments(PERMIT, 3, MOVER, taken.keys, False, deletes=1))
    assert moving.dropped(again, 1) == 0, "without a claim nothing is dropped"


@pytest.mark.parametrize(("keeps", "value"), [(True, b"of the target"), (False, b"value")])
async def test_a_copy_that_the_target_has_stays_where_it_counts_for_more(
    server: Redis, keeps: bool, value: bytes
) -> None:
    taken = await take(server, b"small")
    await server.execute_command("SELECT", "3")
    await server.set("small", "of the target")
    await run(server, moving.PLACE, *moving.place_arguments(PERMIT, 3, taken, False, keeps_target=keeps))
    await server.execute_command("SELECT", "3")
    assert await server.get("small") == value


async def test_nothing_is_done_without_the_permit(server: Redis) -> None:
    taken = await take(server, b"small")
    await server.execute_command("SELECT", "0")
    await server.hset(STATE, mapping={"permit": "another", "accepts": "another"})
    with pytest.raises(ResponseError, match=scripts.NOT_PERMITTED):
        await take(server, b"small")
    for script, arguments in (
        (moving.PLACE, moving.place_arguments(PERMIT, 3, taken, False, keeps_target=False)),
        (moving.DROP, moving.drop_arguments(PERMIT, 3, MOVER, taken.keys, False, deletes=1)),
    ):
        with pytest.raises(ResponseError, match=scripts.NOT_PERMITTED):
            await run(server, script, *arguments)
    assert await server.hexists(STATE, "claim:3:small")


async def test_a_permit_of_another_process_is_none_where_the_run_id_is_looked_at(server: Redis) -> None:
    own = (await server.info("server"))["run_id"]

    async def asked(permit: str) -> Taken:
        arguments = moving.take_arguments(permit, 3, MOVER, [b"small"], True, enough_bytes=999, wanted=False)
        await server.hset(STATE, "permit", permit)
        return Taken.of(await run(server, moving.TAKE, *arguments), [b"small"])

    for permit in (PERMIT, f"x {own} token"):
        with pytest.raises(ResponseError, match=scripts.NOT_PERMITTED):
            await asked(permit)
    assert (await asked(f"{own} x token")).keys == [b"small"]


async def test_keys_of_others_under_our_names_are_put_aside_and_lost_to_nobody(redis: Redis) -> None:
    await redis.set(STATE, "theirs")
    await redis.hset(WANTED, "theirs", "1")
    assert sorted(await put_aside(redis)) == sorted([STATE, WANTED])
    assert sorted(await redis.keys("*")) == sorted(ASIDE + key.partition(b":")[2] for key in (STATE, WANTED))
    assert await redis.get(ASIDE + STATE.partition(b":")[2]) == b"theirs"
    assert await put_aside(redis) == []


async def test_what_no_process_of_ours_has_made_is_a_stranger(redis: Redis) -> None:
    assert await strangers(redis) == []
    await redis.hset(STATE, mapping={"permit": PERMIT, "claim:0:a\nb": MOVER, "flush:x": "y"})
    await redis.rpush(WANTED, "0:key")
    assert await strangers(redis) == []
    await redis.hset(STATE, "user", "ada")
    await redis.rpush(WANTED, "no database")
    await redis.set(RESERVED_KEYS[2], "text")
    assert await strangers(redis) == [STATE, WANTED, RESERVED_KEYS[2]]


GOOD = [2, 10, [1], [], [2], [b"payload"], [-1], [], []]
"""Of two keys the first is busy, the second was taken."""


def test_a_reply_names_places_from_0_on() -> None:
    taken = Taken.of(GOOD, [b"a", b"b"])
    assert (taken.busy, taken.keys, taken.places, taken.payloads, taken.deadlines) == (
        (0,),
        [b"b"],
        (1,),
        [b"payload"],
        [-1],
    )


@pytest.mark.parametrize(
    ("place", "part"),
    [
        (0, 3),  # more keys than it was asked for
        (2, [2]),  # one key is busy and taken
        (2, [1, 1]),
        (2, [3]),
        (2, [0]),
        (5, [7]),  # not a payload
        (5, []),
        (6, [-2]),
        (7, [1]),  # refused without a reason
        (8, [b"why"]),
    ],
)
def test_a_reply_that_does_not_hold_together_is_not_understood(place: int, part: object) -> None:
    with pytest.raises(NotUnderstood):
        Taken.of([*GOOD[:place], part, *GOOD[place + 1 :]], [b"a", b"b"])


@pytest.mark.parametrize("reply", [[[1], [b""]], [[1], [7]], [[1], []], [[2], [b"why"]], [b"x"]])
def test_a_refusal_without_a_reason_or_of_another_key_is_not_understood(reply: object) -> None:
    with pytest.raises(NotUnderstood):
        moving.refused(reply, 1)
    assert moving.refused([[1], [b"why"]], 1) == {0: b"why"}


def test_more_claims_than_keys_are_not_understood() -> None:
    with pytest.raises(NotUnderstood):
        moving.dropped([2, 1], 1)
