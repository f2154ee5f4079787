"""Limits, bursts, pause and live changes, on a clock that the test turns."""

import asyncio
from typing import Any

import pytest

from migrator.pace import BATCH_BYTES, BATCH_KEYS, BURST_SECONDS, MOST_SERVERS, Pace, PaceSettings, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock)
    burst = 1000 * BURST_SECONDS

    assert bucket.seconds_until(burst) == 0
    bucket.take(burst)

    assert bucket.seconds_until(10) == pytest.approx(0.01)
    clock.now += 0.01
    assert bucket.seconds_until(10) == pytest.approx(0)


def test_a_bucket_saves_up_no_more_than_a_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock)
    bucket.take(1000 * BURST_SECONDS)

    clock.now += 3600
    bucket.take(1000 * BURST_SECONDS)

    assert bucket.seconds_until(1) > 0


def test_what_is_larger_than_a_burst_goes_and_leaves_a_debt() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock)

    assert bucket.seconds_until(50_000) == 0
    bucket.take(50_000)

    assert bucket.seconds_until(1) == pytest.approx(49.9, abs=0.1)


def test_a_bucket_without_a_rate_has_no_limit() -> None:
    bucket = TokenBucket(0, Clock())
    bucket.take(1e12)
    assert bucket.seconds_until(1e12) == 0


def test_a_changed_rate_counts_from_now_on() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    bucket.take(101)
    assert bucket.seconds_until(1) == pytest.approx(10.1)

    bucket.set_rate(1000)

    assert bucket.seconds_until(1) == pytest.approx(0.101)


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys_per_second": -1},
        {"bytes_per_second": -1},
        {"latency_goal_milliseconds": -1},
        {"latency_goal_milliseconds": float("nan")},
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PaceSettings(**wrong)


def test_batches_shrink_to_half_a_burst_under_a_limit() -> None:
    pace = Pace(PaceSettings(keys_per_second=1000, bytes_per_second=1_000_000))
    assert pace.batch_keys == 50
    assert pace.batch_bytes == 50_000

    pace.change(PaceSettings(keys_per_second=1, bytes_per_second=1))
    assert pace.batch_keys == 1
    assert pace.batch_bytes == 1

    pace.change(PaceSettings())
    assert pace.batch_keys == BATCH_KEYS
    assert pace.batch_bytes == BATCH_BYTES


async def test_a_paused_pace_admits_nothing_until_it_is_resumed() -> None:
    pace = Pace(paused=True)
    waiting = asyncio.create_task(pace.admit(1, 1))
    await asyncio.sleep(0.01)
    assert not waiting.done()

    pace.resume()

    await asyncio.wait_for(waiting, 1)


async def test_a_pause_holds_who_already_waits_for_a_limit() -> None:
    pace = Pace(PaceSettings(keys_per_second=10))
    await pace.admit(1, 1)
    waiting = asyncio.create_task(pace.admit(1, 1))  # due in 0.1 s
    await asyncio.sleep(0.01)

    pace.pause()
    await asyncio.sleep(0.2)
    assert not waiting.done()

    pace.resume()
    await asyncio.wait_for(waiting, 1)


async def test_a_lifted_limit_frees_who_waits() -> None:
    pace = Pace(PaceSettings(bytes_per_second=1))
    await pace.admit(1, 3600)
    waiting = asyncio.create_task(pace.admit(1, 1))  # due in an hour
    await asyncio.sleep(0.01)

    pace.change(PaceSettings())

    await asyncio.wait_for(waiting, 1)


async def test_who_is_cancelled_while_waiting_counts_for_nothing() -> None:
    pace = Pace(PaceSettings(keys_per_second=100))
    await pace.admit(10, 0)
    waiting = asyncio.create_task(pace.admit(1000, 0))
    await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await asyncio.wait_for(pace.admit(1, 0), 1)


async def test_a_limit_holds_for_all_who_share_it() -> None:
    pace = Pace(PaceSettings(keys_per_second=500))
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def one() -> None:
        for _ in range(10):
            await pace.admit(10, 0)

    await asyncio.gather(one(), one(), one())

    # 300 keys; a burst of 50 of them goes at once.
    assert loop.time() - began >= 0.49


def test_what_is_remembered_of_servers_is_bounded() -> None:
    pace = Pace()
    first = pace.quiet_latency("first:1")
    assert pace.quiet_latency("first:1") is first
    for number in range(MOST_SERVERS):
        pace.quiet_latency(f"h:{number}")
    assert len(pace._quiet) == MOST_SERVERS
    assert pace.quiet_latency("first:1") is not first
