"""What stands at both ends of a move while a client flushes them keeps movers from learning that keys have gone."""

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import TryAgainError

from slots import moving
from slots.flushes import FLUSH, RELEASE, STANDING, WITHHOLD
from slots.moving import OUTLAST_FLUSH, STATE
from tests.integration.migrator.pairs import Pair

FIELD = "flush:one"


async def withhold(*servers: Redis) -> None:
    for server in servers:
        assert await server.execute_command("EVAL", WITHHOLD, 1, STATE, FIELD) == 1


async def flush(server: Redis) -> bytes:
    said: bytes = await server.execute_command("EVAL", FLUSH, len(OUTLAST_FLUSH), *OUTLAST_FLUSH, FIELD, 0, "FLUSHALL")
    return said


async def release(server: Redis) -> int:
    return int(await server.execute_command("EVAL", RELEASE, 1, STATE, FIELD))


async def looks(server: Redis) -> int:
    """How often the fields there were listed."""
    stats: dict[str, dict[str, int]] = await server.info("commandstats")
    return stats.get("cmdstat_hkeys", {"calls": 0})["calls"]


async def test_complete_a_move_is_not_over_before_the_flush_has_come_to_the_target(
    pair: Pair, source: Redis, target: Redis
) -> None:
    """The source has no key any more, but a client that made one at the target would lose it."""
    await source.set("key", "value")
    await withhold(source, target)
    assert await flush(source) == b"OK"
    moving_all = asyncio.create_task(pair.migrate())
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
    monkeypatch.setattr(moving, "TAKEN_OVER_SECONDS", 0.1)
    await source.set("key", "value")
    await withhold(source, target)
    await pair.migrate()
    for server in (source, target):
        with pytest.raises(TryAgainError, match="keys move again"):
            await flush(server)
        assert await release(server) == 0
    assert await target.get("key") == b"value"


async def test_who_settles_before_a_flush_gets_no_permit_after_it(pair: Pair, source: Redis, target: Redis) -> None:
    """Neither while it stands nor once it is over, though nothing else has changed meanwhile."""
    await source.execute_command("EVAL", moving.READ, 0, "one")
    await withhold(source)
    for token in ("one", FIELD):
        assert await source.execute_command("EVAL", moving.GRANT, 0, "", token, "permit") == b""
    assert await release(source) == 1
    for token in ("one", FIELD):
        assert await source.execute_command("EVAL", moving.GRANT, 0, "", token, "permit") == b""
    permit = await moving.settle(source, target, pair.target.address)
    assert await source.hget(STATE, "permit") == permit.encode()


async def test_run_id_a_field_of_another_process_is_none(pair: Pair, source: Redis) -> None:
    """A server that was started anew has it back from its file, with data of before."""
    await withhold(source)
    await source.hset(STATE, FIELD, "0" * 40)
    with pytest.raises(TryAgainError, match="started anew"):
        await flush(source)
    assert await release(source) == 0


async def test_a_move_that_ends_leaves_the_fields_of_a_flush(pair: Pair, source: Redis) -> None:
    await withhold(source)
    await source.hset(STATE, "permit", "some")
    await moving.clear_source(source)
    assert await source.hkeys(STATE) == [FIELD.encode()]


async def test_flushes_stand_side_by_side(pair: Pair, source: Redis) -> None:
    await withhold(source)
    assert await source.execute_command("EVAL", WITHHOLD, 1, STATE, "flush:two") == 1
    assert await flush(source) == b"OK"
    assert await release(source) == 1
    assert await source.execute_command("EVAL", STANDING, 1, STATE) == [b"flush:two"]
    assert await source.execute_command("EVAL", STANDING, 1, STATE, "flush:two") == []
    assert not await source.exists(STATE), "nothing is left of them"
