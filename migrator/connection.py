"""A fast connection to one Redis server: each pipeline costs one write and one wait.

redis-py spends more time on a command than a server does. A migration sends few kinds of commands and many
of each, so it packs them itself and takes the replies as hiredis parses them.

**bounded**: connecting, every reply and the size of a reply have limits.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

import hiredis

from migrator.errors import MigrationError, Refused
from slots.access import ServerAccess
from slots.replies import Info, NotUnderstood, understood


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of waiting.

    Attributes:
        connect_seconds: to connect and log in.
        reply_seconds: for a reply.
        whole_seconds: for the reply to a step of a key that goes whole, of any size.
    """

    connect_seconds: float = 2.0
    reply_seconds: float = 10.0
    whole_seconds: float = 60.0


REPLY_BYTES = 768 * 1024 * 1024
"""The most bytes of all replies to one pipeline. One element of a big key can have 512 MB."""


def pack(*arguments: str | bytes | int) -> bytes:
    """A command in the form in which it is sent."""
    packed: bytes = hiredis.pack_command(arguments)  # type: ignore[arg-type]  # its stub says a tuple of one
    return packed


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` as its parts; the host of an IPv6 address may stand in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Connection(asyncio.Protocol):
    """Runs one command, or one pipeline of commands, at a time; other callers wait for their turn.

    Attributes:
        address: ``host:port`` of the server.
        name: the connection's name in CLIENT LIST.
        refused: the exception for an error reply.
        seconds: from sending the last command to its reply, without the wait for its turn.
    """

    def __init__(
        self, address: str, name: str, unavailable: type[MigrationError], refused: type[Refused], timeouts: Timeouts
    ) -> None:
        self.address = address
        self.name = name
        self.seconds = 0.0
        self._database = 0
        self._unavailable = unavailable
        self.refused = refused
        self._timeouts = timeouts
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._turn = asyncio.Lock()
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._replies: list[Any] = []
        self._owed = 0
        self._received = 0
        self._writable = asyncio.Event()  # whether the kernel has taken all that was written
        self._writable.set()
        self._lost = ""  # why the connection can no longer be used

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        name: str,
        access: ServerAccess,
        unavailable: type[MigrationError],
        refused: type[Refused],
        timeouts: Timeouts,
    ) -> Self:
        """Connect, authenticate and take a name, by which a successor finds and ends this connection.

        Raises:
            unavailable: no server answers there.
            refused: the server refuses the login.
        """
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        connection = cls(address, name, unavailable, refused, timeouts)
        try:
            async with asyncio.timeout(timeouts.connect_seconds):
                await loop.create_connection(lambda: connection, host, port, ssl=access.tls)
        except TimeoutError:
            raise unavailable(f"{address} does not accept a connection within {timeouts.connect_seconds} s") from None
        except OSError as error:
            raise unavailable(f"{address} cannot be connected to: {error}") from error
        try:
            if access.login:
                await connection.call(*access.login, limit=timeouts.connect_seconds)
            await connection.call("CLIENT", "SETNAME", name, limit=timeouts.connect_seconds)
        except BaseException:
            connection.close()
            raise
        return connection

    async def call(self, *arguments: str | bytes | int, limit: float | None = None) -> Any:
        """Send one command and give its reply. Raises ``refused`` for an error reply, and what :meth:`send` does."""
        (reply,) = await self.send(pack(*arguments), 1, limit)
        if isinstance(reply, hiredis.ReplyError):
            raise self.refusal(reply)
        return reply

    async def info(self, *sections: str) -> Info:
        """The server's reply to INFO. Raises as :meth:`call` and :meth:`understood` do."""
        reply = await self.call("INFO", *sections)
        with self.understood("INFO"):
            return Info.parse(reply)

    async def scan(self, cursor: bytes, count: int) -> tuple[bytes, list[bytes]]:
        """The next cursor of a SCAN and the keys that it found. Raises as :meth:`call` and :meth:`understood` do."""
        reply = await self.call("SCAN", cursor, "COUNT", count)
        with self.understood("SCAN"):
            following, keys = reply
            if not (isinstance(following, bytes) and following.isdigit() and isinstance(keys, list)):
                raise TypeError(f"{reply!r:.50} is no page of a SCAN")
            return following, keys

    @contextmanager
    def understood(self, command: str) -> Iterator[None]:
        """Code in this block reads a reply. Raises ``unavailable`` if the reply is not one that a Redis server
        gives."""
        try:
            with understood(command):
                yield
        except NotUnderstood as error:
            raise self._unavailable(f"{self.address}: {error}; look at what is running there") from error

    async def select(self, database: int) -> None:
        """Have the commands that follow run in ``database``. Raises as :meth:`call` does."""
        if database != self._database:
            await self.call("SELECT", database)
            self._database = database

    def refusal(self, reply: hiredis.ReplyError) -> MigrationError:
        """The exception for an error reply of this server."""
        return self.refused(self.address, str(reply))

    @property
    def reply_seconds(self) -> float:
        """How long to wait for replies, unless a call says otherwise."""
        return self._timeouts.reply_seconds

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """:meth:`call`, under the name that :class:`slots.connections.RedisClient` wants."""
        return await self.call(*args)

    async def send(
        self,
        commands: bytes,
        replies: int,
        limit: float | None = None,
        require: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        """Send packed commands and give their replies; an error reply is a :class:`hiredis.ReplyError` in the list.

        If the caller is cancelled, the replies are still owed; see :meth:`quiet`.

        Args:
            limit: seconds to wait for all replies; by default ``reply_seconds``.
            require: called when it is the commands' turn. If it raises, nothing is sent, and the error goes to the
                caller.

        Raises:
            unavailable: the connection is lost, or the replies do not come in time or are too large. Whether
                the commands ran is unknown, and the connection is closed.
        """
        async with self._turn:
            await self._unowed()
            require()
            transport, waiter = self._expect(replies)
            sent = time.monotonic()
            transport.write(commands)
            await self._replied(waiter, limit)
            self.seconds = time.monotonic() - sent
            return waiter.result()

    async def stream(self, parts: AsyncIterator[bytes]) -> Any:
        """Send one command whose bytes come in parts, and give its reply, which may be a :class:`hiredis.ReplyError`.

        A part is asked for once the kernel has taken the one before, so no more than one is held here. A break in the
        middle, by a cancellation or by an error of ``parts``, closes the connection.

        Raises:
            unavailable: as :meth:`send` does. The wait for the kernel has the same limit as the wait for the reply.
            refused: the server answers before it has all of the command; the connection is closed.
        """
        async with self._turn:
            await self._unowed()
            transport, waiter = self._expect(1)
            transport.set_write_buffer_limits(high=0)
            whole = False
            try:
                async for part in parts:
                    transport.write(part)
                    await self._drained()
                    if waiter.done():
                        break
                else:
                    whole = True
            finally:
                if not whole:
                    self._lose("given up in the middle of a command")
            sent = time.monotonic()
            await self._replied(waiter, None)
            self.seconds = time.monotonic() - sent
            (reply,) = waiter.result()
            if not whole:
                raise self.refused(self.address, str(reply))
            return reply

    async def _unowed(self) -> None:
        """Wait for what is owed to a caller that was cancelled. A server that owes it for too long is given up."""
        if not await self.quiet(self.reply_seconds):
            self._lose(f"no reply within {self.reply_seconds:g} s")

    def _expect(self, replies: int) -> tuple[asyncio.Transport, asyncio.Future[list[Any]]]:
        """The transport to write to, and the future for so many replies."""
        if self._lost or self._transport is None:
            raise self._unavailable(f"{self.address}: {self._lost or 'not connected'}")
        if self._waiter is not None:
            raise RuntimeError(f"the connection to {self.address} still owes replies to a cancelled caller")
        self._owed = replies
        self._received = 0
        self._replies = []
        self._waiter = asyncio.get_running_loop().create_future()
        return self._transport, self._waiter

    async def _replied(self, waiter: asyncio.Future[list[Any]], limit: float | None) -> None:
        seconds = self._timeouts.reply_seconds if limit is None else limit
        # Unlike asyncio.timeout, wait() leaves the future alone when this task is cancelled.
        await asyncio.wait((waiter,), timeout=seconds)
        if not waiter.done():
            self._lose(f"no reply within {seconds:g} s")

    async def _drained(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.reply_seconds):
                await self._writable.wait()
        except TimeoutError:
            self._lose(f"it takes no bytes for {self._timeouts.reply_seconds:g} s")
            raise self._unavailable(f"{self.address}: {self._lost}") from None

    async def quiet(self, limit: float) -> bool:
        """Wait until no reply is owed, for at most ``limit`` seconds; say whether that was reached."""
        if self._waiter is not None:
            await asyncio.wait((self._waiter,), timeout=limit)
        return self._waiter is None

    def close(self) -> None:
        """Close at once; nothing more is sent. The server may still run what it has received."""
        self._lose("closed")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        # uvloop's transport does not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def pause_writing(self) -> None:
        """The kernel has not taken all."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The kernel has taken all."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Bytes of replies."""
        self._received += len(data)
        if self._received > REPLY_BYTES:
            self._lose(f"a reply is larger than {REPLY_BYTES} bytes")
            return
        try:
            self._reader.feed(data)
            while self._owed:
                reply = self._reader.gets()
                if reply is False:
                    return
                self._replies.append(reply)
                self._owed -= 1
        except hiredis.ProtocolError as error:
            self._lose(f"does not speak the Redis protocol: {error}")
            return
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(self._replies)
        self._replies = []

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._lose(f"the connection is lost: {exc}" if exc else "the server closed the connection")

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._lost = why
        self._writable.set()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._unavailable(f"{self.address}: {self._lost}"))
            waiter.exception()  # a cancelled caller does not come back for it
        if self._transport is not None:
            self._transport.abort()
            self._transport = None


def checked(server: Connection, replies: list[Any]) -> list[Any]:
    """These replies of a server. Raises its ``refused`` for the first error reply among them."""
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise server.refusal(reply)
    return replies
