"""Limits, bursts, pause and live changes, in virtual time."""

import asyncio
from typing import Any

import pytest

from migrator.pace import (
    BATCH_BYTES,
    BATCH_KEYS,
    BATCH_SECONDS,
    BURST_SECONDS,
    Pace,
    PaceSettings,
    TokenBucket,
    Urgeable,
)
from tests.unit.migrator.virtual import in_virtual_time, now

HALF = BURST_SECONDS / 2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_lets_an_amount_go_and_the_next_wait_until_it_is_paid() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock)
    assert bucket.seconds() == 0
    bucket.take(50_000)
    assert bucket.seconds() == pytest.approx(50)
    clock.now += 49
    assert bucket.seconds() == pytest.approx(1)
    bucket.take(-400)
    assert bucket.seconds() == pytest.approx(0.6)
    clock.now += 0.6
    assert bucket.seconds() == pytest.approx(0)


def test_a_bucket_saves_up_no_more_than_half_a_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(1000, clock)
    clock.now += 3600
    bucket.take(1000 * HALF)
    assert bucket.seconds() == 0
    bucket.take(1)
    assert bucket.seconds() == pytest.approx(0.001)


def test_a_bucket_without_a_rate_has_no_limit_and_owes_nothing() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    bucket.take(1e12)
    bucket.set_rate(0)
    bucket.take(1e12)
    assert bucket.seconds() == 0
    bucket.set_rate(10)
    assert bucket.seconds() == 0


def test_a_changed_rate_counts_from_now_on() -> None:
    clock = Clock()
    bucket = TokenBucket(10, clock)
    bucket.take(101)
    clock.now += 0.1
    assert bucket.seconds() == pytest.approx(10)
    clock.now += 5
    bucket.set_rate(1000)
    assert bucket.seconds() == pytest.approx(0.05)


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


async def test_batches_shrink_to_half_a_burst_under_a_limit() -> None:
    pace = Pace(PaceSettings(keys_per_second=1000, bytes_per_second=1_000_000))
    assert (pace.batch.keys, pace.batch.bytes) == (50, 50_000)
    pace.change(PaceSettings(keys_per_second=1, bytes_per_second=1))
    assert (pace.batch.keys, pace.batch.bytes) == (1, 1)
    pace.change(PaceSettings())
    assert (pace.batch.keys, pace.batch.bytes) == (BATCH_KEYS, BATCH_BYTES)


@pytest.mark.parametrize(("goal", "seconds"), [(0, BATCH_SECONDS), (10, BATCH_SECONDS), (2, 0.001), (0.1, 0.00005)])
def test_a_step_takes_at_most_half_of_the_goal(goal: float, seconds: float) -> None:
    assert Pace(PaceSettings(latency_goal_milliseconds=goal)).batch.seconds == pytest.approx(seconds)


@in_virtual_time
async def test_a_limit_holds_within_any_second() -> None:
    pace = Pace(PaceSettings(keys_per_second=1000), clock=now)
    await asyncio.sleep(10)
    gone: list[float] = []
    while len(gone) < 200:
        await pace.admit(pace.batch.keys, 0)
        gone.append(now())
    for began in gone:
        assert sum(began <= at < began + 1 for at in gone) * pace.batch.keys <= 1000 * (1 + BURST_SECONDS)
    assert gone[-1] - gone[0] == pytest.approx(199 * 0.05, abs=0.06)


@in_virtual_time
async def test_what_is_charged_later_is_paid_by_who_comes_next() -> None:
    pace = Pace(PaceSettings(bytes_per_second=1000), clock=now)
    await pace.admit(1, 0)
    pace.charge(0, 5000)
    began = now()
    await pace.admit(1, 0)
    assert now() - began == pytest.approx(5, abs=0.01)


@in_virtual_time
async def test_a_paused_pace_admits_nothing_until_it_is_resumed() -> None:
    pace = Pace(paused=True, clock=now)
    waiting = [asyncio.create_task(work) for work in (pace.admit(1, 1), pace.ready())]
    await asyncio.sleep(3600)
    assert not any(task.done() for task in waiting)
    pace.resume()
    await asyncio.wait_for(asyncio.gather(*waiting), 0.01)


@in_virtual_time
async def test_a_pause_holds_who_already_waits_for_a_limit() -> None:
    pace = Pace(PaceSettings(keys_per_second=10), clock=now)
    await pace.admit(1, 1)
    waiting = asyncio.create_task(pace.admit(1, 1))  # due in 0.1 s
    await asyncio.sleep(0.01)
    pace.pause()
    await asyncio.sleep(3600)
    assert not waiting.done()
    pace.resume()
    await asyncio.wait_for(waiting, 0.01)


@in_virtual_time
async def test_a_lifted_limit_frees_who_waits() -> None:
    pace = Pace(PaceSettings(bytes_per_second=1), clock=now)
    await pace.admit(1, 3600)
    waiting = asyncio.create_task(pace.admit(1, 1))  # due in an hour
    await asyncio.sleep(1)
    pace.change(PaceSettings(bytes_per_second=3599))
    await asyncio.sleep(0.9)
    assert not waiting.done()
    await asyncio.wait_for(waiting, 0.2)


@in_virtual_time
async def test_who_is_cancelled_while_waiting_counts_for_nothing() -> None:
    pace = Pace(PaceSettings(keys_per_second=100), clock=now)
    await pace.admit(10, 0)
    waiting = asyncio.create_task(pace.admit(1000, 0))
    await asyncio.sleep(0.001)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(pace.admit(1, 0), 0.1)


@in_virtual_time
async def test_a_limit_holds_for_all_who_share_it_and_they_take_turns() -> None:
    pace = Pace(PaceSettings(keys_per_second=500), clock=now)
    gone: list[int] = []

    async def one(number: int) -> None:
        for _ in range(10):
            await pace.admit(10, 0)
            gone.append(number)

    began = now()
    await asyncio.gather(one(0), one(1), one(2))
    assert now() - began == pytest.approx(290 / 500, abs=0.01)
    assert gone[1:28] == [0, 1, 2] * 9, "the first, which met nobody, asked twice"


@in_virtual_time
async def test_who_is_urged_waits_for_nothing() -> None:
    shared = Pace(PaceSettings(keys_per_second=1), clock=now)
    pace = Urgeable(shared)
    assert pace.batch == shared.batch
    await pace.admit(3600, 0)
    waiting = asyncio.create_task(pace.admit(1, 0))
    await asyncio.sleep(1)
    assert not waiting.done()
    pace.urge()
    await asyncio.wait_for(waiting, 0.01)
    await asyncio.wait_for(pace.admit(1, 0), 0.01)
    pace.relax()
    waiting = asyncio.create_task(pace.admit(1, 0))
    await asyncio.sleep(1)
    assert not waiting.done()
    waiting.cancel()
