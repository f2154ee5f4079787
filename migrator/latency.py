"""Measures again and again how long a request to a server takes, as its clients feel it.

A PING on a connection of its own waits in the server's event loop like any client's request, behind the server's other
work. This process's own delay must not count: a server looks slow if its reply lies in the socket while our event loop
is busy, or while our process waits for a processor. So the clock is read when the request is handed to the transport,
and when the protocol receives the reply. Timers in between show how late our loop was. That is the sample's ``doubt``.

Requests become due at irregular intervals, so that they do not keep step with the thing they measure. If one is not
answered when others become due, it counts for those as well: clients do not stay away because one of them waits (G.
Tene calls leaving that out "coordinated omission").

**bounded**: one request is under way at a time, and each has a limit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import structlog

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import MigrationError, Refused
from migrator.feedback import Sample
from slots.access import ServerAccess
from slots.backoff import Backoff

log = structlog.get_logger()

PING = pack("PING")

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.5, 4.0
"""Seconds until an unreachable server is asked again. The migration itself reports what is wrong with the server."""

FINEST_SECONDS = 0.001
"""The shortest timer that event loops have."""

MOST_MISSED = 250
"""The most requests that one long one counts for."""


class LoopDelay:
    """How late the event loop runs its timers between two moments. It sees a reply at least that late."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._due = self._worst = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start to watch."""
        self._began = self._clock()
        self._worst = 0.0
        self._schedule()

    def end(self, moment: float) -> float:
        """Stop; give the longest delay in seconds, including the one that was running at ``moment``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return max(self._worst, moment - self._due)

    def _schedule(self) -> None:
        now = self._clock()
        # The timer is only as exact as needed: the longer the request takes, the less a millisecond of ours counts.
        seconds = max(FINEST_SECONDS, (now - self._began) / 16)
        self._due = now + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def _late(self) -> None:
        self._worst = max(self._worst, self._clock() - self._due)
        self._schedule()


class _PingConnection(Connection):
    """Notes when a reply arrives, before the reply is parsed."""

    heard_at = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        super().data_received(data)


class LatencyProbe:
    """Samples one server's latency.

    Args:
        address: ``host:port``.
        name: of the connection.
        interval: gives the mean number of seconds between two requests from now on; None to stop.
        take: called with each sample.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str,
        access: ServerAccess,
        timeouts: Timeouts,
        interval: Callable[[], float | None],
        take: Callable[[Sample], None],
    ) -> None:
        self._address = address
        self._name = name
        self._access = access
        self._timeouts = timeouts
        self._interval = interval
        self._take = take
        self._random = random.Random()
        self._delay = LoopDelay()

    async def run(self) -> None:
        """Sample until ``interval`` says None. A server that cannot be reached is asked again after a while."""
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        while self._interval() is not None:
            try:
                await self._sample()
            except MigrationError as error:
                log.warning("latency_unknown", server=self._address, reason=str(error))
                await asyncio.sleep(backoff.next())

    async def _sample(self) -> None:
        connection = await _PingConnection.open(
            self._address,
            name=self._name,
            access=self._access,
            unavailable=MigrationError,
            refused=Refused,
            timeouts=self._timeouts,
        )
        try:
            due = time.monotonic()
            while (interval := self._interval()) is not None:
                due += interval * self._random.uniform(0.5, 1.5)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due = await self._ask(connection, interval)
        finally:
            connection.close()

    async def _ask(self, connection: _PingConnection, interval: float) -> float:
        """Take one sample, and the samples that it also counts for; give the moment from which the next becomes due."""
        connection.heard_at = 0.0
        sent = time.monotonic()
        self._delay.begin()
        try:
            # An error reply tells as much about the time as any other.
            await connection.send(PING, 1)
        except MigrationError:
            self._delay.end(time.monotonic())
            if time.monotonic() - sent >= self._timeouts.reply_seconds:
                self._take(Sample(time.monotonic(), time.monotonic() - sent))
            raise
        except BaseException:
            self._delay.end(time.monotonic())
            raise
        heard = connection.heard_at
        doubt = self._delay.end(heard)
        self._take(Sample(heard, heard - sent, doubt))
        for number in range(1, min(MOST_MISSED, int((heard - sent) / interval)) + 1):
            self._take(Sample(heard, heard - sent - number * interval, doubt))
        return heard
