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
from contextlib import closing
from typing import Self

import structlog

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import MigrationError, Refused
from migrator.feedback import Sample
from slots.access import ServerAccess

log = structlog.get_logger()

PING = pack("PING")

PROBE_SECONDS = 0.02
"""Mean time between two requests to a server: 50 a second, of the 100,000 it can serve."""

RETRY_SECONDS = 2.0
"""Seconds until an unreachable server is asked again. The migration itself reports what is wrong with the server."""

TIMER_SECONDS = 0.001
"""The shortest timer that event loops have."""

MOST_MISSED = 250
"""The most requests that one long one counts for."""


class LoopDelay:
    """How late the event loop runs its timers within the block. It sees a reply at least that late."""

    def __enter__(self) -> Self:
        self._began, self._worst = time.monotonic(), 0.0
        self._schedule()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def until(self, moment: float) -> float:
        """The longest delay in seconds, including the one that was running at ``moment``."""
        return max(self._worst, moment - self._due)

    def _schedule(self) -> None:
        now = time.monotonic()
        # The timer is only as exact as needed: the longer the request takes, the less a millisecond of ours counts.
        seconds = max(TIMER_SECONDS, (now - self._began) / 16)
        self._due = now + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def _late(self) -> None:
        self._worst = max(self._worst, time.monotonic() - self._due)
        self._schedule()


class _PingConnection(Connection):
    """Notes when a reply arrives, before the reply is parsed."""

    heard_at = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        super().data_received(data)


async def probe(
    address: str,
    name: str,
    access: ServerAccess,
    timeouts: Timeouts,
    wanted: Callable[[], bool],
    take: Callable[[Sample], None],
) -> None:
    """Give samples of a server's latency to ``take`` while ``wanted()``. A server that cannot be reached is asked again
    after a while. ``name`` is that of the connection."""
    while wanted():
        try:
            connection = await _PingConnection.open(
                address, name=name, access=access, unavailable=MigrationError, refused=Refused, timeouts=timeouts
            )
            with closing(connection):
                await _sample(connection, wanted, take)
        except MigrationError as error:
            log.warning("latency_unknown", server=address, reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)


async def _sample(connection: _PingConnection, wanted: Callable[[], bool], take: Callable[[Sample], None]) -> None:
    due = time.monotonic()
    while wanted():
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        with LoopDelay() as delay:
            try:
                # An error reply tells as much about the time as any other.
                await connection.send(PING, 1)
            except MigrationError:
                if time.monotonic() - sent >= connection.reply_seconds:
                    take(Sample(time.monotonic(), time.monotonic() - sent))
                raise
        heard = connection.heard_at
        doubt = delay.until(heard)
        take(Sample(heard, heard - sent, doubt))
        due = sent + _interval()
        for _ in range(MOST_MISSED):
            if due > heard:
                break
            take(Sample(heard, heard - due, doubt))
            due += _interval()
        due = max(due, heard)


def _interval() -> float:
    return random.uniform(0.5 * PROBE_SECONDS, 1.5 * PROBE_SECONDS)
