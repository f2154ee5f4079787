"""A TCP relay that breaks links on purpose: between any two of a cluster's processes, for tests.

It listens on a port of its own and passes bytes on to a server. A process that gets the relay's address instead of the
server's reaches the server through it. A *fault* cuts connections, holds bytes back in one direction or both, or delays
them, for all peers or some of them. Bytes and ends of connections are never reordered, as in TCP. Bytes that are held
back and let go later are the delayed packet, and the close behind them arrives after them.

The first bytes of a peer show which one it is, see :class:`Peer`. The cluster's processes all reach a server by the one
address that its group has, so one relay has the bytes of all of them.

**bounded**: a direction holds at most :data:`HELD_BYTES`; beyond, the sender's socket fills up, as with a dead link.
"""

import asyncio
import math
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

import hiredis

from slotferry.processes import free_ports
from slots.connections import ADMIN, PREFIX

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024
HELD_BYTES = 1024 * 1024
"""What one direction of a connection holds at most."""
CONNECT_SECONDS = 5.0
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: discard what is unsent, and send RST


class Direction(Enum):
    """Which way bytes go."""

    TO_SERVER = "to the server"
    TO_PEER = "to the peer"


BOTH_WAYS = frozenset(Direction)


@dataclass
class Peer:
    """The process that has connected, as far as its first commands say.

    Attributes:
        name: what it called itself with CLIENT SETNAME, or in HELLO; "" for none.
        first: its first command that is neither HELLO nor AUTH, in capitals; "" until there is one.
    """

    name: str = ""
    first: str = ""
    known: bool = False
    _reader: hiredis.Reader = field(default_factory=hiredis.Reader)

    def sent(self, data: bytes) -> None:
        """Learn from what it sends, until it is known."""
        if self.known:
            return
        self._reader.feed(data)
        try:
            while not self.known and isinstance(command := self._reader.gets(), list):
                self._look_at([bytes(part) for part in command])
        except (hiredis.ProtocolError, TypeError):
            self.known = True  # it speaks something else than Redis's protocol

    def _look_at(self, command: list[bytes]) -> None:
        words = [part.upper() for part in command[:2]]
        if words == [b"CLIENT", b"SETNAME"]:
            self.name = command[2].decode()
        elif words[0] == b"HELLO":
            upper = [part.upper() for part in command]
            if b"SETNAME" in upper:
                self.name = command[upper.index(b"SETNAME") + 1].decode()
            elif not self.name:
                return
        elif words[0] == b"AUTH":
            return
        else:
            self.first = words[0].decode()
        self.known = True


Matches = Callable[[Peer], bool]


def everyone(peer: Peer) -> bool:
    """Every peer."""
    return True


def proxies(peer: Peer) -> bool:
    """The workers and supervisors of every proxy."""
    return peer.name.startswith((f"{PREFIX}.proxy.", ADMIN))


def control_plane(peer: Peer) -> bool:
    """topom, and the migrator that runs in it."""
    return peer.name.startswith((f"{PREFIX}.topom", f"{PREFIX}.migrator"))


@dataclass(eq=False)
class Fault:
    """Something that is wrong with the link, for the peers that it is for, until :meth:`mend`."""

    relay: "BreakingRelay"
    matches: Matches
    held: frozenset[Direction] = frozenset()
    delay_seconds: float = 0.0
    refused: bool = False
    only: frozenset["_Connection"] | None = None
    """The connections that it is for; None for all, also new ones."""
    containing: bytes = b""
    """A chunk of bytes that contains this is held back; what comes after it waits too."""
    met: int = 0
    """How many connections it has ended, or chunks of bytes it has held back."""
    caught: set["_Connection"] = field(default_factory=set)
    """Those of which it has held something back."""

    def mend(self) -> None:
        """The link is well again as far as this is concerned; what was held back goes on its way."""
        self.relay._mend(self)

    def _is_for(self, connection: "_Connection") -> bool:
        return connection in self.only if self.only is not None else self.matches(connection.peer)


class BreakingRelay:
    """Relays to ``127.0.0.1:port`` for as long as the ``async with`` block runs; all of it on one event loop."""

    def __init__(self, port: int) -> None:
        """``port``: of the server. It need not be there yet, nor all the time."""
        self.port = port
        self._own_port = free_ports(1, HOST)[0]
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._faults: list[Fault] = []
        self._changed = asyncio.Event()

    @property
    def address(self) -> str:
        """``host:port`` to reach the server by."""
        return f"{HOST}:{self._own_port}"

    @property
    def peers(self) -> list[Peer]:
        """Those that are connected."""
        return [connection.peer for connection in self._connections]

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def listen(self) -> None:
        """Accept connections, again after :meth:`refuse`."""
        self._server = await asyncio.start_server(self._accept, HOST, self._own_port, limit=CHUNK_BYTES)

    def refuse(self) -> None:
        """Accept no more connections, as if nothing listened; existing connections go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """End everything."""
        self.refuse()
        for connection in list(self._connections):
            connection.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, matches: Matches = everyone) -> Fault:
        """Reset the connections of these peers on both sides, and new ones as soon as they say who they are."""
        fault = self._add(Fault(self, matches, refused=True))
        for connection in list(self._connections):
            if fault._is_for(connection):
                fault.met += 1
                connection.reset()
        return fault

    def hold(
        self,
        matches: Matches = everyone,
        directions: frozenset[Direction] = BOTH_WAYS,
        *,
        only_present: bool = False,
        containing: bytes = b"",
    ) -> Fault:
        """Pass nothing on in these directions while connections stay open, until the fault is mended.

        Args:
            matches: the peers that it is for.
            directions: those that stand still.
            only_present: whether new connections pass.
            containing: what has to be in the first bytes that are held; a few bytes, which come in one piece.
        """
        only = frozenset(c for c in self._connections if matches(c.peer)) if only_present else None
        return self._add(Fault(self, matches, held=directions, only=only, containing=containing))

    def delay(self, seconds: float, matches: Matches = everyone) -> Fault:
        """Pass everything on so much later, in both directions."""
        return self._add(Fault(self, matches, delay_seconds=seconds))

    def restrict_to_present(self, fault: Fault) -> None:
        """From now on ``fault`` is for the connections that there are, and new ones pass."""
        fault.only = frozenset(c for c in self._connections if fault._is_for(c))
        self._pulse()

    def restrict_to_caught(self, fault: Fault) -> None:
        """From now on ``fault`` is for the connections of which it has held something back, and all others pass."""
        fault.only = frozenset(fault.caught & self._connections)
        self._pulse()

    def count_present(self, fault: Fault) -> int:
        """How many of the connections that ``fault`` is or was for have not ended yet."""
        return sum(fault._is_for(connection) for connection in self._connections)

    def mend(self) -> None:
        """End every fault."""
        for fault in list(self._faults):
            fault.mend()

    def _mend(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)
            self._pulse()

    def _add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        self._pulse()
        return fault

    def _pulse(self) -> None:
        former, self._changed = self._changed, asyncio.Event()
        former.set()

    def _refusing(self, connection: "_Connection") -> Fault | None:
        return next((fault for fault in self._faults if fault.refused and fault._is_for(connection)), None)

    def _wait(self, connection: "_Connection", direction: Direction, since: float, data: bytes) -> float:
        """Seconds that bytes which came at ``since`` have yet to wait, as things are now."""
        until = since
        for fault in self._faults:
            if fault._is_for(connection):
                if direction in fault.held and fault.containing in data:
                    return math.inf
                until = max(until, since + fault.delay_seconds)
        return until - asyncio.get_running_loop().time()

    def _count_held(self, connection: "_Connection", direction: Direction, data: bytes) -> None:
        for fault in self._faults:
            if direction in fault.held and fault._is_for(connection) and fault.containing in data:
                fault.met += 1
                fault.caught.add(connection)

    async def _passing(self, connection: "_Connection", direction: Direction, since: float, data: bytes) -> None:
        """Wait until bytes may pass."""
        if self._wait(connection, direction, since, data) == math.inf:
            self._count_held(connection, direction, data)
        while (seconds := self._wait(connection, direction, since, data)) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if seconds == math.inf else seconds):
                    await self._changed.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, writer)
        self._connections.add(connection)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await connection.relay(reader)
        finally:
            self._connections.discard(connection)
            self._tasks.discard(task)


class _Connection:
    """One peer's connection, and ours to the server for it."""

    def __init__(self, relay: BreakingRelay, peer_writer: asyncio.StreamWriter) -> None:
        self.peer = Peer()
        self._relay = relay
        self._writers = [peer_writer]

    async def relay(self, peer_reader: asyncio.StreamReader) -> None:
        """Pass on until both sides have ended."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(HOST, self._relay.port, limit=CHUNK_BYTES)
        except OSError:
            self.reset()
            return
        self._writers.append(writer)
        try:
            async with asyncio.TaskGroup() as group:
                for pipe in (
                    _Pipe(self._relay, self, Direction.TO_SERVER, peer_reader, writer),
                    _Pipe(self._relay, self, Direction.TO_PEER, reader, self._writers[0]),
                ):
                    group.create_task(pipe.read())
                    group.create_task(pipe.write())
        finally:
            for one in self._writers:
                one.close()

    def reset(self) -> None:
        """End both sides with RST."""
        for writer in self._writers:
            found = writer.get_extra_info("socket")
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            writer.transport.abort()


class _Pipe:
    """One direction of a connection: what was read and may not go on yet, with the time at which it came."""

    def __init__(
        self,
        relay: BreakingRelay,
        connection: _Connection,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._relay = relay
        self._connection = connection
        self._direction = direction
        self._reader = reader
        self._writer = writer
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._turn = asyncio.Condition()

    async def read(self) -> None:
        """Take what comes, up to the limit; an empty chunk stands for the end."""
        loop = asyncio.get_running_loop()
        data = b"?"
        while data:
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            if self._direction is Direction.TO_SERVER:
                self._connection.peer.sent(data)
            if (fault := self._relay._refusing(self._connection)) is not None and data:
                fault.met += 1
                self._connection.reset()
            async with self._turn:
                self._waiting.append((loop.time(), data))
                self._size += len(data)
                self._turn.notify_all()
                await self._turn.wait_for(lambda: self._size < HELD_BYTES)

    async def write(self) -> None:
        """Pass it on as the faults allow, and close behind the end. Bytes that no peer takes are dropped."""
        gone = False
        while True:
            async with self._turn:
                await self._turn.wait_for(lambda: self._waiting)
                since, data = self._waiting[0]
            await self._relay._passing(self._connection, self._direction, since, data)
            if not data:
                self._writer.close()
                return
            if not gone:
                try:
                    self._writer.write(data)
                    await self._writer.drain()
                except (OSError, RuntimeError):
                    gone = True
            async with self._turn:
                self._waiting.popleft()
                self._size -= len(data)
                self._turn.notify_all()
