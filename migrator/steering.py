"""Slows a migration down as far as the latency of its two servers requires.

:func:`steered` gives the pace of one (source, target) pair. It is never faster than the pace that all pairs share.
Below that, :mod:`migrator.feedback` allows a speed, by what :mod:`migrator.latency` measures at both servers. The speed
is the share of the time at work: steps of full size follow each other, and then nothing moves for a while, so that
fewer clients meet a step.

A server may be slow because of the migration, or always. So a migration that is held back now and then rests for long
enough to measure its servers in quiet.

It also waits while the target's replicas are far behind (:mod:`migrator.replicabuffers`).

Keys that proxies move because a client waits for them are not slowed down: the client waits for exactly these keys.

**bounded**: besides the rest for measuring, the longest rest is the one that :data:`MOST_WORK_SECONDS` of work require
at the lowest speed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import structlog

from migrator.connection import Timeouts
from migrator.feedback import Sample, ServerSpeed
from migrator.latency import probe
from migrator.pace import BatchLimits, Clock, Pace, Throttle, TokenBucket
from migrator.progress import Pacing, Progress, ServerLatency
from migrator.replicabuffers import ReplicasBehind
from migrator.replicabuffers import watch as watch_replicas
from slots.access import ServerAccess
from slots.connections import PREFIX

log = structlog.get_logger()

MOST_WORK_SECONDS = 0.1
"""The most time between two steps that counts as work."""

MEASURING_SECONDS = 1.2
"""Length of a rest for measuring: long enough for :data:`~migrator.feedback.QUIET_ENOUGH` quiet samples."""

QUIET_AFTER_SECONDS = 0.2
"""Time after the last step before a request counts as quiet: by then, requests that had to wait are over."""

MEASURE_AGAIN_SECONDS = 30.0
"""Time between two such rests."""

SLOW = 0.4
"""The speed below which a migration counts as held back, until it is at full speed. One slow request takes a migration
that has just begun to 0.44: it alone is chance."""

_numbers = count(1)


class PairPace:
    """The pace of one pair of servers, a :class:`~migrator.pace.Throttle`.

    Args:
        shared: whose settings, limits and pauses hold.
        source: ``host:port``; ``target`` likewise.
        clock: the clock of the samples, in seconds.
    """

    def __init__(self, shared: Pace, source: str, target: str, clock: Clock = time.monotonic) -> None:
        self.charge = shared.charge
        self._shared = shared
        self._clock = clock
        self._addresses = {"source": source, "target": target}
        self._servers = {"source": ServerSpeed(), "target": ServerSpeed()}
        self.replicas = ReplicasBehind(target, clock)
        """Of the target."""
        self._held_since = 0.0  # seconds since 1970; 0 while it is not held back
        self._work = TokenBucket(0, clock)  # seconds at work
        self._released_at = clock()
        self._turn = asyncio.Lock()
        self._measured_at = -math.inf
        self._quiet_from = math.inf

    @property
    def speed(self) -> float:
        """The share of the time at work that both servers allow; 1 without a goal."""
        return min(server.speed for server in self._servers.values()) if self._shared.settings.goal else 1.0

    @property
    def batch(self) -> BatchLimits:
        """As :attr:`Throttle.batch`."""
        return self._shared.batch

    async def ready(self) -> None:
        """As :meth:`Throttle.ready`."""
        async with self._rested():
            pass  # it has waited for the end of a pause, too

    async def admit(self, keys: int, size: int) -> None:
        """As :meth:`Throttle.admit`. The pair rests before it queues for the shared limits, so that its rest holds up
        no other pair."""
        async with self._rested():
            await self._shared.admit(keys, size)

    def rest(self, work: float) -> float:
        """As :meth:`Throttle.rest`, for the latency goal and the target's replicas."""
        if not self._shared.settings.goal:
            return self.replicas.seconds
        self._work.set_rate(self.speed)
        self._work.take(min(work, MOST_WORK_SECONDS))
        return max(self._work.seconds(), self.replicas.seconds)

    @asynccontextmanager
    async def _rested(self) -> AsyncIterator[None]:
        """Rest for the work since the last step was let go; the next one is let go at the end of the block.

        Two callers work side by side. The second goes right behind the first, and the rest comes when either asks
        again: a server that is at work already takes less time for a step.
        """
        async with self._turn:
            now = rest_until = self._clock()
            self._work.take(min(now - self._released_at, MOST_WORK_SECONDS))
            if self._held_since and now - self._measured_at >= MEASURE_AGAIN_SECONDS:
                self._measured_at = now
                self._quiet_from = now + QUIET_AFTER_SECONDS
                rest_until = now + MEASURING_SECONDS
            try:
                await self._shared.until(lambda: self._rest(rest_until))
                yield
            finally:
                self._quiet_from = math.inf
                self._released_at = self._clock()

    def _rest(self, until: float) -> float:
        """Seconds still to rest."""
        goal = self._shared.settings.goal
        self._work.set_rate(self.speed if goal else 0.0)
        return max(self._work.seconds(), until - self._clock() if goal else 0.0, self.replicas.seconds)

    def watches(self) -> bool:
        """Whether samples are wanted now."""
        return bool(self._shared.settings.goal) and not self._shared.paused

    def take(self, role: str, sample: Sample) -> None:
        """Learn from a request to the server in a role, ``source`` or ``target``."""
        if not self.watches():
            return
        if sample.at - sample.seconds >= self._quiet_from:
            self._servers[role].learn_quiet(sample)
            return
        self._servers[role].learn(sample, self._shared.settings.goal)
        if not self._held_since and self.speed < SLOW and not self._servers[self._slower].climbing:
            self._held_since = time.time()
            log.info("migration_held_back", reason=self._reason())
        elif self._held_since and self.speed == 1.0:
            self._held_since = 0.0
            log.info("migration_at_full_speed", **self._addresses)

    def report(self) -> Pacing | None:
        """How the migration is slowed down now; None without a goal."""
        if not self._shared.settings.goal:
            return None
        held_back = self._reason() if self._held_since else ""
        return Pacing(self.speed, self._latency("source"), self._latency("target"), held_back, self._held_since)

    @property
    def _slower(self) -> str:
        return min(self._servers, key=lambda role: self._servers[role].speed)

    def _latency(self, role: str) -> ServerLatency:
        server = self._servers[role]
        p99, quiet = (known and 1000 * known for known in (server.recent, server.quiet))
        return ServerLatency(self._addresses[role], p99, quiet, 1000 * server.allowed(self._shared.settings.goal))

    def _reason(self) -> str:
        latency = self._latency(self._slower)
        slow, known = self._servers[self._slower].slow(self._shared.settings.goal)
        whose = f"of topom's last {known} PINGs" if slow else f"of topom's PINGs, but for none of the last {known}"
        quiet = "" if latency.quiet is None else f"; while nothing moves: {latency.quiet:.1f} ms"
        return (
            f"held back to {self.speed:.0%}: {self._slower} {latency.address} took more than {latency.allowed:.1f} ms "
            f"for {slow or 'some'} {whose} (p99 now: {latency.p99 or 0.0:.1f} ms{quiet})"
        )


@asynccontextmanager
async def steered(
    shared: Pace,
    source: str,
    target: str,
    access: ServerAccess,
    progress: Progress,
    instance: str,
    timeouts: Timeouts,
) -> AsyncIterator[Throttle]:
    """The pace of one pair of servers. While the block runs, the target's replicas are watched, and with a goal the
    latency of both; if a server cannot be asked, keys go on moving, and the speed stays the same.

    Arguments are as in :func:`migrator.move.migrate`; ``progress`` is told how the migration is slowed down.
    """
    pace = PairPace(shared, source, target)
    progress.pacing = pace.report

    async def watch(role: str, address: str) -> None:
        # Names are not a migrator's, so that a later call does not end these connections: they change nothing.
        name = f"{PREFIX}.migrator-probe.{instance}.{next(_numbers)}"
        while True:
            await probe(address, name, access, timeouts, pace.watches, partial(pace.take, role))
            await shared.changed()  # there is no goal, or a pause; the end of either comes as a change

    name = f"{PREFIX}.migrator-replicas.{instance}.{next(_numbers)}"
    tasks = [
        asyncio.create_task(watch("source", source)),
        asyncio.create_task(watch("target", target)),
        asyncio.create_task(watch_replicas(target, name, access, timeouts, pace.replicas.take)),
    ]
    try:
        yield pace
    finally:
        progress.pacing = lambda: None
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                log.error("latency_watch_broke", exc_info=outcome)
