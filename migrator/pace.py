"""How fast keys may move: limits per second, pauses and a latency goal, all of which may change during a migration.

A :class:`Pace` is the operator's. Several migrations in one event loop may share one, and its limits then hold for
their sum. What moves keys asks a :class:`Throttle` before each step: the shared pace, or the pace of one pair of
servers (:mod:`migrator.steering`), which also rests for the sake of their clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

Clock = Callable[[], float]

BURST_SECONDS = 0.1
"""The amount of this time may go at once: half of it saved up, half as one batch. So a limit holds within any second,
not only on average."""

BATCH_KEYS, BATCH_BYTES = 500, 512 * 1024
"""Most keys in one step, and most bytes unless a single key is larger. They bound what servers hold and send for one
step when its time says little: larger steps hardly save anything (100 keys take 1.1 ms, 500 take 4 ms)."""

BATCH_SECONDS = 0.0015
"""How long one step should hold up a server: little beside what clients notice, and enough for some hundred small keys,
of which each costs less than alone."""


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """The settings of an operator.

    Attributes:
        keys_per_second: limit; 0 is no limit.
        bytes_per_second: limit, of memory the keys take at the source; 0 is no limit.
        latency_goal_milliseconds: the time within which each server should answer 99 of 100 requests while keys move.
            :mod:`migrator.steering` slows down to hold it. 0 is no goal.
    """

    keys_per_second: int = 0
    bytes_per_second: int = 0
    latency_goal_milliseconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("keys_per_second", "bytes_per_second", "latency_goal_milliseconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 0")

    def part(self, mine: int, all: int) -> PaceSettings:
        """Of so many equal parts, these: for one of several that together hold these limits. At least 1 a second."""

        def share(limit: int) -> int:
            return max(1, limit * mine // all) if limit else 0

        return PaceSettings(share(self.keys_per_second), share(self.bytes_per_second), self.latency_goal_milliseconds)

    @property
    def goal(self) -> float:
        """The latency goal in seconds."""
        return self.latency_goal_milliseconds / 1000


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most keys and bytes of one step, and the seconds for which it should hold up its source. A single key may
    have more bytes. Seconds become a number of keys in :mod:`migrator.batch`."""

    keys: int
    bytes: int
    seconds: float


class TokenBucket:
    """Limits an amount per second. As in Guava's RateLimiter, any amount may go once nothing is owed, and those who
    come later wait until it is paid."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._clock = clock
        self._rate = rate
        self._saved = 0.0  # what is owed is below zero
        self._counted_at = clock()

    def set_rate(self, rate: float) -> None:
        """Change the limit; 0 is no limit. What is owed is paid at the new rate."""
        self._count()
        self._rate = rate

    def seconds(self) -> float:
        """Seconds until nothing is owed; 0 for now."""
        self._count()
        return max(0.0, -self._saved / self._rate) if self._rate else 0.0

    def take(self, amount: float) -> None:
        """Let ``amount`` go; less than 0 to give it back."""
        self._count()
        self._saved -= amount

    def batch(self, most: int) -> int:
        """How much should go in one step, so that it goes evenly: half a burst, from 1 to ``most``."""
        return min(most, max(1, int(self._rate * BURST_SECONDS / 2))) if self._rate else most

    def _count(self) -> None:
        now = self._clock()
        earned = (now - self._counted_at) * self._rate
        self._saved = min(self._rate * BURST_SECONDS / 2, self._saved + earned) if self._rate else 0.0
        self._counted_at = now


class Throttle(Protocol):
    """Holds back the steps that move keys."""

    @property
    def batch(self) -> BatchLimits:
        """The limits of the next step."""

    async def ready(self) -> None:
        """Wait until a step that moves no key may go."""

    async def admit(self, keys: int, size: int) -> None:
        """Wait until a step of ``keys`` keys and ``size`` bytes may go, and count it."""

    def charge(self, keys: int, size: int) -> None:
        """Correct the count of an admitted step by the difference to its announced size."""

    def rest(self, work: float) -> float:
        """Seconds to rest for so many seconds of work that were not admitted, because it cannot be put off for long."""


class Pace:
    """The pace that an operator sets; a :class:`Throttle`. First come is first served.

    Attributes:
        settings: those that hold now; :meth:`change` sets them.
        paused: whether all migrations are paused, by :meth:`pause`.
    """

    def __init__(
        self, settings: PaceSettings | None = None, *, paused: bool = False, clock: Clock = time.monotonic
    ) -> None:
        self.settings = settings or PaceSettings()
        self.paused = paused
        self._keys = TokenBucket(self.settings.keys_per_second, clock)
        self._bytes = TokenBucket(self.settings.bytes_per_second, clock)
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    def change(self, settings: PaceSettings) -> None:
        """Let new settings hold from the next step on. Waiting steps follow the new limits."""
        self.settings = settings
        self._keys.set_rate(settings.keys_per_second)
        self._bytes.set_rate(settings.bytes_per_second)
        self._wake()

    def pause(self) -> None:
        """Hold everything after the steps that are under way."""
        self.paused = True

    def resume(self) -> None:
        """Go on."""
        self.paused = False
        self._wake()

    async def changed(self) -> None:
        """Wait for the next change of the settings, or the end of a pause."""
        await self._changed.wait()

    async def until(self, seconds: Callable[[], float]) -> None:
        """Wait while paused, and for as long as ``seconds()`` says; it is asked again after the wait and each change.

        **bounded**: only the wait for the end of a pause has no limit. It ends by the operator's word, or by the hours
        of the day.
        """
        while (left := None if self.paused else seconds()) != 0.0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.changed()

    @property
    def batch(self) -> BatchLimits:
        """As :attr:`Throttle.batch`. A client may meet two steps, so each has at most half of a latency goal."""
        seconds = min(BATCH_SECONDS, self.settings.goal / 2 or BATCH_SECONDS)
        return BatchLimits(self._keys.batch(BATCH_KEYS), self._bytes.batch(BATCH_BYTES), seconds)

    async def ready(self) -> None:
        """Wait while paused."""
        await self.until(lambda: 0.0)

    async def admit(self, keys: int, size: int) -> None:
        """As :meth:`Throttle.admit`. The wait is for what earlier steps owe."""
        async with self._turn:
            await self.until(lambda: max(self._keys.seconds(), self._bytes.seconds()))
            self.charge(keys, size)

    def charge(self, keys: int, size: int) -> None:
        """As :meth:`Throttle.charge`."""
        self._keys.take(keys)
        self._bytes.take(size)

    def rest(self, work: float) -> float:
        """As :meth:`Throttle.rest`: none. Limits and pauses are for what can be put off."""
        return 0.0

    def _wake(self) -> None:
        # Everyone who waits now holds the old event; later waiters get a new one.
        self._changed.set()
        self._changed = asyncio.Event()


class Urgeable:
    """A :class:`Throttle` for one caller at a time. Once the caller is urged, nothing holds it back."""

    def __init__(self, pace: Throttle) -> None:
        self._pace = pace
        self._urged = asyncio.Event()
        self.ready, self.charge, self.rest = pace.ready, pace.charge, pace.rest

    @property
    def batch(self) -> BatchLimits:
        """As :attr:`Throttle.batch`."""
        return self._pace.batch

    async def admit(self, keys: int, size: int) -> None:
        """As :meth:`Throttle.admit`; return at once when urged."""
        waits = [asyncio.ensure_future(wait) for wait in (self._urged.wait(), self._pace.admit(keys, size))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def urge(self) -> None:
        """Let the caller go on at once, and stay urged until :meth:`relax`."""
        self._urged.set()

    def relax(self) -> None:
        """Keep to the pace again."""
        self._urged.clear()
