"""Steers a speed so that 99 of 100 requests to a server are answered within a goal. Pure logic: no clock, no network.

The law is the *weighted up-down method* (C. Kaernbach, "Simple adaptive testing with the weighted up-down
method", Perception & Psychophysics 49, 1991), a case of stochastic approximation (H. Robbins and S. Monro,
1951): a sample over the goal takes the speed down by a step, one within it takes it up by a 99th of that step.
The two balance where exactly one sample of 100 is over the goal, which is what a p99 at the goal means. Nothing
has to be known of how the server's latency comes about, and no percentile is computed from a few samples.

Steps are factors of the speed, so a fast migration and a slow one settle in the same number of samples; going
down much faster than up is what makes several senders that share a bottleneck agree (D. Chiu and R. Jain,
"Analysis of the increase and decrease algorithms for congestion avoidance", 1989). Two things are taken from
TCP: a stall that many samples saw counts as one, for nothing can be learned of a new speed before it is in
force; and the climb is fast before the first sample over the goal, and again after long without one.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

PERCENT = 99
"""The percentile that the goal is about."""

FLOOR = 0.02
"""The least speed, as a share of the full one: however slow a server answers, keys go on moving."""

START = 0.25
"""The speed to begin with."""

STEP = 0.25
"""What a sample over the goal takes from the logarithm of the speed: it becomes 0.78 of what it was."""

REACTION_SECONDS = 0.3
"""Within this time the speed falls to no less than half, whatever samples say: a stall is seen by many of them."""

FAST_CLIMB = 10.0
"""How many times faster the speed rises before the first sample over the goal, and at most."""

LONG_WITHOUT = 400
"""Samples in a row within the goal after which the speed rises twice as fast. At the goal, 100 are usual."""

TOLERANCE = 1.5
"""A server whose p99 is beyond the goal without any migration may have one so many times larger meanwhile."""

WINDOW_SECONDS = 5.0
"""Over which a p99 is told."""

QUIET_SECONDS = 300.0
"""For which it is remembered how a server answered while nothing moved."""

QUIET_ENOUGH = 40
"""Quiet samples that say something."""

MOST_SAMPLES = 1000
"""Samples kept in a window, whatever its length."""


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
        """How much of it was the server's for sure."""
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
        """Note one."""
        self._samples.append((at, seconds))

    def percentile(self, now: float, least: int = 1) -> float | None:
        """The latency in seconds that 99 of 100 do not exceed; None of fewer than ``least`` samples.

        Of fewer than 200 it is the second longest: a single one is chance.
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
    """The speed that one server allows, and what is known of its latency.

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
    """How far the speed may fall in the reaction time that runs."""

    @property
    def held_back(self) -> bool:
        """Whether it is below the full speed because a sample was over the goal."""
        return not self._climbing and self.speed < 1.0

    def allowed(self, goal: float, now: float) -> float:
        """The seconds that count as within the goal: more, where the server does not keep to it by itself."""
        quiet = self.quiet.percentile(now, QUIET_ENOUGH)
        return goal if quiet is None else max(goal, TOLERANCE * quiet)

    def p99(self, now: float) -> float | None:
        """Of the last few seconds; in seconds."""
        return self._recent.percentile(now)

    def learn(self, sample: Sample, goal: float) -> None:
        """Let a sample that was taken while keys move, or rest between two batches, raise or lower the speed.

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
