"""The law that holds a p99, against servers that are played by formulas, on a clock that the test turns.

Chance comes from seeded generators, so a run is the same every time.
"""

import math
import random
from collections.abc import Callable
from statistics import fmean, pstdev

import pytest

from migrator.feedback import FLOOR, QUIET_ENOUGH, START, Sample, ServerSpeed, Window

PROBE_SECONDS = 0.02
GOAL = 0.005
Latency = Callable[[float, random.Random], float]
"""From the speed of the migration to the latency of one request, in seconds."""


class Run:
    """A server that is asked 50 times a second, and the speeds that it led to."""

    def __init__(self, latency: Latency, seed: int = 1) -> None:
        self.server = ServerSpeed()
        self.latency = latency
        self.random = random.Random(seed)
        self.now = 1000.0
        self.speeds: list[float] = []
        self.over: list[bool] = []

    def go(self, seconds: float) -> "Run":
        self.speeds, self.over = [], []
        for _ in range(round(seconds / PROBE_SECONDS)):
            self.now += PROBE_SECONDS
            taken = self.latency(self.server.speed, self.random)
            self.server.learn(Sample(self.now, taken), GOAL)
            self.speeds.append(self.server.speed)
            self.over.append(taken > GOAL)
        return self

    @property
    def share_over(self) -> float:
        return sum(self.over) / len(self.over)


def in_proportion(best: float) -> Latency:
    """A server whose p99 is at the goal when the speed is ``best``, and in proportion to the speed."""
    mean = GOAL / math.log(100) / best
    return lambda speed, random: random.expovariate(1) * mean * speed


def behind_batches(batch_seconds: float) -> Latency:
    """A request meets a batch for the share of time that the migration is at work, and waits for the rest of the
    batch."""

    def latency(speed: float, random: random.Random) -> float:
        share = max(0.25, math.sqrt(speed))
        waits = random.random() < speed / share
        return random.expovariate(1) * 0.0003 + (random.random() * batch_seconds * share if waits else 0.0)

    return latency


def test_a_server_that_is_never_slow_is_at_full_speed_within_two_seconds() -> None:
    run = Run(behind_batches(0.0015)).go(2)
    assert run.speeds[0] < 1.1 * START
    assert run.speeds[-1] == 1.0
    assert run.go(60).speeds == [1.0] * len(run.speeds)
    assert not run.server.held_back


@pytest.mark.parametrize("best", [0.05, 0.1, 0.3, 0.7])
def test_the_speed_settles_where_one_request_of_a_hundred_is_over_the_goal(best: float) -> None:
    run = Run(in_proportion(best))
    run.go(60)
    run.go(600)
    assert 0.005 < run.share_over < 0.015
    assert 0.6 * best < fmean(run.speeds) < 1.2 * best


@pytest.mark.parametrize("best", [0.05, 0.1, 0.3, 0.7])
def test_the_speed_does_not_swing(best: float) -> None:
    run = Run(in_proportion(best))
    run.go(60)
    run.go(600)
    logarithms = [math.log(speed) for speed in run.speeds]
    assert pstdev(logarithms) < 0.35
    ascending = sorted(run.speeds)
    low, high = ascending[len(ascending) // 100], ascending[-len(ascending) // 100]
    assert high / low < 5
    # With one look every ten seconds, a wave leaves no trace: one rise says nothing about the next.
    means = [fmean(logarithms[start : start + 500]) for start in range(0, len(logarithms), 500)]
    assert pstdev(means) < 0.25


def test_long_batches_are_cut_to_the_goal() -> None:
    """given batches of 20 ms, only a speed with batches of a quarter and mostly rest is within the goal."""
    run = Run(behind_batches(0.020))
    run.go(60)
    assert run.go(300).share_over < 0.015
    assert fmean(run.speeds) > FLOOR * 1.2
    one = Run(behind_batches(0.008))
    one.go(60)
    assert one.go(300).share_over < 0.015
    assert fmean(one.speeds) > 0.3


def test_a_server_that_grows_slow_is_given_way_to_at_once() -> None:
    run = Run(in_proportion(0.8)).go(60)
    before = fmean(run.speeds)
    run.latency = in_proportion(0.1)
    run.go(3)
    assert before > 0.5
    assert run.speeds[-1] < 0.15


def test_a_server_that_grows_fast_again_is_soon_used() -> None:
    run = Run(in_proportion(0.05)).go(60)
    assert run.speeds[-1] < 0.1
    run.latency = in_proportion(2.0)
    assert run.go(15).speeds[-1] == 1.0, "by the step alone it were a third"


def test_it_always_goes_on() -> None:
    run = Run(lambda speed, random: 1.0).go(60)
    assert run.speeds[-1] == FLOOR
    assert min(run.speeds) == FLOOR


def test_a_stall_that_many_requests_saw_halves_the_speed_once() -> None:
    run = Run(lambda speed, random: 0.0001).go(60)
    for missed in range(50):
        run.server.learn(Sample(run.now, 1.0 - 0.02 * missed), GOAL)
    assert run.server.speed == pytest.approx(0.5)


def test_a_server_that_is_slow_by_itself_holds_nothing_back() -> None:
    """given a p99 of three times the goal with and without migration, the goal is not what the migration can hold."""

    def slow(speed: float, random: random.Random) -> float:
        return random.expovariate(1) * GOAL * 3 / math.log(100)

    run = Run(slow).go(30)
    assert run.speeds[-1] < 0.1
    for _ in range(500):
        run.server.learn_quiet(Sample(run.now, slow(0, run.random)))
    assert run.server.allowed(GOAL, run.now) == pytest.approx(1.5 * 3 * GOAL, rel=0.4)
    run.go(60)
    assert fmean(run.go(60).speeds) > 0.9


def test_a_few_quiet_samples_allow_nothing() -> None:
    server = ServerSpeed()
    for _ in range(QUIET_ENOUGH - 1):
        server.learn_quiet(Sample(0.0, 1.0))
    assert server.allowed(GOAL, 0.0) == GOAL
    server.learn_quiet(Sample(0.0, 1.0))
    assert server.allowed(GOAL, 0.0) == 1.5
    assert server.allowed(GOAL, 3600.0) == GOAL, "what was an hour ago is forgotten"


def test_what_may_be_our_own_delay_is_not_held_against_the_server() -> None:
    server = ServerSpeed(speed=0.5)
    for number in range(100):
        server.learn(Sample(float(number), 0.030, doubt=0.028), GOAL)
        server.learn_quiet(Sample(float(number), 0.030, doubt=0.028))
    assert server.speed == 0.5
    assert server.p99(99.0) == pytest.approx(0.002)
    assert server.allowed(GOAL, 100.0) == GOAL
    server.learn(Sample(101.0, 0.030, doubt=0.003), GOAL)
    assert server.speed < 0.5
    lowered = server.speed
    server.learn(Sample(102.0, 0.004, doubt=0.004), GOAL)
    assert server.speed > lowered, "within the goal is within it, whatever part of it is ours"


def test_a_window_forgets_what_is_old_and_is_bounded() -> None:
    window = Window(5.0)
    assert window.percentile(0.0) is None
    for number in range(100):
        window.add(0.0, number / 1000)
    assert window.percentile(5.0) == 0.098, "the second longest: one alone is chance"
    assert window.percentile(5.1) is None
    for _ in range(100_000):
        window.add(6.0, 0.001)
    assert len(window._samples) == 1000
    window.add(6.0, 1.0)
    assert window.percentile(6.0) == 0.001
