"""How fast keys may move: pause, limits per second, and the bounds of one batch; all may change live.

One :class:`Pace` may be shared by several migrations in one event loop; the limits hold for their sum.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from migrator.feedback import QUIET_SECONDS, Window

Clock = Callable[[], float]

BURST_SECONDS = 0.1
"""A bucket holds what its rate gives in this time, so a limit holds within any second, not only on average."""

MOST_SERVERS = 100
"""Servers whose latency is remembered."""


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """What an operator sets.

    Attributes:
        keys_per_second: limit; 0 is no limit.
        bytes_per_second: limit, of memory the keys take at the source; 0 is no limit.
        batch_keys: most keys in one step.
        batch_bytes: most bytes in one step, unless a single key is larger.
        batch_milliseconds: how long one step should hold up a server. The number of keys adapts to it,
            but does not fall below :data:`migrator.batch.LEAST_COST`; ``batch_keys`` can say less.
        latency_goal_milliseconds: within which each server should answer 99 of 100 requests while keys move;
            :mod:`migrator.steering` slows down to hold it. 0 is no goal.
    """

    keys_per_second: int = 0
    bytes_per_second: int = 0
    batch_keys: int = 500
    batch_bytes: int = 512 * 1024
    batch_milliseconds: float = 1.5
    latency_goal_milliseconds: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("keys_per_second", 0), ("bytes_per_second", 0), ("batch_keys", 1), ("batch_bytes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least {least}")
        if not self.batch_milliseconds > 0:
            raise ValueError(f"batch_milliseconds is {self.batch_milliseconds}; it has to be larger than 0")
        if not self.latency_goal_milliseconds >= 0:
            raise ValueError(f"latency_goal_milliseconds is {self.latency_goal_milliseconds}; it has to be at least 0")


class TokenBucket:
    """A rate limit per second with a bounded burst. What is larger than the burst leaves a debt to wait off."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._clock = clock
        self._rate = rate
        self._level = self.burst
        self._filled_at = clock()

    @property
    def burst(self) -> float:
        """The most that may go at once; 0 without a limit."""
        return max(1.0, self._rate * BURST_SECONDS) if self._rate else 0.0

    def set_rate(self, rate: float) -> None:
        """Change the limit. What was saved up shrinks to the new burst; a debt stays."""
        self._fill()
        was_unlimited = not self._rate
        self._rate = rate
        self._level = self.burst if was_unlimited else min(self._level, self.burst)

    def seconds_until(self, amount: float) -> float:
        """How long until ``amount``, or a burst if that is less, may go; 0 for now."""
        if not self._rate:
            return 0.0
        self._fill()
        return max(0.0, (min(amount, self.burst) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        """Let ``amount`` go."""
        if self._rate:
            self._fill()
            self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now


class Admits(Protocol):
    """What keeps a key that goes in pieces to a pace."""

    @property
    def batch_bytes(self) -> int:
        """As :attr:`Pace.batch_bytes`."""

    async def admit(self, keys: int, size: int) -> None:
        """As :meth:`Pace.admit`."""

    def charge(self, keys: int, size: int) -> None:
        """As :meth:`Pace.charge`."""


class Pace:
    """Lets batches go, one after the other, as the settings allow."""

    def __init__(
        self, settings: PaceSettings | None = None, *, paused: bool = False, clock: Clock = time.monotonic
    ) -> None:
        self._settings = settings or PaceSettings()
        self._paused = paused
        self._keys = TokenBucket(self._settings.keys_per_second, clock)
        self._bytes = TokenBucket(self._settings.bytes_per_second, clock)
        self._changed = asyncio.Event()
        self._quiet: dict[str, Window] = {}
        self._turn = asyncio.Lock()  # first come, first served among the migrations that share the limits

    @property
    def settings(self) -> PaceSettings:
        """What holds now."""
        return self._settings

    @property
    def paused(self) -> bool:
        """Whether nothing may go."""
        return self._paused

    def change(self, settings: PaceSettings) -> None:
        """Let other settings hold from the next batch on; who waits now waits by the new limits."""
        self._settings = settings
        self._keys.set_rate(settings.keys_per_second)
        self._bytes.set_rate(settings.bytes_per_second)
        self._wake()

    def pause(self) -> None:
        """Hold everything after the batch that is under way."""
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self._paused = False
        self._wake()

    @property
    def batch_keys(self) -> int:
        """The most keys the next batch may have: under a limit, half a burst, so that it goes evenly."""
        limit = self._settings.batch_keys
        return min(limit, max(1, int(self._keys.burst / 2))) if self._settings.keys_per_second else limit

    @property
    def batch_bytes(self) -> int:
        """The most bytes the next batch may have, unless it is a single key."""
        limit = self._settings.batch_bytes
        return min(limit, max(1, int(self._bytes.burst / 2))) if self._settings.bytes_per_second else limit

    @property
    def batch_milliseconds(self) -> float:
        """How long the next batch should hold up its source."""
        return self._settings.batch_milliseconds

    def quiet_latency(self, address: str) -> Window:
        """What migrations at this pace know of a server's latency while nothing is moved; they add to it."""
        if address not in self._quiet:
            if len(self._quiet) >= MOST_SERVERS:
                del self._quiet[next(iter(self._quiet))]
            self._quiet[address] = Window(QUIET_SECONDS)
        return self._quiet[address]

    async def changed(self) -> None:
        """Wait for the next change of the settings, or the end of a pause."""
        await self._changed.wait()

    async def ready(self) -> None:
        """Wait while paused. That is the one wait without a limit: its end is the operator's word, or hours."""
        while self._paused:
            await self._changed.wait()

    async def admit(self, keys: int, size: int) -> None:
        """Wait until a batch of ``keys`` keys and ``size`` bytes may go, and count it.

        **bounded**: besides a pause, the wait is at most the debt of what went before, divided by the rate.
        """
        if not self._paused and not self._settings.keys_per_second and not self._settings.bytes_per_second:
            return
        async with self._turn:
            while True:
                await self.ready()
                seconds = max(self._keys.seconds_until(keys), self._bytes.seconds_until(size))
                if seconds <= 0:
                    break
                changed = self._changed
                try:
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                except TimeoutError:
                    pass
            self._keys.take(keys)
            self._bytes.take(size)

    def charge(self, keys: int, size: int) -> None:
        """Count what an admitted batch came to more than was said, or less."""
        self._keys.take(keys)
        self._bytes.take(size)

    def _wake(self) -> None:
        # Everyone who waits holds the old event; a new one is for those who wait from now on.
        self._changed.set()
        self._changed = asyncio.Event()


class Urgeable:
    """A pace to which one at a time keeps, until he is urged: from then on nothing holds him back."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._urged = asyncio.Event()

    @property
    def batch_bytes(self) -> int:
        """As :attr:`Pace.batch_bytes`."""
        return self._pace.batch_bytes

    async def admit(self, keys: int, size: int) -> None:
        """As :meth:`Pace.admit`; return at once when urged."""
        waits = [asyncio.ensure_future(wait) for wait in (self._urged.wait(), self._pace.admit(keys, size))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def charge(self, keys: int, size: int) -> None:
        """As :meth:`Pace.charge`."""
        self._pace.charge(keys, size)

    def urge(self) -> None:
        """Let who is admitted now go on at once, and until :meth:`relax`."""
        self._urged.set()

    def relax(self) -> None:
        """Keep to the pace again."""
        self._urged.clear()
