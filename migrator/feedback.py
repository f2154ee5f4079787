"""Adjusts a speed so that a server answers 99 of 100 requests within a goal. Pure logic: no clock, no network.

The law is the *weighted up-down method* (C. Kaernbach, "Simple adaptive testing with the weighted up-down method",
Perception & Psychophysics 49, 1991), a case of stochastic approximation (H. Robbins and S. Monro, 1951): a sample over
the goal takes the speed down by a step, one within it takes it up by a 99th of that step. The two balance where exactly
one sample of 100 is over the goal: that is a p99 at the goal. The law needs no model of the server's latency, and
computes no percentile from a few samples.

Steps are factors of the speed, so a fast migration and a slow one settle in the same number of samples. The speed goes
down much faster than up, so that several senders that share a bottleneck agree (D. Chiu and R. Jain, "Analysis of the
increase and decrease algorithms for congestion avoidance", 1989). Two ideas come from TCP. A stall that many samples
saw counts once, because nothing can be learned about a new speed before it is in force. And the climb is fast before
the first sample over the goal, and again after a long time without one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

FLOOR = 0.08
"""The least speed, as a share of the full one: some thousand small keys a second. Keys go on moving even if a server
answers slowly."""

START = 0.5
"""The speed to begin with."""

STEP = 0.125
"""The step of the speed's logarithm for a sample over the goal: the speed falls to 0.88 of its value."""

REACTION_SECONDS = 0.3
"""Within this time the speed falls to :data:`MOST_FALL` of its value at most: many samples see the same stall."""

MOST_FALL = 0.7

FAST_CLIMB = 10.0
"""How many times faster the speed rises before the first sample over the goal; also the largest such factor."""

LONG_WITHOUT = 400
"""Samples in a row within the goal after which the speed rises twice as fast. At the goal, 100 are usual."""

TOLERANCE = 1.5
"""A server's p99 may be over the goal even without a migration. During one, it may then be so many times larger."""

LATEST = 250
"""The number of samples, the latest ones, whose p99 is known: those of five seconds."""

QUIET_ENOUGH = 40
"""The least number of quiet samples that count as evidence."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request to a server, as a client would have felt it. Times in seconds.

    Attributes:
        at: when it was answered, on the migrating process's clock.
        seconds: how long that took.
        doubt: how much of it may have been the migrating process's own delay.
    """

    at: float
    seconds: float
    doubt: float = 0.0

    @property
    def at_server(self) -> float:
        """The part of it that was certainly the server's."""
        return max(0.0, self.seconds - self.doubt)


def p99(latencies: Iterable[float]) -> float | None:
    """The latency that 99 of 100 do not exceed. Below 200 it is the second longest, because a single one is chance."""
    ascending = sorted(latencies)
    return ascending[-min(len(ascending), 1 + max(1, len(ascending) // 100))] if ascending else None


@dataclass
class ServerSpeed:
    """The speed that one server allows, and its known latency.

    Attributes:
        speed: a share of the full speed, from :data:`FLOOR` to 1.
        climbing: whether no sample was over the goal yet.
    """

    speed: float = START
    climbing: bool = True
    _within: int = 0
    """Samples within the goal since the last one over it."""
    _lowered_at: float = -math.inf
    _lowest: float = FLOOR
    """How far the speed may still fall in the present reaction time."""
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    _quiet: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))

    @property
    def recent(self) -> float | None:
        """The p99 while keys move, in seconds; None before the first sample."""
        return p99(self._recent)

    @property
    def quiet(self) -> float | None:
        """The p99 while nothing moves, in seconds; None while too few samples tell."""
        return p99(self._quiet) if len(self._quiet) >= QUIET_ENOUGH else None

    def allowed(self, goal: float) -> float:
        """The seconds that count as within the goal: more, for a server that misses it even without a migration."""
        return max(goal, TOLERANCE * (self.quiet or 0.0))

    def slow(self, goal: float) -> tuple[int, int]:
        """How many of the latest samples while keys move are over what is allowed, and how many there are."""
        allowed = self.allowed(goal)
        return sum(latency > allowed for latency in self._recent), len(self._recent)

    def learn(self, sample: Sample, goal: float) -> None:
        """Raise or lower the speed by a sample that was taken while keys move, or rest between two steps. If only this
        process's own delay puts it over the goal (in seconds), it says nothing."""
        self._recent.append(sample.at_server)
        allowed = self.allowed(goal)
        if sample.at_server > allowed:
            self.climbing = False
            self._within = 0
            if sample.at - self._lowered_at >= REACTION_SECONDS:
                self._lowered_at = sample.at
                self._lowest = max(FLOOR, self.speed * MOST_FALL)
            self.speed = max(self._lowest, self.speed * math.exp(-STEP))
        elif sample.seconds <= allowed:
            self._within += 1
            haste = FAST_CLIMB if self.climbing else min(FAST_CLIMB, 1 + (self._within / LONG_WITHOUT) ** 2)
            self.speed = min(1.0, self.speed * math.exp(STEP / 99 * haste))

    def learn_quiet(self, sample: Sample) -> None:
        """Note a sample during which nothing was moved."""
        self._quiet.append(sample.at_server)
