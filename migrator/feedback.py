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
from dataclasses import dataclass, field

PERCENT = 99
"""The percentile that the goal limits."""

FLOOR = 0.02
"""The least speed, as a share of the full one. Keys go on moving even if a server answers slowly."""

START = 0.25
"""The speed to begin with."""

STEP = 0.25
"""The step of the speed's logarithm for a sample over the goal: the speed falls to 0.78 of its value."""

REACTION_SECONDS = 0.3
"""Within this time the speed falls to half at most, because many samples see the same stall."""

FAST_CLIMB = 10.0
"""How many times faster the speed rises before the first sample over the goal; also the largest such factor."""

LONG_WITHOUT = 400
"""Samples in a row within the goal after which the speed rises twice as fast. At the goal, 100 are usual."""

TOLERANCE = 1.5
"""A server's p99 may be over the goal even without a migration. During one, it may then be so many times larger."""

WINDOW_SECONDS = 5.0
"""The time over which a p99 is reported."""

QUIET_SECONDS = 300.0
"""How long the latencies of quiet times are remembered."""

QUIET_ENOUGH = 40
"""The least number of quiet samples that count as evidence."""

MOST_SAMPLES = 1000
"""The most samples kept in a window of any length."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request to a server, as a client would have felt it. Times in seconds.

    Attributes:
        at: when it was answered, on the steering process's clock.
        seconds: how long that took.
        doubt: how much of it may have been the steering process's own delay.
    """

    at: float
    seconds: float
    doubt: float = 0.0

    @property
    def at_server(self) -> float:
        """The part of it that was certainly the server's."""
        return max(0.0, self.seconds - self.doubt)

    def exceeds(self, goal: float) -> bool | None:
        """Whether it took longer than ``goal`` seconds; None if the process's own delay decides that."""
        if self.seconds <= goal:
            return False
        return True if self.at_server > goal else None


class Window:
    """The latencies of the last seconds. **bounded**: at most :data:`MOST_SAMPLES`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)

    def add(self, at: float, seconds: float) -> None:
        """Add one sample."""
        self._samples.append((at, seconds))

    def percentile(self, now: float, least: int = 1) -> float | None:
        """The latency in seconds that 99 of 100 samples do not exceed; None if there are fewer than ``least`` samples.

        With fewer than 200 samples it is the second longest, because a single one is chance.
        """
        while self._samples and self._samples[0][0] < now - self._seconds:
            self._samples.popleft()
        count = len(self._samples)
        if count < max(1, least):
            return None
        ascending = sorted(seconds for _, seconds in self._samples)
        return ascending[max(0, min(count - 2, math.ceil(count * PERCENT / 100) - 1))]


@dataclass
class ServerSpeed:
    """The speed that one server allows, and its known latency.

    Attributes:
        quiet: latencies while nothing moved; may be shared with later migrations of the same server.
        speed: a share of the full speed, from :data:`FLOOR` to 1.
    """

    quiet: Window = field(default_factory=lambda: Window(QUIET_SECONDS))
    speed: float = START
    _recent: Window = field(default_factory=lambda: Window(WINDOW_SECONDS))
    _climbing: bool = True
    _within: int = 0
    """Samples within the goal since the last one over it."""
    _lowered_at: float = -math.inf
    _lowest: float = FLOOR
    """How far the speed may still fall in the present reaction time."""

    @property
    def held_back(self) -> bool:
        """Whether it is below the full speed because a sample was over the goal."""
        return not self._climbing and self.speed < 1.0

    def allowed(self, goal: float, now: float) -> float:
        """The seconds that count as within the goal. They are more if the server misses the goal even without a
        migration."""
        quiet = self.quiet.percentile(now, QUIET_ENOUGH)
        return goal if quiet is None else max(goal, TOLERANCE * quiet)

    def p99(self, now: float) -> float | None:
        """The p99 of the last few seconds, in seconds."""
        return self._recent.percentile(now)

    def learn(self, sample: Sample, goal: float) -> None:
        """Raise or lower the speed by a sample that was taken while keys move, or rest between two batches.

        Args:
            goal: in seconds.
        """
        self._recent.add(sample.at, sample.at_server)
        over = sample.exceeds(self.allowed(goal, sample.at))
        if over:
            self._lower(sample.at)
        elif over is not None:
            self._raise()

    def learn_quiet(self, sample: Sample) -> None:
        """Note a sample during which nothing was moved."""
        self.quiet.add(sample.at, sample.at_server)

    def _lower(self, now: float) -> None:
        self._climbing = False
        self._within = 0
        if now - self._lowered_at >= REACTION_SECONDS:
            self._lowered_at = now
            self._lowest = max(FLOOR, self.speed / 2)
        self.speed = max(self._lowest, self.speed * math.exp(-STEP))

    def _raise(self) -> None:
        self._within += 1
        haste = FAST_CLIMB if self._climbing else min(FAST_CLIMB, 1 + (self._within / LONG_WITHOUT) ** 2)
        self.speed = min(1.0, self.speed * math.exp(STEP / PERCENT * haste))
