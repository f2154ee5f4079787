"""Connections of a session's own, for commands that hold a connection up or leave something behind on it.

Blocking commands, WAIT and WATCH cannot use the connections that all sessions share. A worker opens such connections on
demand and keeps them for later sessions; those that nobody has used for :data:`IDLE_SECONDS` end. **bounded**: there
are at most ``own_connections`` at once. If a server could not be connected to, it is not tried again for every session.

A lost connection is never given out again, and neither is one whose server has left the slot table: what it held at the
server (a watch, a place in a queue of blocked clients) is gone. **drained**: if a connection is closed with replies
outstanding, its backend tells ``options.on_lost``, like every connection of the worker.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial

from proxy.engine.backend import Backend, command
from proxy.engine.outcomes import Reply, clear
from proxy.engine.requests import Loop
from proxy.engine.session import Session
from proxy.servers.backends import BackendOptions
from proxy.settings import ProxySettings
from slots.backoff import Backoff

CLIENT_ID = command(("CLIENT", "ID"))
NO_CLIENT_ID = (b"-ERR Syntax error, try CLIENT", b"-ERR Unknown subcommand or wrong number of arguments for")
"""The errors of servers before Redis 5."""
IDLE_SECONDS = 60.0
"""How long an unused one is kept for later sessions: to make one costs a few round trips, to keep one some kilobytes.
Those that were used last are used first, so that only as many are kept as were used at once."""
LEFT_THE_TABLE = "is no longer in the slot table"

Kind = tuple[str, int, int]
"""Address, database, RESP version."""


Making = Callable[["asyncio.Task[OwnConnection]", int], None]


class OwnConnectionError(Exception):
    """No connection is available.

    Args:
        text: the error for the client, with its code and without the end of the line.
    """

    @property
    def reply(self) -> bytes:
        """The error in RESP."""
        return b"-%b\r\n" % str(self).encode()


class OwnConnection:
    """One connection, used by one session at a time.

    Args:
        backend: the connection itself, to which nothing has been sent yet.
        reply_seconds: how long a reply may take unless a call says otherwise.
    """

    __slots__ = ("_reply_seconds", "backend", "client_id", "idle_since", "orphaned_at")

    def __init__(self, backend: Backend, reply_seconds: float) -> None:
        self.backend = backend
        self.client_id = 0
        """The server's id of this connection, for CLIENT UNBLOCK."""
        self.idle_since = 0.0
        self.orphaned_at = math.inf
        """The time since which its server is not in the slot table."""
        self._reply_seconds = reply_seconds

    @property
    def address(self) -> str:
        """The server."""
        return self.backend.address

    @property
    def kind(self) -> Kind:
        """Its address, database and RESP version."""
        return self.backend.address, self.backend.database, self.backend.protocol

    @property
    def lost(self) -> bool:
        """Whether it has ended. A backend would reconnect, but without the session's state at the server."""
        return self.backend.was_lost()

    def call(
        self, payload: bytes, callback: Callable[[bytes], None], seconds: float | None = None, before: int = 0
    ) -> None:
        """Send requests; ``callback`` gets the last reply, unchanged, or an error that names the server.

        Args:
            payload: the requests in RESP.
            callback: called once, whatever becomes of the client.
            seconds: how long the reply may take before the connection is given up; ``math.inf`` for no limit.
                With several requests under way, the longest limit holds for all.
            before: how many replies come before the last one; they are dropped.

        Raises:
            MemoryError: nothing was sent.
        """
        if self.lost:
            callback(f"-ERR server {self.address} {self.backend.failure}\r\n".encode())
            return
        limit = self._reply_seconds if seconds is None else seconds
        self.backend.reply_seconds = max(limit, self.backend.reply_seconds) if self.backend.queued else limit
        self.backend.call(payload, callback, before)

    def ask(self, payload: bytes, seconds: float | None = None) -> Reply[bytes]:
        """Send one request, as :meth:`call`; gives its reply."""
        reply: Reply[bytes] = Reply()
        self.call(payload, reply.give, seconds)
        return reply


class _Unreachable:
    """A server that could not be connected to: why, and until when it is not tried again."""

    __slots__ = ("backoff", "error", "until")

    def __init__(self, until: float, backoff: Backoff, error: str) -> None:
        self.until = until
        self.backoff = backoff
        self.error = error


class OwnConnections:
    """All connections of this sort of one worker's sessions.

    Args:
        loop: the worker's loop.
        options: options of the worker's backends.
        settings: the limits.
    """

    def __init__(self, loop: Loop, options: BackendOptions, settings: ProxySettings) -> None:
        self._loop = loop
        self._options = options
        self._settings = settings
        self._in_use: set[OwnConnection] = set()
        # For each kind, the longest idle first.
        self._idle: dict[Kind, deque[OwnConnection]] = {}
        self._unreachable: dict[str, _Unreachable] = {}

    # -- taking --------------------------------------------------------------------------------------------

    async def take(self, address: str, database: int, protocol: int) -> OwnConnection:
        """A connection for one session alone, greeted and in its database.

        Give it back or discard it. A caller that is cancelled here gets none.

        Raises:
            OwnConnectionError: at the limit, or when the server cannot be connected to.
        """
        connection = self.take_idle(address, database, protocol)
        if connection is not None:
            return connection
        self._make_room()
        self._check_reachable(address)
        return await self._connect(address, database, protocol)

    async def take_for(
        self, session: Session, keys: Sequence[bytes], making: Making | None = None
    ) -> tuple[OwnConnection, int]:
        """A connection to the server of the keys, and their slot, whose way is free until the caller waits
        (:func:`proxy.engine.outcomes.clear`). As :meth:`take`; for a handler.

        ``making`` is told of a connection that has yet to be made, and for which slot; to cancel that cancels this.

        Raises:
            Answered: the keys were not let through.
            OwnConnectionError: as :meth:`take`.
        """
        connection: OwnConnection | None = None
        while True:
            try:
                slot, address = await clear(keys)
            except BaseException:
                if connection is not None:
                    self.give_back(connection)
                raise
            kind = address, session.database, session.protocol
            if connection is not None and (connection.lost or connection.kind != kind):
                # The slot has moved meanwhile.
                self.give_back(connection)
                connection = None
            if connection is None:
                connection = self.take_idle(*kind)
            if connection is not None:
                return connection, slot
            task = self.make(*kind)
            if making is not None:
                making(task, slot)
            connection = await self.made(task)

    def make(self, address: str, database: int, protocol: int) -> "asyncio.Task[OwnConnection]":
        """As :meth:`take`, by a task that somebody else may cancel. Wait for it with :meth:`made`."""
        return asyncio.get_running_loop().create_task(self.take(address, database, protocol))

    async def made(self, task: "asyncio.Task[OwnConnection]") -> OwnConnection:
        """The connection of :meth:`make`. A caller that is cancelled here gets none, whenever that comes."""
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                # It was there in the same moment.
                self.give_back(task.result())
            raise

    def take_idle(self, address: str, database: int, protocol: int) -> OwnConnection | None:
        """The same at once, if there is one that nobody uses. Give it back or discard it."""
        idle = self._idle.get((address, database, protocol))
        while idle:
            connection = idle.pop()
            if not connection.lost:
                self._in_use.add(connection)
                return connection
            connection.backend.close()
        return None

    def _make_room(self) -> None:
        if len(self) < self._settings.own_connections:
            return
        oldest = self._longest_idle()
        if oldest is None:
            raise OwnConnectionError(
                f"ERR max number of blocked clients and of clients that watch keys reached: all"
                f" {self._settings.own_connections} connections for them are in use (setting own_connections)"
            )
        self._end_idle(oldest)

    def _check_reachable(self, address: str) -> None:
        trouble = self._unreachable.get(address)
        if trouble is not None and self._now() < trouble.until:
            raise OwnConnectionError(trouble.error)

    async def _connect(self, address: str, database: int, protocol: int) -> OwnConnection:
        seconds = self._settings.backend_reply_seconds
        connection = OwnConnection(Backend(self._loop, address, database, protocol, self._options, seconds), seconds)
        self._in_use.add(connection)
        opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        try:
            connection.backend.call(CLIENT_ID, partial(self._opened, connection, opened))
        except MemoryError:
            self.discard(connection, "was not of use")
            raise
        try:
            reply = await opened
        except asyncio.CancelledError:
            if not opened.cancelled():
                self.give_back(connection)
            raise
        if connection.lost or not connection.client_id:
            self.discard(connection, "was not of use")
            raise OwnConnectionError(reply[1:].decode(errors="replace").rstrip())
        return connection

    def _opened(self, connection: OwnConnection, opened: "asyncio.Future[bytes]", reply: bytes) -> None:
        address = connection.address
        if reply.startswith(b":"):
            connection.client_id = int(reply[1:])
            self._unreachable.pop(address, None)
        elif reply.startswith(NO_CLIENT_ID):
            # bounded: the server can be reached, so it may be tried again at once.
            reply = (
                b"-ERR server %b is older than Redis 5, which commands that wait, and WATCH, need\r\n"
                % address.encode()
            )
        elif connection in self._in_use:
            # One that was ended from here says nothing about the server.
            self._note_unreachable(address, reply[1:].decode(errors="replace").rstrip())
        if opened.cancelled():
            # The caller has gone; a good connection is kept for the next.
            self.give_back(connection)
        else:
            opened.set_result(reply)

    def _note_unreachable(self, address: str, error: str) -> None:
        known = self._unreachable.get(address)
        now = self._now()
        if known is not None and now < known.until:
            return
        least, most = self._settings.backend_retry_seconds_min, self._settings.backend_retry_seconds_max
        backoff = Backoff(least, most) if known is None else known.backoff
        self._unreachable[address] = _Unreachable(now + backoff.next(), backoff, error)

    # -- giving back ---------------------------------------------------------------------------------------

    def give_back(self, connection: OwnConnection) -> None:
        """Take a connection back that has all its replies, watches nothing and is in its original state."""
        orphaned = connection.orphaned_at < math.inf
        if connection.lost or orphaned or connection.backend.queued or not connection.client_id:
            self.discard(connection, "was given up")
            return
        if connection not in self._in_use:
            return
        self._in_use.remove(connection)
        connection.idle_since = self._now()
        self._idle.setdefault(connection.kind, deque()).append(connection)

    def discard(self, connection: OwnConnection, reason: str) -> None:
        """End a connection. Its requests under way are answered with an error that has ``reason``."""
        self._in_use.discard(connection)
        connection.backend.close(reason)

    def leave(self, addresses: Collection[str], reason: str) -> None:
        """End every connection to these servers, even those in use: their later answers go to no client."""
        for connection in [connection for connection in self._in_use if connection.address in addresses]:
            self.discard(connection, reason)
        self._end_idle_at([kind for kind in self._idle if kind[0] in addresses], reason)

    def keep_servers(self, addresses: Collection[str]) -> None:
        """End the connections to every server that is not in ``addresses``: those in use once they are given back.

        bounded: a session that uses one has ``backend_reply_seconds`` to give it back.
        """
        for connection in self._in_use:
            if connection.address in addresses:
                connection.orphaned_at = math.inf
            else:
                connection.orphaned_at = min(connection.orphaned_at, self._now())
        self._end_idle_at([kind for kind in self._idle if kind[0] not in addresses], LEFT_THE_TABLE)
        for address in self._unreachable.keys() - set(addresses):
            del self._unreachable[address]

    def reset(self, reason: str) -> None:
        """End every connection: the proxy goes on under another name."""
        for connection in list(self._in_use):
            self.discard(connection, reason)
        self.keep_servers(())

    # -- time ----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Close connections whose replies are overdue, or that were idle for too long; called a few times a second."""
        given_up = self._now() - self._settings.backend_reply_seconds
        for connection in list(self._in_use):
            connection.backend.check_time()
            if connection.orphaned_at <= given_up:
                self.discard(connection, LEFT_THE_TABLE)
        late = self._now() - IDLE_SECONDS
        for kind, idle in list(self._idle.items()):
            while idle and idle[0].idle_since <= late:
                idle.popleft().backend.close("was idle")
            for connection in [connection for connection in idle if connection.lost]:
                idle.remove(connection)
                connection.backend.close()
            if not idle:
                del self._idle[kind]

    def _now(self) -> float:
        return self._loop.event_loop.time()

    def _longest_idle(self) -> OwnConnection | None:
        first = [idle[0] for idle in self._idle.values() if idle]
        return min(first, key=lambda connection: connection.idle_since, default=None)

    def _end_idle_at(self, kinds: Collection[Kind], reason: str) -> None:
        for kind in kinds:
            for connection in self._idle.pop(kind):
                connection.backend.close(reason)

    def _end_idle(self, connection: OwnConnection) -> None:
        self._idle[connection.kind].remove(connection)
        connection.backend.close("was idle")

    @property
    def idle(self) -> int:
        """The number of connections that are not in use."""
        return sum(map(len, self._idle.values()))

    @property
    def in_use(self) -> int:
        """The number of connections that sessions use."""
        return len(self._in_use)

    @property
    def in_flight(self) -> int:
        """The number of replies outstanding."""
        return sum(connection.backend.queued for connection in self._in_use)

    def __len__(self) -> int:
        return self.in_use + self.idle
