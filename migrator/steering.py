"""Slows a migration down as far as the latency of its two servers requires: it measures and decides.

:func:`steered` gives the pace of one (source, target) pair. That pace is never faster than the pace that all pairs
share. Below it, it keeps to the speed that :mod:`migrator.feedback` allows for the measurements of
:mod:`migrator.latency` at both servers. A lower speed has two parts. Batches become shorter, so that a client that
meets one waits less. But a batch has a cost of its own, and below a quarter of its size little is gained. So there are
also rests between batches, so that fewer clients meet one: the slower the migration, the smaller its time at work.

The latency of a server while nothing moves is learned in pauses. Where a migration is slowed down, it is also learned
in rests that are made for it. Of two slow servers, one may be slow because of the migration, and the other always.

Keys that proxies move because a client waits for them are not slowed down: the client waits for exactly these keys.

**bounded**: the longest rest is the one that :data:`MOST_WORK_SECONDS` of work require at the lowest speed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import sqrt

import structlog

from migrator.connection import Timeouts
from migrator.feedback import QUIET_ENOUGH, Sample, ServerSpeed
from migrator.latency import LatencyProbe
from migrator.pace import BATCH_MILLISECONDS, Clock, Pace, PaceSettings
from migrator.progress import Pacing, Progress, ServerLatency
from slots.access import ServerAccess
from slots.connections import PREFIX

log = structlog.get_logger()

PROBE_SECONDS = 0.02
"""Mean time between two requests to a server while keys move: 50 a second, of the 100,000 it can serve."""

PROBE_MEASURING_SECONDS = 0.01
"""The same in a rest that is made for measuring."""

PROBE_PAUSED_SECONDS = 0.25
"""The same in a pause."""

SMALLEST_BATCH = 0.25
"""Share of :data:`~migrator.pace.BATCH_MILLISECONDS` below which batches do not shrink."""

LEAST_REST_SECONDS = 0.002
"""Owed rests add up to this before they are taken, because event loops cannot wait exactly for less."""

MOST_WORK_SECONDS = 0.1
"""The most time between two batches that counts as work."""

QUIET_AFTER_SECONDS = 0.2
"""Time after the last batch before a request counts as quiet: by then, requests that had to wait are over."""

MEASURING_REST_SECONDS = 0.8
"""Length of a rest for measuring."""

MEASURE_AGAIN_SECONDS = 30.0
"""Time between two such rests."""

SLOW = 0.5
"""A speed below which the log says that a migration is slowed down."""

_numbers = count(1)


@dataclass
class _Server:
    role: str
    address: str
    speed: ServerSpeed = field(default_factory=ServerSpeed)


class SteeredPace(Pace):
    """The pace of one pair of servers: never faster than the shared one, and slower where a server is.

    Args:
        shared: whose settings, limits and pauses hold.
        clock: the clock of the samples, in seconds.
    """

    def __init__(self, shared: Pace, source: str, target: str, clock: Clock = time.monotonic) -> None:
        super().__init__(shared.settings, clock=clock)
        self._shared = shared
        self._clock = clock
        self._servers = tuple(
            _Server(role, address, ServerSpeed(shared.quiet_latency(address)))
            for role, address in (("source", source), ("target", target))
        )
        self._resting = asyncio.Lock()
        self._owed = 0.0  # seconds of rest
        self._released_at = clock()
        self._waiting = 0  # callers that are held
        self._still_since = clock()  # since when callers wait and nothing was let go
        self._measuring_quiet = False
        self._measured_quiet_at = float("-inf")
        self._told_slow = False
        self._since = 0.0

    # The values of the shared pace

    @property
    def settings(self) -> PaceSettings:
        """The settings that hold for all."""
        return self._shared.settings

    @property
    def paused(self) -> bool:
        """Whether all are paused."""
        return self._shared.paused

    @property
    def batch_keys(self) -> int:
        """The most keys the next batch may have."""
        return self._shared.batch_keys

    @property
    def batch_bytes(self) -> int:
        """The most bytes the next batch may have, unless it is a single key."""
        return self._shared.batch_bytes

    def change(self, settings: PaceSettings) -> None:
        """Change the settings for all."""
        self._shared.change(settings)

    def pause(self) -> None:
        """Pause all."""
        self._shared.pause()

    def resume(self) -> None:
        """End the pause for all."""
        self._shared.resume()

    async def changed(self) -> None:
        """Wait for the next change of the shared settings, or the end of a pause."""
        await self._shared.changed()

    # The values that are slower here

    @property
    def goal(self) -> float:
        """Seconds within which each server should answer 99 of 100 requests; 0 for no goal."""
        return self.settings.latency_goal_milliseconds / 1000

    @property
    def speed(self) -> float:
        """The share of the full speed that both servers allow, up to 1."""
        return min(server.speed.speed for server in self._servers) if self.goal else 1.0

    @property
    def batch_milliseconds(self) -> float:
        """How long the next batch should hold up its source."""
        return BATCH_MILLISECONDS * _batch_share(self.speed)

    @property
    def at_work(self) -> float:
        """The share of the time in which batches follow each other; in the rest of the time, keys rest."""
        return self.speed / _batch_share(self.speed)

    async def ready(self) -> None:
        """Wait while paused, and through a rest that is due."""
        with self._held():
            await self._rest()
            await self._shared.ready()

    async def admit(self, keys: int, size: int) -> None:
        """Wait until a batch of ``keys`` keys and ``size`` bytes may go, and count it."""
        with self._held():
            await self._rest()
            await self._shared.admit(keys, size)

    def charge(self, keys: int, size: int) -> None:
        """Correct the count of an admitted batch by the difference to its announced size."""
        self._shared.charge(keys, size)

    def report(self) -> Pacing | None:
        """How the migration is slowed down now; None without a goal."""
        if not self.goal:
            return None
        now = self._clock()
        source, target = (self._latency(server, now) for server in self._servers)
        return Pacing(
            self.speed, self.batch_milliseconds, self.at_work, source, target, self._held_back(now), self._since
        )

    # The interface for the probes of each server

    def interval(self) -> float | None:
        """Seconds between two requests of a probe; None to send none."""
        if not self.goal:
            return None
        if self.paused:
            return PROBE_PAUSED_SECONDS
        return PROBE_MEASURING_SECONDS if self._measuring_quiet else PROBE_SECONDS

    def taker(self, role: str) -> Callable[[Sample], None]:
        """A function that takes the samples of the server in that role, ``source`` or ``target``."""
        server = next(server for server in self._servers if server.role == role)

        def take(sample: Sample) -> None:
            if self._waiting and sample.at - sample.seconds >= self._still_since + QUIET_AFTER_SECONDS:
                server.speed.learn_quiet(sample)
            if not self.paused and self.goal:
                server.speed.learn(sample, self.goal)
                held_back = any(one.speed.held_back for one in self._servers)
                self._since = (self._since or time.time()) if held_back else 0.0
                self._tell()

        return take

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._waiting:
            self._still_since = self._clock()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            # Other waiting callers see that something goes on.
            self._still_since = self._released_at = self._clock()

    async def _rest(self) -> None:
        async with self._resting:
            began = self._clock()
            self._owed += min(began - self._released_at, MOST_WORK_SECONDS) * (1 / self.at_work - 1)
            self._released_at = began
            self._measuring_quiet = self._should_measure_quiet()
            seconds = max(self._owed, MEASURING_REST_SECONDS if self._measuring_quiet else 0.0)
            if seconds < LEAST_REST_SECONDS:
                return
            try:
                async with asyncio.timeout(seconds):
                    await self._shared.changed()
            except TimeoutError:
                pass
            finally:
                self._released_at = self._clock()
                # If a rest was longer than owed, the difference is taken off the next rest.
                self._owed = max(-LEAST_REST_SECONDS, min(0.0, self._owed - (self._released_at - began)))
                self._measuring_quiet = False

    def _should_measure_quiet(self) -> bool:
        now = self._clock()
        if self.paused or not self.goal or now - self._measured_quiet_at < MEASURE_AGAIN_SECONDS:
            return False
        if not any(server.speed.held_back for server in self._servers):
            return False
        self._measured_quiet_at = now
        return True

    def _latency(self, server: _Server, now: float) -> ServerLatency:
        speed = server.speed
        p99, quiet = speed.p99(now), speed.quiet.percentile(now, QUIET_ENOUGH)
        return ServerLatency(
            server.address,
            None if p99 is None else 1000 * p99,
            None if quiet is None else 1000 * quiet,
            1000 * speed.allowed(self.goal, now),
        )

    def _held_back(self, now: float) -> str:
        slowest = min(self._servers, key=lambda server: server.speed.speed)
        if not slowest.speed.held_back:
            return ""
        latency = self._latency(slowest, now)
        now_is = "" if latency.p99 is None else f" (p99 now: {latency.p99:.1f} ms)"
        return (
            f"held back to {self.speed:.0%}: {slowest.role} {slowest.address} kept too many requests waiting for "
            f"more than {latency.allowed:.1f} ms{now_is}"
        )

    def _tell(self) -> None:
        if not self._told_slow and self.speed < SLOW and (said := self._held_back(self._clock())):
            self._told_slow = True
            log.info("migration_held_back", reason=said)
        elif self._told_slow and self.speed == 1.0:
            self._told_slow = False
            log.info("migration_at_full_speed", source=self._servers[0].address, target=self._servers[1].address)


def _batch_share(speed: float) -> float:
    """Shorter batches provide half of the speed change (by its logarithm), down to :data:`SMALLEST_BATCH`."""
    return max(SMALLEST_BATCH, sqrt(speed))


@asynccontextmanager
async def steered(
    shared: Pace,
    source: str,
    target: str,
    access: ServerAccess,
    progress: Progress,
    instance: str,
    timeouts: Timeouts | None = None,
) -> AsyncIterator[Pace]:
    """The pace of one pair of servers. Their latency is watched while the block runs and there is a goal.

    If a server cannot be asked, keys go on moving, and the speed stays the same.

    Args:
        shared: whose settings, limits and pauses hold.
        source: ``host:port``; ``target`` likewise.
        access: how to log in at both.
        progress: is told how the migration is slowed down.
        instance: id of the process; part of the names of the connections.
    """
    pace = SteeredPace(shared, source, target)
    progress.pacing = pace.report

    async def watch(role: str, address: str) -> None:
        probe = LatencyProbe(
            address,
            # Its name is not a migrator's, so that a later call does not end it: it sends only PING.
            name=f"{PREFIX}.migrator-probe.{instance}.{next(_numbers)}",
            access=access,
            timeouts=timeouts or Timeouts(),
            interval=pace.interval,
            take=pace.taker(role),
        )
        while True:
            await probe.run()
            await shared.changed()  # there is no goal; a new goal comes as a change

    tasks = [asyncio.create_task(watch("source", source)), asyncio.create_task(watch("target", target))]
    try:
        yield pace
    finally:
        progress.pacing = lambda: None
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("latency_watch_broke", exc_info=outcome)
