"""While a client flushes both ends of a move, a field at them keeps movers from learning that keys have gone."""

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import TryAgainError

from migrator.pace import Pace
from slots import permits
from slots.flushes import FLUSH, RELEASE, UNDER_WAY, WITHHOLD
from slots.reserved import OUTLAST_FLUSH, RESERVED, STATE
from tests.integration.migrator.pairs import Pair, fill, permit_at
from tests.integration.migrator.steps import place, taken

FIELD = "flush:one"


async def withhold(*servers: Redis) -> None:
    for server in servers:
        assert await server.execute_command("EVAL", WITHHOLD.text, 1, STATE, FIELD) == 1


async def flush(server: Redis) -> bytes:
    said: bytes = await server.execute_command(
        "EVAL", FLUSH.text, len(OUTLAST_FLUSH), *OUTLAST_FLUSH, FIELD, 0, "FLUSHALL"
    )
    return said


async def release(server: Redis) -> int:
    return int(await server.execute_command("EVAL", RELEASE.text, 1, STATE, FIELD))


async def looks(server: Redis) -> int:
    """How often the fields there were listed."""
    stats: dict[str, dict[str, int]] = await server.info("commandstats")
    return stats.get("cmdstat_hkeys", {"calls": 0})["calls"]


@pytest.mark.parametrize("amid", [False, True])
async def test_complete_a_move_is_not_over_before_the_flush_has_come_to_the_target(
    pair: Pair, source: Redis, target: Redis, amid: bool
) -> None:
    """The source has no key any more, but a client that made one at the target would lose it.

    The flush begins before the move does, or when the move has the permit and is about to scan.
    """
    await source.set("key", "value")
    pair.pace = Pace(paused=True)
    moving_all = asyncio.create_task(pair.migrate()) if amid else None
    async with asyncio.timeout(30):
        while amid and not await permit_at(source):
            await asyncio.sleep(0.005)
    await withhold(source, target)
    assert await flush(source) == b"OK"
    moving_all = moving_all or asyncio.create_task(pair.migrate())
    pair.pace.resume()
    looked = await looks(target)
    while await looks(target) < looked + 3:
        assert not moving_all.done()
        await asyncio.sleep(0.01)
    assert await flush(target) == b"OK"
    assert await release(source) == 1
    looked = await looks(target)
    while await looks(target) < looked + 2:
        assert not moving_all.done()
        await asyncio.sleep(0.01)
    assert await release(target) == 1
    await moving_all


async def test_who_waits_for_a_flush_takes_it_over_at_both_ends(
    pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permits, "TAKEN_OVER_SECONDS", 0.1)
    await source.set("key", "value")
    await withhold(source, target)
    await pair.migrate()
    for server in (source, target):
        with pytest.raises(TryAgainError, match="keys move again"):
            await flush(server)
        assert await release(server) == 0
    assert await target.get("key") == b"value"


async def test_who_renews_a_permit_that_he_saw_before_a_flush_does_not_get_it_after_that(
    pair: Pair, source: Redis, target: Redis
) -> None:
    """given a process that has set its permit at the target before the flush, the permit does not hold after the
    flush."""
    await source.set("key", "value")
    permit = await permits.renew(source, target, pair.target.address)
    found = await taken(source, permit, b"key")
    await withhold(source, target)
    for server in (source, target):
        assert await server.hkeys(STATE) == [FIELD.encode()]
        assert await flush(server) == b"OK"
        assert await place(target, permit, found) is None
    for server in (source, target):
        assert await release(server) == 1
    assert await place(target, permit, found) is None
    assert not await target.exists("key")
    latest = await permits.renew(source, target, pair.target.address, permit)
    assert await source.hgetall(STATE) == {b"permit": latest.encode()}
    assert await target.hgetall(STATE) == {b"accepts": latest.encode()}


async def test_a_flush_while_keys_move_leaves_none(pair: Pair, source: Redis, target: Redis) -> None:
    """given flushes that come during a call, as clients' flushes do, all earlier keys are gone, and the call goes
    on."""
    for number in range(10):
        await fill(source, 3000)
        pair.progress.keys_moved = 0
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 300)
        await withhold(source, target)
        for server in (source, target) if number % 2 else (target, source):
            assert await flush(server) == b"OK"
        assert [await release(server) for server in (source, target)] == [1, 1]
        await call
        assert await source.keys("*") == await target.keys("*") == []


async def test_a_flush_at_the_servers_themselves_leaves_none(pair: Pair, source: Redis, target: Redis) -> None:
    """given clients that flush both servers, source first, no copy under way comes back as a key."""
    for _ in range(20):
        await fill(source, 2000)
        pair.progress.keys_moved = 0
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 300)
        await source.flushall()
        await target.flushall()
        await call
        # Copies that were not finished go by themselves.
        assert [key for key in [*await source.keys(), *await target.keys()] if not key.startswith(RESERVED)] == []


async def test_run_id_a_field_of_another_process_is_none(pair: Pair, source: Redis) -> None:
    """A server that restarts has the field back from its file, with older data."""
    await withhold(source)
    await source.hset(STATE, FIELD, "0" * 40)
    with pytest.raises(TryAgainError, match="started anew"):
        await flush(source)
    assert await release(source) == 0


async def test_a_move_that_ends_leaves_the_fields_of_a_flush(source: Redis, target: Redis) -> None:
    await withhold(source)
    await source.hset(STATE, "permit", "some")
    await permits.withdraw(source, target)
    assert await source.hkeys(STATE) == [FIELD.encode()]


async def test_flushes_stand_side_by_side(pair: Pair, source: Redis) -> None:
    await withhold(source)
    assert await source.execute_command("EVAL", WITHHOLD.text, 1, STATE, "flush:two") == 1
    assert await flush(source) == b"OK"
    assert await release(source) == 1
    assert await source.execute_command("EVAL", UNDER_WAY.text, 1, STATE) == [b"flush:two"]
    assert await source.execute_command("EVAL", UNDER_WAY.text, 1, STATE, "flush:two") == []
    assert not await source.exists(STATE), "nothing is left of them"
