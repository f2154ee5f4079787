"""The effects of a speed: shorter batches, rests, looks at the quiet servers; and what is reported about it."""

import asyncio
import time

import pytest

from migrator import steering
from migrator.feedback import FLOOR, START, Sample
from migrator.pace import BATCH_MILLISECONDS, Pace, PaceSettings
from migrator.progress import Pacing
from migrator.steering import SteeredPace

GOAL = PaceSettings(latency_goal_milliseconds=5.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def steered(settings: PaceSettings = GOAL, clock: Clock | None = None) -> SteeredPace:
    return SteeredPace(Pace(settings), "s:1", "t:1", clock or Clock())


def report(pace: SteeredPace) -> Pacing:
    told = pace.report()
    assert told is not None
    return told


def feed(pace: SteeredPace, role: str, seconds: float, count: int, at: float = 100.0) -> None:
    take = pace.taker(role)
    for number in range(count):
        take(Sample(at + number, seconds))


def test_without_a_goal_nothing_is_held_back_and_nobody_is_asked() -> None:
    pace = steered(PaceSettings())
    feed(pace, "source", 10.0, 100)
    assert (pace.speed, pace.at_work, pace.batch_milliseconds) == (1.0, 1.0, BATCH_MILLISECONDS)
    assert pace.report() is None
    assert pace.interval() is None


def test_a_speed_is_had_by_shorter_batches_and_by_rests() -> None:
    clock = Clock()
    pace = steered(clock=clock)
    assert pace.speed == START
    assert pace.batch_milliseconds == pytest.approx(BATCH_MILLISECONDS * 0.5)
    assert pace.at_work == pytest.approx(0.5)
    feed(pace, "source", 0.0001, 1000)
    feed(pace, "target", 0.0001, 1000)
    assert (pace.speed, pace.at_work, pace.batch_milliseconds) == (1.0, 1.0, BATCH_MILLISECONDS)
    assert (report(pace).held_back, report(pace).since) == ("", 0.0)
    feed(pace, "source", 0.1, 1000, at=2000.0)
    assert pace.speed == FLOOR
    assert pace.batch_milliseconds == pytest.approx(BATCH_MILLISECONDS * steering.SMALLEST_BATCH)
    assert pace.at_work == pytest.approx(FLOOR / steering.SMALLEST_BATCH)


@pytest.mark.parametrize("role", ["source", "target"])
def test_the_slower_of_the_two_servers_decides_and_is_named(role: str) -> None:
    clock = Clock()
    pace = steered(clock=clock)
    for server in ("source", "target"):
        feed(pace, server, 0.0001, 1000)
    clock.now = 2000.0
    feed(pace, role, 0.0127, 4, at=clock.now - 3.5)
    assert 0.3 < pace.speed < 0.4
    address = {"source": "s:1", "target": "t:1"}[role]
    assert report(pace).since > 0.0
    assert report(pace).held_back == (
        f"held back to {pace.speed:.0%}: {role} {address} kept too many requests waiting for more than 5.0 ms "
        "(p99 now: 12.7 ms)"
    )


def test_the_shared_pace_is_what_holds_for_all_else() -> None:
    shared = Pace(PaceSettings(keys_per_second=1000, bytes_per_second=1_000_000, latency_goal_milliseconds=5))
    pace = SteeredPace(shared, "s:1", "t:1")
    assert (pace.batch_keys, pace.batch_bytes) == (shared.batch_keys, shared.batch_bytes) == (50, 50_000)
    pace.pause()
    assert shared.paused
    assert pace.paused
    pace.resume()
    assert not shared.paused
    pace.change(PaceSettings(keys_per_second=140))
    assert (shared.settings.keys_per_second, pace.settings.keys_per_second, pace.batch_keys) == (140, 140, 7)
    assert pace.interval() is None


async def test_limits_of_the_shared_pace_are_kept() -> None:
    pace = SteeredPace(Pace(PaceSettings(keys_per_second=500)), "s:1", "t:1")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(30):
        await pace.admit(10, 0)
    # 300 keys; a burst of 50 of them goes at once.
    assert loop.time() - began >= 0.49


async def test_it_rests_for_the_share_of_the_time_that_it_is_not_at_work() -> None:
    """given work of 4 ms at half the time, as much again is rested, however short the single batches."""
    clock = Clock()
    pace = steered(clock=clock)
    assert pace.at_work == pytest.approx(0.5)
    began = time.monotonic()
    for _ in range(200):
        clock.now += 0.001  # what a batch takes; the clock stands still in rests, so that nothing is made up for
        await pace.admit(1, 1)
    # A rest is at least as long as it should be; 0.2 s of work leave 0.2 s of rest, the last of it not yet taken.
    assert time.monotonic() - began >= 0.19


async def test_a_rest_has_a_limit_however_long_the_work() -> None:
    clock = Clock()
    pace = steered(clock=clock)
    clock.now += 3600
    began = time.monotonic()
    await pace.admit(1, 1)
    assert time.monotonic() - began >= 0.9 * steering.MOST_WORK_SECONDS
    assert pace._owed <= steering.MOST_WORK_SECONDS


async def test_a_lifted_goal_ends_a_rest() -> None:
    pace = steered()
    pace._owed = 3600.0
    waiting = asyncio.create_task(pace.ready())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    pace.change(PaceSettings())
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(pace.admit(1, 1), 5)


async def test_a_pause_holds_and_nothing_is_learned_of_the_speed_in_it() -> None:
    pace = SteeredPace(Pace(GOAL), "s:1", "t:1")
    pace.pause()
    waiting = asyncio.create_task(pace.admit(1, 1))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    assert pace.interval() == steering.PROBE_PAUSED_SECONDS
    feed(pace, "source", 0.012, 100, at=time.monotonic() + 60)
    assert pace.speed == START
    pace._clock = lambda: time.monotonic() + 160
    assert report(pace).source.quiet == pytest.approx(12.0), "but how it answers while nothing moves"
    assert report(pace).source.allowed == pytest.approx(18.0)
    assert report(pace).target.quiet is None
    pace.resume()
    await asyncio.wait_for(waiting, 5)


async def test_what_is_quiet_is_remembered_for_the_next_migration() -> None:
    shared = Pace(GOAL)
    first = SteeredPace(shared, "s:1", "t:1")
    first.pause()
    waiting = asyncio.create_task(first.ready())
    await asyncio.sleep(0)
    feed(first, "source", 0.012, 100, at=time.monotonic() + 60)
    waiting.cancel()
    later = SteeredPace(shared, "u:1", "s:1", lambda: time.monotonic() + 160)
    assert report(later).target.quiet == pytest.approx(12.0)
    assert report(later).source.quiet is None


async def test_a_sample_with_a_batch_in_it_is_not_quiet() -> None:
    clock = Clock()
    pace = steered(clock=clock)
    feed(pace, "source", 0.001, 100)
    assert report(pace).source.quiet is None
    pace.pause()
    first = asyncio.create_task(pace.ready())
    second = asyncio.create_task(pace.ready())
    await asyncio.sleep(0)
    clock.now = 110.0
    first.cancel()  # a caller that is let go may do something
    await asyncio.gather(first, return_exceptions=True)
    for _ in range(100):
        pace.taker("source")(Sample(110.0 + steering.QUIET_AFTER_SECONDS, 0.001))
    assert report(pace).source.quiet is None
    for _ in range(100):
        pace.taker("source")(Sample(110.0 + 2 * steering.QUIET_AFTER_SECONDS, 0.001))
    assert report(pace).source.quiet == pytest.approx(1.0)
    second.cancel()


async def test_who_is_held_back_looks_how_the_server_is_without_migration() -> None:
    clock = Clock()
    pace = steered(clock=clock)
    feed(pace, "source", 0.1, 1)
    looks = []
    for _ in range(3):
        clock.now += 0.0001
        began = time.monotonic()
        resting = asyncio.create_task(pace.ready())
        await asyncio.sleep(0.01)
        looks.append(pace.interval())
        await resting
        looks.append(time.monotonic() - began >= 0.9 * steering.MEASURING_REST_SECONDS)
    assert looks == [
        steering.PROBE_MEASURING_SECONDS,
        True,
        steering.PROBE_SECONDS,
        False,
        steering.PROBE_SECONDS,
        False,
    ]
    clock.now += steering.MEASURE_AGAIN_SECONDS
    pace._released_at = clock.now
    began = time.monotonic()
    await pace.ready()
    assert time.monotonic() - began >= 0.9 * steering.MEASURING_REST_SECONDS
