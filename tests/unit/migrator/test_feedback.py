"""The law that holds a p99, against servers that are played by formulas, on a clock that the test turns.

Chance comes from seeded generators, so a run is the same every time.
"""

import math
import random
from collections.abc import Callable
from statistics import fmean, pstdev

import pytest

from migrator.feedback import (
    FLOOR,
    LATEST,
    LONG_WITHOUT,
    MOST_FALL,
    QUIET_ENOUGH,
    REACTION_SECONDS,
    START,
    STEP,
    Sample,
    ServerSpeed,
    p99,
)

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
        waits = random.random() < speed
        return random.expovariate(1) * 0.0003 + (random.random() * batch_seconds if waits else 0.0)

    return latency


def test_a_server_that_is_never_slow_is_at_full_speed_within_two_seconds() -> None:
    run = Run(behind_batches(0.0015)).go(2)
    assert run.speeds[0] < 1.1 * START
    assert run.speeds[-1] == 1.0
    assert run.go(60).speeds == [1.0] * len(run.speeds)
    assert run.server.climbing


@pytest.mark.parametrize("best", [0.15, 0.3, 0.7])
def test_the_speed_settles_where_one_request_of_a_hundred_is_over_the_goal(best: float) -> None:
    run = Run(in_proportion(best))
    run.go(60)
    run.go(600)
    assert 0.005 < run.share_over < 0.015
    assert 0.6 * best < fmean(run.speeds) < 1.2 * best


@pytest.mark.parametrize("best", [0.15, 0.3, 0.7])
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


def test_where_a_batch_is_too_long_fewer_requests_meet_one() -> None:
    """given batches of 5.5 ms, a tenth of the requests that meet one miss the goal: a tenth of the time is allowed."""
    run = Run(behind_batches(0.0055))
    run.go(60)
    assert 0.005 < run.go(600).share_over < 0.015
    assert 0.06 < fmean(run.speeds) < 0.15


def test_two_senders_agree() -> None:
    """given two migrations at one server that begin at unlike speeds, each gets about half."""
    first, second = ServerSpeed(speed=0.9, climbing=False), ServerSpeed(speed=0.1, climbing=False)
    chance = random.Random(2)
    means = [0.0, 0.0]
    for number in range(100_000):
        load = first.speed + second.speed
        for server in (first, second):
            server.learn(Sample(number * PROBE_SECONDS, in_proportion(0.6)(load, chance)), GOAL)
        if number >= 10_000:
            means = [mean + server.speed / 90_000 for mean, server in zip(means, (first, second), strict=True)]
    assert sum(means) == pytest.approx(0.55, abs=0.12)
    assert max(means) < 1.5 * min(means)


def test_a_server_that_grows_slow_is_given_way_to_at_once() -> None:
    run = Run(in_proportion(0.8)).go(60)
    before = fmean(run.speeds)
    run.latency = in_proportion(0.1)
    run.go(3)
    assert before > 0.5
    assert run.speeds[-1] < 0.2


def test_a_server_that_grows_fast_again_is_used_again() -> None:
    run = Run(in_proportion(0.1)).go(60)
    assert run.speeds[-1] < 0.2
    run.latency = in_proportion(2.0)
    assert run.go(5).speeds[-1] < 0.4, "one sample over the goal ends the fast climb"
    assert run.go(25).speeds[-1] == 1.0


def test_it_always_goes_on() -> None:
    run = Run(lambda speed, random: 1.0).go(60)
    assert run.speeds[-1] == FLOOR
    assert min(run.speeds) == FLOOR


def test_a_stall_that_many_requests_saw_lowers_the_speed_once() -> None:
    run = Run(lambda speed, random: 0.0001).go(60)
    for missed in range(50):
        run.server.learn(Sample(run.now, 1.0 - 0.02 * missed), GOAL)
    assert run.server.speed == pytest.approx(MOST_FALL)
    for _ in range(50):
        run.server.learn(Sample(run.now + 1.01 * REACTION_SECONDS, 1.0), GOAL)
    assert run.server.speed == pytest.approx(MOST_FALL**2)


def test_after_a_long_time_without_a_slow_request_the_climb_is_fast_again() -> None:
    server = ServerSpeed(speed=0.1, climbing=False)
    speeds = []
    for number in range(2 * LONG_WITHOUT):
        server.learn(Sample(float(number), 0.0001), GOAL)
        speeds.append(server.speed)
    assert speeds[1] / speeds[0] == pytest.approx(math.exp(STEP / 99), rel=1e-4)
    assert speeds[LONG_WITHOUT] / speeds[LONG_WITHOUT - 1] == pytest.approx(math.exp(2 * STEP / 99), rel=1e-4)
    server.learn(Sample(1e6, 1.0), GOAL)
    before = server.speed
    server.learn(Sample(1e6 + 1, 0.0001), GOAL)
    assert server.speed / before == pytest.approx(math.exp(STEP / 99), rel=1e-4)


def test_a_server_that_is_slow_by_itself_holds_nothing_back() -> None:
    """given a p99 of three times the goal with and without migration, the goal is not what the migration can hold."""

    def slow(speed: float, random: random.Random) -> float:
        return random.expovariate(1) * GOAL * 3 / math.log(100)

    run = Run(slow).go(30)
    assert run.speeds[-1] < 0.15
    for _ in range(LATEST):
        run.server.learn_quiet(Sample(run.now, slow(0, run.random)))
    assert run.server.allowed(GOAL) == pytest.approx(1.5 * 3 * GOAL, rel=0.4)
    run.go(60)
    assert fmean(run.go(60).speeds) > 0.9


def test_a_few_quiet_samples_allow_nothing_and_new_ones_replace_them() -> None:
    server = ServerSpeed()
    for _ in range(QUIET_ENOUGH - 1):
        server.learn_quiet(Sample(0.0, 1.0))
    assert server.allowed(GOAL) == GOAL
    server.learn_quiet(Sample(0.0, 1.0))
    assert server.allowed(GOAL) == 1.5
    for _ in range(LATEST):
        server.learn_quiet(Sample(0.0, 0.0001))
    assert server.allowed(GOAL) == GOAL
    assert server.quiet == 0.0001


def test_what_may_be_our_own_delay_is_not_held_against_the_server() -> None:
    server = ServerSpeed(speed=0.5)
    for number in range(100):
        server.learn(Sample(float(number), 0.030, doubt=0.028), GOAL)
        server.learn_quiet(Sample(float(number), 0.030, doubt=0.028))
    assert server.speed == 0.5
    assert server.recent == pytest.approx(0.002)
    assert server.allowed(GOAL) == GOAL
    server.learn(Sample(101.0, 0.030, doubt=0.003), GOAL)
    assert server.speed < 0.5
    lowered = server.speed
    server.learn(Sample(102.0, 0.004, doubt=0.004), GOAL)
    assert server.speed > lowered, "within the goal is within it, whatever part of it is ours"


def test_a_p99_is_what_one_of_a_hundred_exceeds() -> None:
    assert p99([]) is None
    assert p99([3.0]) == 3.0
    assert p99(range(40)) == 38, "the second longest: one alone is chance"
    assert p99(range(1000)) == 989


def test_what_is_reported_is_the_latest() -> None:
    server = ServerSpeed()
    assert server.recent is None
    for _ in range(LATEST):
        server.learn(Sample(0.0, 1.0), GOAL)
    assert server.recent == 1.0
    for _ in range(LATEST):
        server.learn(Sample(0.0, 0.001), GOAL)
    assert server.recent == 0.001
