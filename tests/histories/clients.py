"""Clients that send operations through the proxies and record their outcomes.

Each client has one operation under way at a time, at a random proxy. It sends no operation twice. bounded: a reply
that has not come after :data:`REPLY_SECONDS` counts as one that never comes.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from migrator.connection import pack
from tests.histories.operations import (
    Call,
    Form,
    Operation,
    Outcome,
    Partition,
    outcome_of,
    wire,
)
from tests.histories.workload import Asked, Workload, final_calls, unexpected

CONNECT_SECONDS = 2.0
REPLY_SECONDS = 12.0
"""Longer than any limit of the proxies in :mod:`tests.histories.cluster`, and longer than the longest pause of a
proxy."""
PAUSE_SECONDS = 0.05
"""How long a client waits after an operation that failed."""
SCRIPTS_DATABASE = 7
"""For sessions that run scripts which select the database of their keys."""
FINAL_ATTEMPTS = 20
SELDOM_SECONDS = 0.15
"""Between two writes of keys that are written seldom."""
LATENESS = 1.25
"""A run's clients may take so many times the run's seconds: after faults held them up, they do more at the end."""


class NotSent(Exception):
    """The proxy was not reached, so nothing was sent."""


class Lost(Exception):
    """The connection ended, or no reply came in time."""


class Connection:
    """One connection to a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()

    @classmethod
    async def open(cls, address: str, database: int) -> "Connection":
        """Connect and select the database. Raises :class:`NotSent`."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = cls(*await asyncio.open_connection(host, int(port)))
        except OSError as error:  # a timeout is one
            raise NotSent(f"not connected: {error or type(error).__name__}") from None
        try:
            (reply,) = await connection.call([(b"SELECT", b"%d" % database)])
        except Lost as error:
            connection.close()
            raise NotSent(f"not let in: {error}") from None
        if reply != b"OK":
            connection.close()
            raise NotSent(f"SELECT was answered {reply!r}")
        return connection

    async def call(self, commands: Sequence[tuple[bytes, ...]]) -> list[Any]:
        """Send commands in one piece and give their replies; errors are :class:`hiredis.ReplyError`. Raises Lost."""
        self._writer.write(b"".join(pack(*command) for command in commands))
        found: list[Any] = []
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                while len(found) < len(commands):
                    reply = self._parser.gets()
                    if reply is not False:
                        found.append(reply)
                        continue
                    data = await self._reader.read(65536)
                    if not data:
                        raise Lost("the connection was closed")
                    self._parser.feed(data)
        except TimeoutError:
            raise Lost(f"no reply within {REPLY_SECONDS:g} s") from None
        except OSError as error:
            raise Lost(str(error)) from None
        return found

    def close(self) -> None:
        """Close it."""
        self._writer.close()


class Recorder:
    """The clients of one run, and all that they were answered.

    Args:
        proxies: addresses of the proxies.
        workload: chooses what is done.
        seed: of the choice of proxies.
    """

    def __init__(self, proxies: Sequence[str], workload: Workload, seed: int) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.errors: Counter[str] = Counter()
        """Texts of errors, as often as they came."""
        self.unexpected: list[tuple[Partition, Operation]] = []
        """Operations with an error that nothing explains."""
        self._proxies = list(proxies)
        self._workload = workload
        self._random = random.Random(f"proxies {seed}")
        self._begun = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds of the run."""
        return time.monotonic() - self._begun

    async def run(self, clients: int, operations: int, seconds: float, least: int = 0) -> None:
        """Have so many clients send so many operations, evenly over the seconds. Late operations are left out, once
        ``least`` have run. One more client writes the keys that are written seldom."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(range(clients), operations, seconds, least, self._workload.next))
            seldom = round(seconds / SELDOM_SECONDS)
            group.create_task(self._send(range(clients, clients + 1), seldom, seconds, 0, self._workload.next_seldom))

    @property
    def _have_run(self) -> int:
        return self.outcomes.total() - self.outcomes[Outcome.NOT_RUN]

    async def _send(
        self, clients: range, operations: int, seconds: float, least: int, choose: Callable[[], Asked]
    ) -> None:
        left = operations
        pace = operations / seconds

        async def client(number: int) -> None:
            nonlocal left
            connections: dict[tuple[int, int], Connection] = {}
            try:
                while left > 0 and (self.now < LATENESS * seconds or self._have_run < least):
                    left -= 1
                    due = (operations - left) / pace
                    await asyncio.sleep(due - self.now)
                    partition, calls, form = choose()
                    if not await self._operate(number, connections, partition, calls, form):
                        await asyncio.sleep(PAUSE_SECONDS)
            finally:
                for connection in connections.values():
                    connection.close()

        async with asyncio.TaskGroup() as group:
            for number in clients:
                group.create_task(client(number))

    async def read_all(self) -> list[str]:
        """Read all keys, once nothing moves any more. Gives the keys that cannot be read, in words."""
        connections: dict[tuple[int, int], Connection] = {}
        missing = []
        for partition in self._workload.partitions:
            calls, form = final_calls(partition)
            for _ in range(FINAL_ATTEMPTS):
                if await self._operate(-1, connections, partition, calls, form):
                    break
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                missing.append(f"{partition} cannot be read at the end: {partition.operations[-1].error}")
        for connection in connections.values():
            connection.close()
        return missing

    async def _operate(
        self,
        client: int,
        connections: dict[tuple[int, int], Connection],
        partition: Partition,
        calls: tuple[Call, ...],
        form: Form,
    ) -> bool:
        """Send one operation and record it; whether it was answered."""
        proxy = self._random.randrange(len(self._proxies))
        place = proxy, partition.database if form is not Form.SCRIPT else SCRIPTS_DATABASE
        operation = Operation(client, proxy, calls, form, self.now)
        if form is not Form.FLUSH:
            partition.operations.append(operation)
        flushed = self._workload.flushed
        try:
            if place not in connections:
                connections[place] = await Connection.open(self._proxies[proxy], place[1])
            operation.invoked = self.now
            replies = await connections[place].call(wire(calls, form, partition.keys, partition.database))
        except NotSent as error:
            self._failed(operation, Outcome.NOT_RUN, str(error))
        except Lost as error:
            connections.pop(place).close()
            partition.unknown += 1
            self._failed(operation, Outcome.UNKNOWN, str(error))
        else:
            self._answered(partition, operation, replies)
        self.outcomes[operation.outcome] += 1
        if form is Form.FLUSH:
            self._workload.flush(operation, flushed)
        return operation.outcome is Outcome.ANSWERED

    def _answered(self, partition: Partition, operation: Operation, replies: list[Any]) -> None:
        answered = self.now
        reply = replies[-1]
        if isinstance(reply, hiredis.ReplyError):
            outcome = outcome_of(str(reply))
            if operation.form is Form.FLUSH and outcome is Outcome.NOT_RUN:
                outcome = Outcome.UNKNOWN  # some servers were flushed
            if outcome is None:
                self.unexpected.append((partition, operation))
            if outcome is not Outcome.NOT_RUN:
                partition.unknown += 1
            self._failed(operation, outcome or Outcome.UNKNOWN, str(reply))
            return
        operation.answered = answered
        operation.outcome = Outcome.ANSWERED
        match operation.form:
            case Form.PLAIN | Form.SCRIPT | Form.FLUSH:
                operation.replies = (reply,)
            case Form.MSET:
                operation.replies = (reply,) * len(operation.calls)
            case _:
                operation.replies = tuple(reply or ())
        if len(operation.replies) != len(operation.calls) or unexpected(operation.replies):
            operation.error = f"answered {reply!r}"
            self.unexpected.append((partition, operation))

    def _failed(self, operation: Operation, outcome: Outcome, error: str) -> None:
        operation.outcome = outcome
        operation.error = error
        self.errors[" ".join("N" if any(map(str.isdigit, word)) else word for word in error.split())] += 1
