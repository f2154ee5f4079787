"""Measures one client's view of the cluster: a steady stream of GET and SET, with the time of each request.

    python -m benchmarks.probe HOST:PORT [HOST:PORT ...] --keys N --output FILE ...

It is a process of its own, so that the benchmark does not disturb the measurement. It is as thin as plain Python
allows: a few sockets, one request in flight on each, prepared bytes to send, and only the length of replies checked.

With a rate, requests become due at even intervals, independent of the replies. If no connection is free, the time of a
request counts from when it was due. So a stall counts for every request that it held up, and not only for the first. If
a request was sent late because this process woke up late, its time counts from when it was sent. Without a rate, each
connection sends its next request as soon as it has its reply.

Every key must exist with a value of the given size: a missing key counts as one lost.
"""

import gc
import random
import select
import signal
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.load import get_request, key, set_request
from slots import functions, ranges
from slots.table import DEFAULT_SLOTS

REPLY_SECONDS = 15.0
"""If a connection gets no reply for this long, it is closed and opened again."""
_IDLE_SECONDS = 0.05
_RECEIVE_BYTES = 65536
_REPORTED_ERRORS = 20


class Kind(IntEnum):
    """How a request ended."""

    ANSWERED = 0
    REFUSED = 1
    """An error reply."""
    MISSING = 2
    """The key was not there, or its value was of another size."""
    LOST = 3
    """No reply: the connection ended or was closed."""


@dataclass(frozen=True)
class Request:
    """``at`` is on the system's monotonic clock, which all processes share; both times are in seconds."""

    at: float
    seconds: float
    kind: Kind


class Record:
    """All requests of a run, in the file as three doubles each. Errors are printed, up to a number."""

    def __init__(self) -> None:
        self._values = array("d")
        self._errors = 0

    def add(self, at: float, seconds: float, kind: Kind, reason: str = "") -> None:
        """Add one request; ``reason`` says what went wrong with an unanswered one."""
        self._values.extend((at, seconds, kind))
        if kind != Kind.ANSWERED:
            self._errors += 1
            if self._errors <= _REPORTED_ERRORS:
                print(f"{kind.name.lower()}: {reason}", file=sys.stderr, flush=True)

    def save(self, path: Path) -> None:
        """Write the file that :func:`read` reads."""
        with path.open("wb") as file:
            self._values.tofile(file)


def read(path: Path) -> Iterator[Request]:
    """The requests in a file that a probe wrote, in the order of their ends. Raises OSError."""
    values = array("d")
    values.frombytes(path.read_bytes())
    for place in range(0, len(values), 3):
        yield Request(values[place], values[place + 1], Kind(int(values[place + 2])))


@dataclass(eq=False)
class Connection:
    """One socket with at most one request in flight."""

    socket: socket.socket
    address: tuple[str, int]
    since: float = 0.0
    """When the request in flight began; if there is none, since when there is none."""
    busy: bool = False
    writes: bool = False
    received: bytearray = field(default_factory=bytearray)


class Probe:
    """The connections and the schedule. :meth:`run` is the loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        names: Sequence[bytes],
        value_bytes: int,
        connections: int,
        rate: float,
        writes: float,
    ) -> None:
        self._names = names
        self._value = b"x" * value_bytes
        self._expected = b"$%d\r\n%b\r\n" % (value_bytes, self._value)
        self._interval = 1 / rate if rate else 0.0
        self._writes = writes
        self._random = random.Random(1)
        proxies = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)]
        self._connections = [self._open(proxies[number % len(proxies)]) for number in range(connections)]
        self._idle = deque(self._connections)
        self._stopping = False
        self.record = Record()

    def stop(self) -> None:
        """Have :meth:`run` return after the requests in flight."""
        self._stopping = True

    def run(self, limit: float) -> None:
        """Send and time requests until :meth:`stop` is called, at most ``limit`` seconds.

        Raises:
            OSError: when a lost connection cannot be opened again.
        """
        begin = due = time.monotonic()
        looked = begin
        while True:
            now = time.monotonic()
            if self._stopping or now - begin > limit:
                break
            while self._idle and (not self._interval or due <= now):
                connection = self._idle.popleft()
                # The connection was free when this was due: the time since then is this process's own delay, not the
                # cluster's.
                waited = self._interval and connection.since > due
                self._send(connection, due if waited else time.monotonic())
                due += self._interval
            pause = due - time.monotonic() if self._interval and self._idle else _IDLE_SECONDS
            self._receive(max(0.0, min(pause, _IDLE_SECONDS)))
            if now - looked > 1:
                looked = now
                self._give_up(now)
        end = time.monotonic() + REPLY_SECONDS
        while len(self._idle) < len(self._connections) and time.monotonic() < end:
            self._receive(_IDLE_SECONDS)

    def _open(self, address: tuple[str, int]) -> Connection:
        opened = socket.create_connection(address, REPLY_SECONDS)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(opened, address, time.monotonic())

    def _send(self, connection: Connection, since: float) -> None:
        name = self._names[self._random.randrange(len(self._names))]
        connection.writes = self._random.random() < self._writes
        connection.since = since
        connection.busy = True
        request = set_request(name, self._value) if connection.writes else get_request(name)
        try:
            connection.socket.sendall(request)
        except OSError as error:
            self._lose(connection, str(error))

    def _receive(self, limit: float) -> None:
        by_socket = {connection.socket: connection for connection in self._connections if connection.busy}
        ready, _, _ = select.select(list(by_socket), [], [], limit)
        for readable in ready:
            connection = by_socket[readable]
            try:
                received = readable.recv(_RECEIVE_BYTES)
            except OSError as error:
                self._lose(connection, str(error))
                continue
            if not received:
                self._lose(connection, "the connection was closed")
                continue
            connection.received += received
            self._judge(connection)

    def _judge(self, connection: Connection) -> None:
        got = connection.received
        head = self._expected.partition(b"\n")[0]
        if got == b"+OK\r\n" if connection.writes else got.startswith(head) and len(got) == len(self._expected):
            kind = Kind.ANSWERED
        elif got.startswith(b"-") and got.endswith(b"\r\n"):
            kind = Kind.REFUSED
        elif got.startswith(b"$") and got[: len(head)] != head[: len(got)]:
            kind = Kind.MISSING
        else:
            return  # not whole yet
        now = time.monotonic()
        self.record.add(
            connection.since, now - connection.since, kind, bytes(got[:200]).decode(errors="replace").strip()
        )
        got.clear()
        connection.busy = False
        connection.since = now
        self._idle.append(connection)

    def _give_up(self, now: float) -> None:
        for connection in list(self._connections):
            if connection.busy and now - connection.since > REPLY_SECONDS:
                self._lose(connection, f"no reply within {REPLY_SECONDS:g} s")

    def _lose(self, connection: Connection, reason: str) -> None:
        self.record.add(connection.since, time.monotonic() - connection.since, Kind.LOST, reason)
        connection.socket.close()
        self._connections.remove(connection)
        opened = self._open(connection.address)
        self._connections.append(opened)
        self._idle.append(opened)


def main(
    addresses: Annotated[list[str], typer.Argument(help="Where the connections go, host:port, in turns.")],
    output: Annotated[Path, typer.Option(help="Where the times are written at the end.")],
    keys: Annotated[int, typer.Option(min=1, help="Keys that there are; requests take them at random.")],
    value_bytes: Annotated[int, typer.Option(min=1, help="Size of each value.")],
    connections: Annotated[int, typer.Option(min=1, max=64, help="Connections, one request in flight on each.")] = 4,
    rate: Annotated[float, typer.Option(min=0, help="Requests a second over all; 0: as fast as replies come.")] = 0,
    writes: Annotated[float, typer.Option(min=0, max=1, help="Part of the requests that are SET.")] = 0.2,
    limit: Annotated[float, typer.Option(min=0, help="Seconds after which it ends by itself.")] = 600,
    slots: Annotated[str, typer.Option(help="Only keys of these slots, as ranges; all if it is empty.")] = "",
) -> None:
    """Send GET and SET until SIGTERM and write down how long each took."""
    names = [key(number) for number in range(keys)]
    if slots:
        wanted = set(ranges.parse(slots, DEFAULT_SLOTS))
        names = [name for name in names if functions.slot("crc32", name, DEFAULT_SLOTS) in wanted]
    probe = Probe(addresses, names, value_bytes, connections, rate, writes)
    signal.signal(signal.SIGTERM, lambda *_: probe.stop())
    # A collection takes milliseconds, which would look like the cluster's delay; few cycles are made here.
    gc.disable()
    try:
        probe.run(limit)
    finally:
        probe.record.save(output)


if __name__ == "__main__":
    typer.run(main)
