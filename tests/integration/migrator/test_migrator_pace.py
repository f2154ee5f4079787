"""Limits and pause as they are felt at the servers. Slow machines only make a limit easier to hold."""

import asyncio

import pytest
from redis.asyncio import Redis

from migrator import pace
from migrator.pace import BATCH_KEYS, BURST_SECONDS, Pace, PaceSettings
from tests.integration.migrator.pairs import Pair, assert_moved, fill


async def test_keys_per_second(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 3000)
    pair.pace = Pace(PaceSettings(keys_per_second=2000))
    loop = asyncio.get_running_loop()
    began = loop.time()

    await pair.migrate()

    assert loop.time() - began >= 3000 / 2000 - BURST_SECONDS
    await assert_moved(source, target, 3000)


async def test_bytes_per_second(pair: Pair, source: Redis) -> None:
    for n in range(200):
        await source.set(f"key:{n}", b"x" * 10_000)
    pair.pace = Pace(PaceSettings(bytes_per_second=2_000_000))
    loop = asyncio.get_running_loop()
    began = loop.time()

    await pair.migrate()

    assert loop.time() - began >= 200 * 10_000 / 2_000_000 - BURST_SECONDS
    assert pair.progress.bytes_moved >= 2_000_000


@pytest.mark.long
async def test_pause_takes_effect_within_a_batch_and_resume_goes_on(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 20_000)
    call = asyncio.create_task(pair.migrate())
    await pair.keys_moved(call, 1000)

    pair.pace.pause()
    at_pause = pair.progress.keys_moved
    held = 0
    async with asyncio.timeout(30):
        while await source.dbsize() != held:  # the batch under way
            held = await source.dbsize()
            await asyncio.sleep(0.2)
    assert held > 0
    assert pair.progress.keys_moved - at_pause <= BATCH_KEYS
    assert not call.done()
    assert (pair.progress.remaining_keys or held) > 0

    pair.pace.resume()
    await call
    await assert_moved(source, target, 20_000)


@pytest.mark.long
async def test_a_limit_can_be_lifted_while_it_holds(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 10_000)
    pair.pace = Pace(PaceSettings(keys_per_second=100))
    call = asyncio.create_task(pair.migrate())
    await pair.keys_moved(call, 10)

    pair.pace.change(PaceSettings())

    await asyncio.wait_for(call, 60)  # by the old limit it takes 100 s
    await assert_moved(source, target, 10_000)


async def test_batches_stay_within_their_bound_of_keys(
    pair: Pair, source: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(source, 3000)
    await source.config_resetstat()
    monkeypatch.setattr(pace, "BATCH_KEYS", 10)

    await pair.migrate()

    # Each is taken and dropped.
    assert (await source.info("commandstats"))["cmdstat_evalsha"]["calls"] >= 600


async def test_progress_is_seen_while_it_goes(pair: Pair, source: Redis) -> None:
    await fill(source, 20_000)
    call = asyncio.create_task(pair.migrate(range(512)))
    estimates = []
    while not call.done():
        estimates.append(pair.progress.remaining_keys)
        await asyncio.sleep(0.001)
    await call

    known = [estimate for estimate in estimates if estimate is not None]
    assert estimates[0] is None
    assert 8000 < known[0] < 12_000
    assert known[-1] == 0
    assert 8000 < pair.progress.keys_moved < 12_000
    assert pair.progress.bytes_moved > 40 * pair.progress.keys_moved
    assert pair.progress.keys_per_second > 0
