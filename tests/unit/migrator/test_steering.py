"""The effects of a speed: rests, looks at the quiet servers; and what is reported about it. In virtual time."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from migrator import steering
from migrator.feedback import FLOOR, QUIET_ENOUGH, START, Sample
from migrator.pace import Pace, PaceSettings
from migrator.progress import Pacing
from migrator.steering import PairPace
from tests.unit.migrator.virtual import in_virtual_time, now

GOAL = PaceSettings(latency_goal_milliseconds=5.0)


def pair(settings: PaceSettings = GOAL) -> PairPace:
    return PairPace(Pace(settings, clock=now), "s:1", "t:1", now)


def report(pace: PairPace) -> Pacing:
    told = pace.report()
    assert told is not None
    return told


def feed(pace: PairPace, role: str, seconds: float, count: int, each: float = 1.0) -> None:
    """Samples, one in so many seconds, the last of them now."""
    for number in range(count):
        pace.take(role, Sample(now() - (count - 1 - number) * each, seconds))


def at_speed(pace: PairPace, speed: float) -> None:
    for server in pace._servers.values():
        server.speed, server.climbing = speed, False


async def works(step: float, ask: Callable[[], Awaitable[None]], seconds: float) -> int:
    """Make steps for so many seconds, and give their number."""
    steps = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                await ask()
                await asyncio.sleep(step)
                steps += 1
    return steps


@in_virtual_time
async def test_without_a_goal_nothing_is_held_back_and_nobody_is_asked() -> None:
    pace = pair(PaceSettings())
    feed(pace, "source", 10.0, 100)
    assert pace.speed == 1.0
    assert pace.report() is None
    assert not pace.watches()
    assert await works(0.001, lambda: pace.admit(1, 1), 10) == pytest.approx(10_000, rel=0.01)


@in_virtual_time
async def test_a_goal_that_is_met_holds_nothing_back() -> None:
    pace = pair()
    assert pace.speed == START
    feed(pace, "source", 0.0001, 1000)
    assert pace.speed == START, "the other server has not answered yet"
    feed(pace, "target", 0.0001, 1000)
    assert pace.speed == 1.0
    assert (report(pace).held_back, report(pace).since) == ("", 0.0)
    assert await works(0.001, lambda: pace.admit(1, 1), 10) == pytest.approx(10_000, rel=0.01)


@in_virtual_time
@pytest.mark.parametrize("role", ["source", "target"])
async def test_the_slower_of_the_two_servers_decides_and_is_named(role: str) -> None:
    pace = pair()
    for server in ("source", "target"):
        feed(pace, server, 0.0001, 1000)
    feed(pace, role, 0.0127, 8)
    assert 0.3 < pace.speed < 0.4
    address = {"source": "s:1", "target": "t:1"}[role]
    assert report(pace).since > 0.0
    assert report(pace).held_back == (
        f"held back to {pace.speed:.0%}: {role} {address} took more than 5.0 ms for 8 of topom's last 250 PINGs "
        "(p99 now: 12.7 ms)"
    )
    feed(pace, role, 0.0001, 300)
    assert 0.5 < pace.speed < 1.0
    assert report(pace).held_back == (
        f"held back to {pace.speed:.0%}: {role} {address} took more than 5.0 ms for some of topom's PINGs, but for "
        "none of the last 250 (p99 now: 0.1 ms)"
    ), "until it is at full speed again"
    feed(pace, role, 0.0001, 300)
    assert (report(pace).held_back, report(pace).since) == ("", 0.0)


@in_virtual_time
async def test_at_the_start_and_after_one_slow_answer_a_migration_is_not_called_held_back() -> None:
    pace = pair()
    feed(pace, "source", 0.0001, 1)
    assert report(pace).held_back == ""
    feed(pace, "target", 0.010, 1)
    assert pace.speed < START
    assert report(pace).held_back == "", "a single one is chance"
    feed(pace, "source", 0.0001, 3000)
    feed(pace, "target", 0.0001, 3000)
    assert pace.speed == 1.0
    feed(pace, "target", 0.010, 1)
    assert 0.5 < pace.speed < 1.0
    assert report(pace).held_back == ""


@in_virtual_time
@pytest.mark.parametrize("speed", [0.9, 0.5, 0.25, FLOOR])
@pytest.mark.parametrize("callers", [1, 3])
async def test_the_speed_is_the_share_of_the_time_at_work(speed: float, callers: int) -> None:
    """given steps of 1.5 ms by so many callers side by side, keys move for that share of the time."""
    pace = pair()
    at_speed(pace, speed)
    asks = [pace.admit] * callers
    counts = await asyncio.gather(*(works(0.0015, lambda ask=ask: ask(1, 1), 10) for ask in asks))  # type: ignore[misc]
    assert sum(counts) / callers * 0.0015 == pytest.approx(10 * speed, rel=0.03)


@in_virtual_time
async def test_a_scan_rests_as_well() -> None:
    pace = pair()
    assert await works(0.001, pace.ready, 20) == pytest.approx(20_000 * START, rel=0.02)


@in_virtual_time
async def test_a_rest_has_a_limit_however_long_the_work() -> None:
    pace = pair()
    at_speed(pace, FLOOR)
    await pace.admit(1, 1)
    await asyncio.sleep(3600)
    began = now()
    await pace.admit(1, 1)
    assert now() - began == pytest.approx(steering.MOST_WORK_SECONDS / FLOOR, rel=0.05)


@in_virtual_time
async def test_a_lifted_goal_ends_a_rest() -> None:
    shared = Pace(GOAL, clock=now)
    pace = PairPace(shared, "s:1", "t:1", now)
    await pace.admit(1, 1)
    await asyncio.sleep(3600)
    waiting = asyncio.create_task(pace.ready())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    shared.change(PaceSettings())
    await asyncio.wait_for(waiting, 0.001)
    await asyncio.sleep(3600)
    await asyncio.wait_for(pace.admit(1, 1), 0.001)
    shared.change(GOAL)
    await asyncio.wait_for(pace.admit(1, 1), 0.001)


@in_virtual_time
async def test_limits_and_batches_of_the_shared_pace_are_kept() -> None:
    shared = Pace(PaceSettings(keys_per_second=500, latency_goal_milliseconds=5), clock=now)
    pace = PairPace(shared, "s:1", "t:1", now)
    assert pace.batch == shared.batch
    assert await works(0, lambda: pace.admit(10, 0), 10) == pytest.approx(500, rel=0.02)
    pace.charge(500, 0)
    began = now()
    await pace.admit(10, 0)
    assert now() - began == pytest.approx(1, rel=0.05)


@in_virtual_time
async def test_the_wait_for_a_limit_is_no_work() -> None:
    """given 20 steps of 2 ms a second by a limit, they are 4% of the time: no more than the least speed allows."""
    pace = PairPace(Pace(PaceSettings(keys_per_second=20, latency_goal_milliseconds=5), clock=now), "s:1", "t:1", now)
    at_speed(pace, FLOOR)
    counts = await asyncio.gather(*(works(0.002, lambda: pace.admit(1, 1), 60) for _ in range(2)))
    assert sum(counts) == pytest.approx(20 * 60, rel=0.02)


@in_virtual_time
async def test_a_pair_that_rests_holds_up_no_other() -> None:
    shared = Pace(PaceSettings(keys_per_second=100_000, latency_goal_milliseconds=5), clock=now)
    slow, fast = PairPace(shared, "s:1", "t:1", now), PairPace(shared, "u:1", "v:1", now)
    at_speed(slow, FLOOR)
    at_speed(fast, 1.0)
    slows, fasts = await asyncio.gather(*(works(0.001, lambda one=one: one.admit(1, 1), 10) for one in (slow, fast)))  # type: ignore[misc]
    assert fasts == pytest.approx(10_000, rel=0.02)
    assert slows == pytest.approx(10_000 * FLOOR, rel=0.03)


@in_virtual_time
async def test_a_pause_holds_and_nothing_is_learned_in_it() -> None:
    shared = Pace(GOAL, clock=now)
    pace = PairPace(shared, "s:1", "t:1", now)
    assert pace.watches()
    shared.pause()
    waiting = [asyncio.create_task(work) for work in (pace.admit(1, 1), pace.ready())]
    await asyncio.sleep(3600)
    assert not any(task.done() for task in waiting)
    assert not pace.watches()
    feed(pace, "source", 0.012, 100)
    assert pace.speed == START
    assert report(pace).source.p99 is None
    shared.resume()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


@in_virtual_time
async def test_a_cancelled_rest_is_not_taken_for_work() -> None:
    """given a rest of 1.2 s, it is over after that time, also if the caller gives up and comes back meanwhile."""
    pace = pair()
    at_speed(pace, FLOOR)
    await pace.admit(1, 1)
    await asyncio.sleep(steering.MOST_WORK_SECONDS)
    for _ in range(12):
        waiting = asyncio.create_task(pace.admit(1, 1))
        await asyncio.sleep(0.09)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(pace.admit(1, 1), 0.2)


@pytest.mark.long
@in_virtual_time
async def test_who_is_held_back_looks_how_its_servers_are_in_quiet() -> None:
    """given servers that take 12 ms whether keys move or not, that is allowed for after one rest for measuring."""
    pace = pair()
    at_speed(pace, START)
    latest = [now()]

    async def step() -> None:
        await pace.admit(1, 1)
        gaps.append(now() - latest[0])
        latest[0] = now() + 0.001

    async def probe(role: str) -> None:
        while True:
            await asyncio.sleep(0.02)
            pace.take(role, Sample(now(), 0.012 if role == "target" else 0.0001))

    gaps: list[float] = []
    probes = [asyncio.create_task(probe(role)) for role in ("source", "target")]
    await works(0.001, step, 3)
    assert report(pace).source.quiet == pytest.approx(0.1)
    assert report(pace).target.quiet == pytest.approx(12)
    assert report(pace).target.allowed == pytest.approx(18)
    assert report(pace).source.allowed == 5
    assert max(gaps) == pytest.approx(steering.MEASURING_SECONDS, abs=0.01)
    await works(0.001, step, 60)
    assert pace.speed == 1.0
    assert sum(gap > 0.9 * steering.MEASURING_SECONDS for gap in gaps) == 1
    for task in probes:
        task.cancel()


@in_virtual_time
async def test_a_rest_for_measuring_comes_every_half_a_minute() -> None:
    pace = pair()
    at_speed(pace, FLOOR)
    feed(pace, "source", 0.1, 1)
    long = 0
    ends = now() + 100
    while now() < ends:
        began = now()
        await pace.admit(1, 1)
        long += now() - began > 0.9 * steering.MEASURING_SECONDS
        await asyncio.sleep(0.001)
    assert long == math.ceil(100 / steering.MEASURE_AGAIN_SECONDS)


@in_virtual_time
async def test_a_sample_that_met_a_step_is_not_quiet() -> None:
    pace = pair()
    at_speed(pace, FLOOR)
    feed(pace, "source", 0.1, 1)
    began = now()
    waiting = asyncio.create_task(pace.admit(1, 1))
    await asyncio.sleep(1)
    soon = began + 0.9 * steering.QUIET_AFTER_SECONDS
    for _ in range(QUIET_ENOUGH):
        pace.take("source", Sample(now(), now() - soon))
    assert report(pace).source.quiet is None
    later = began + 1.1 * steering.QUIET_AFTER_SECONDS
    for _ in range(QUIET_ENOUGH):
        pace.take("source", Sample(now(), now() - later))
    assert report(pace).source.quiet == pytest.approx(1000 * (now() - later))
    await waiting
    slow = pace.speed
    feed(pace, "source", 3.0, 1)
    assert pace.speed <= slow
    for _ in range(300):
        pace.take("target", Sample(now(), 0.0001))
    assert report(pace).target.quiet is None, "the rest is over"
