"""How fast keys may move: pause, limits per second and a latency goal, which may change during a migration. The bounds
of one batch are constants, and limits make them smaller.

Several migrations in one event loop may share one :class:`Pace`; the limits then hold for their sum.
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
"""A bucket holds the amount of this time at its rate. So a limit holds within any second, not only on average."""

BATCH_KEYS, BATCH_BYTES = 500, 512 * 1024
"""Most keys in one step, and most bytes unless a single key is larger. They bound what servers hold and send for one
step when its time says little: larger steps hardly save anything (100 keys take 1.1 ms, 500 take 4 ms)."""

BATCH_MILLISECONDS = 1.5
"""How long one step should hold up a server: little beside what clients notice, and enough for some hundred small keys,
of which each costs less than alone. The number of keys adapts to it, but does not fall below
:data:`migrator.batch.LEAST_COST`. A latency goal makes it shorter (:mod:`migrator.steering`)."""

MOST_SERVERS = 100
"""The most servers whose latency is remembered."""


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


class TokenBucket:
    """A rate limit per second with a bounded burst. An amount above the burst leaves a debt, which later calls wait
    for."""

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
        """Change the limit. The saved amount shrinks to the new burst; a debt stays."""
        self._fill()
        was_unlimited = not self._rate
        self._rate = rate
        self._level = self.burst if was_unlimited else min(self._level, self.burst)

    def seconds_until(self, amount: float) -> float:
        """Seconds until ``amount``, or a burst if that is less, may go; 0 for now."""
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
    """The pace of a key that goes in pieces."""

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
        """The settings that hold now."""
        return self._settings

    @property
    def paused(self) -> bool:
        """Whether the migrations are paused."""
        return self._paused

    def change(self, settings: PaceSettings) -> None:
        """Let new settings hold from the next batch on. Waiting batches follow the new limits."""
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
        """The most keys the next batch may have: under a limit, half a burst, so that keys go evenly."""
        return min(BATCH_KEYS, max(1, int(self._keys.burst / 2))) if self._settings.keys_per_second else BATCH_KEYS

    @property
    def batch_bytes(self) -> int:
        """The most bytes the next batch may have, unless it is a single key."""
        return min(BATCH_BYTES, max(1, int(self._bytes.burst / 2))) if self._settings.bytes_per_second else BATCH_BYTES

    @property
    def batch_milliseconds(self) -> float:
        """How long the next batch should hold up its source."""
        return BATCH_MILLISECONDS

    def quiet_latency(self, address: str) -> Window:
        """The known latencies of a server while nothing moves. All migrations at this pace share them and add to
        them."""
        if address not in self._quiet:
            if len(self._quiet) >= MOST_SERVERS:
                del self._quiet[next(iter(self._quiet))]
            self._quiet[address] = Window(QUIET_SECONDS)
        return self._quiet[address]

    async def changed(self) -> None:
        """Wait for the next change of the settings, or the end of a pause."""
        await self._changed.wait()

    async def ready(self) -> None:
        """Wait while paused. This is the only wait without a limit: it ends by the operator's word, or by the hours of
        the day."""
        while self._paused:
            await self._changed.wait()

    async def admit(self, keys: int, size: int) -> None:
        """Wait until a batch of ``keys`` keys and ``size`` bytes may go, and count it.

        **bounded**: besides a pause, the wait is at most the debt of earlier batches, divided by the rate.
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
        """Correct the count of an admitted batch by the difference to its announced size."""
        self._keys.take(keys)
        self._bytes.take(size)

    def _wake(self) -> None:
        # Everyone who waits now holds the old event; later waiters get a new one.
        self._changed.set()
        self._changed = asyncio.Event()


class Urgeable:
    """A pace for one caller at a time. Once the caller is urged, nothing holds it back."""

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
        """Let the caller go on at once, and stay urged until :meth:`relax`."""
        self._urged.set()

    def relax(self) -> None:
        """Keep to the pace again."""
        self._urged.clear()
