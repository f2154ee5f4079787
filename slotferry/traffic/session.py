"""A client connection of the traffic. It is thin, because its own cost must not be measured.

Latency runs from sending a pipeline to each of its replies. A session sends its next pipeline when the last one is
answered, and not before it is due by the rate.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from random import random
from time import monotonic, perf_counter
from typing import Any, cast

import hiredis

from slotferry.traffic.latency import Histogram
from slotferry.traffic.requests import Difference, Request
from slotferry.traffic.sources import Source

_NOTHING = object()
_KEPT_TEXTS = 10


def pack(arguments: Sequence[bytes | str | int]) -> bytes:
    """A command in the form it is sent in."""
    return bytes(hiredis.pack_command(cast(Any, tuple(arguments))))  # its stub wants a tuple of one


class Tally:
    """Counts, since the last second or in all."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.differences = 0
        self.error_texts: dict[str, int] = {}
        """The first different texts of errors, with their numbers."""
        self.difference_texts: list[str] = []
        self.latency = Histogram()

    def error(self, text: str) -> None:
        """Count an error."""
        self.errors += 1
        if text in self.error_texts or len(self.error_texts) < _KEPT_TEXTS:
            self.error_texts[text] = self.error_texts.get(text, 0) + 1

    def difference(self, text: str) -> None:
        """Count a difference."""
        self.differences += 1
        if len(self.difference_texts) < _KEPT_TEXTS:
            self.difference_texts.append(text)

    def to_wire(self) -> dict[str, Any]:
        """As JSON: counts, first texts, latency buckets in microseconds and the percentiles made of them."""
        return {
            "requests": self.requests,
            "errors": self.errors,
            "differences": self.differences,
            "error_texts": self.error_texts,
            "difference_texts": self.difference_texts,
            **self.latency.summary(),
            "buckets": {str(bucket): count for bucket, count in sorted(self.latency.counts.items())},
        }


class Session(asyncio.Protocol):
    """One connection to one proxy, in one database, in one version of the protocol; it reconnects by itself."""

    RECONNECT_SECONDS = (0.05, 1.0)
    """First and longest pause before a reconnection."""
    CONNECT_SECONDS = 5.0
    REPLY_SECONDS = 15.0
    """How long a reply may take. After that the connection is closed and counted as an error."""

    def __init__(
        self,
        address: str,
        database: int,
        protocol: int,
        password: str | None,
        tally: Callable[[], Tally],
    ) -> None:
        """``tally`` gives the present tally."""
        host, _, port = address.rpartition(":")
        self.address = address
        self.database = database
        self._host, self._port = host, int(port)
        self._protocol = protocol
        self._password = password
        self._tally = tally
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._greeting = 0
        self._pending: deque[Request] = deque()
        self._sent_at = 0.0
        self._sent_monotonic = 0.0
        self._source: Source | None = None
        self._interval = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._pause = self.RECONNECT_SECONDS[0]
        self._closing = False
        self._in_use = False
        """Whether :meth:`connection_lost` makes a lost connection anew; before that, open() tells its caller."""
        self._reconnecting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self.idle = asyncio.Event()
        """Set while nothing is in flight and the source has nothing for this session."""
        self.idle.set()

    # Its life

    async def open(self) -> None:
        """Connect and greet. Raises OSError, also when that takes longer than :attr:`CONNECT_SECONDS`."""
        try:
            async with asyncio.timeout(self.CONNECT_SECONDS):
                await self._loop.create_connection(lambda: self, self._host, self._port)
                await self._ready.wait()
        except TimeoutError:
            # A greeting that is answered as the wait ends counts: requests may be under way already.
            if self._transport is None or self._transport.is_closing() or self._greeting:
                # A stopped server's kernel accepts connections. The server's later answers do not belong to the next
                # connection's requests.
                if self._transport is not None:
                    self._transport.abort()
                raise
        if self._transport is None:
            raise ConnectionResetError(f"{self.address} closed the connection on connecting")
        self._in_use = True

    def close(self) -> None:
        """Close for good."""
        self._closing = True
        self.rest()
        if self._transport is not None:
            self._transport.close()

    def run(self, source: Source, interval: float = 0.0) -> None:
        """Take requests from ``source`` from now on, with at least ``interval`` seconds between them."""
        self._source = source
        self._interval = interval
        # So sessions that begin together do not all send at the same moment.
        self._due = self._loop.time() + interval * random()
        self.idle.clear()
        if self._transport is not None and not self._pending and not self._greeting:
            self._wait_turn()

    def rest(self) -> None:
        """Send nothing new; :attr:`idle` is set once all requests in flight are answered."""
        self._source = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            self.idle.set()

    def check_overdue(self) -> None:
        """Call this once a second: it closes the connection when a reply takes too long."""
        waiting = self._pending or self._greeting
        if waiting and self._transport is not None and monotonic() - self._sent_monotonic > self.REPLY_SECONDS:
            self._tally().error(f"no reply within {self.REPLY_SECONDS:g} s")
            self._transport.abort()

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not derive from it
        self._ready.clear()
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        greeting: list[tuple[bytes | str | int, ...]] = []
        if self._protocol == 3:
            login: tuple[bytes | str, ...] = ("AUTH", "default", self._password) if self._password else ()
            greeting.append((b"HELLO", 3, *login))
        elif self._password:
            greeting.append((b"AUTH", self._password))
        if self.database:
            greeting.append((b"SELECT", self.database))
        self._greeting = len(greeting)
        self._sent_monotonic = monotonic()
        if greeting:
            self._transport.write(b"".join(pack(part) for part in greeting))
        else:
            self._greeted()

    def connection_lost(self, error: Exception | None) -> None:
        in_use, self._in_use = self._in_use, False
        self._transport = None
        self._greeting = 0
        self._ready.set()
        tally = self._tally()
        for request in self._pending:
            tally.requests += 1
            tally.error(f"connection lost{f': {error}' if error else ''}")
            request.failed()
        self._pending.clear()
        if self._closing or self._source is None:
            self.idle.set()
        if in_use and not self._closing:
            self._reconnect_later()

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        reader = self._reader
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _NOTHING:
                self._take(reply, now)
        except hiredis.ProtocolError as error:
            self._tally().error(f"protocol error: {error}")
            if self._transport is not None:
                self._transport.abort()

    # Requests and replies

    def _take(self, reply: Any, now: float) -> None:
        if self._greeting:
            self._greeting -= 1
            if isinstance(reply, Exception):
                self._tally().error(f"on connecting: {reply}")
                if self._transport is not None:
                    self._transport.close()
            elif not self._greeting:
                self._greeted()
            return
        tally = self._tally()
        if not self._pending:
            tally.difference(f"a reply that nobody asked for: {reply!r:.160}")
            return
        request = self._pending.popleft()
        tally.requests += 1
        tally.latency.add(now - self._sent_at)
        if isinstance(reply, Exception):
            tally.error(f"{bytes(request.arguments[0]).decode()}: {reply}")
            request.failed()
        else:
            try:
                request.check(reply)
            except Difference as difference:
                tally.difference(str(difference))
        if not self._pending:
            self._wait_turn()

    def _greeted(self) -> None:
        self._pause = self.RECONNECT_SECONDS[0]
        self._ready.set()
        self._wait_turn()

    def _wait_turn(self) -> None:
        if self._source is None:
            self.idle.set()
            return
        wait = self._due - self._loop.time() if self._interval else 0.0
        if wait <= 0:
            self._send()
        else:
            self._timer = self._loop.call_later(wait, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._source is None or self._transport is None or self._pending:
            return
        batch = self._source.next_batch(self.database)
        if batch is None:
            self.rest()
            return
        if self._interval:
            # A session that fell behind may catch up by at most one second, so it does not send faster than others for
            # longer.
            self._due = max(self._due + self._interval * len(batch), self._loop.time() - 1)
        data = b"".join([pack(request.arguments) for request in batch])
        self._pending.extend(batch)
        self._sent_at = perf_counter()
        self._sent_monotonic = monotonic()
        self._transport.write(data)

    def _reconnect_later(self) -> None:
        pause = self._pause
        self._pause = min(pause * 2, self.RECONNECT_SECONDS[1])
        self._loop.call_later(pause, self._begin_reconnect)

    def _begin_reconnect(self) -> None:
        self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        if self._closing:
            return
        try:
            await self.open()
        except OSError as error:
            self._tally().error(f"cannot connect to {self.address}: {error.strerror or error}")
            self._reconnect_later()
