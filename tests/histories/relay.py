"""A TCP relay whose links can be cut and made to stand still: a network that fails.

Data that is held up is not lost. It arrives later, also if its sender has closed the connection by then, as packets do.
bounded: for each connection a relay holds the data of one read, and the systems' socket buffers.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Self

from slotferry.processes import free_ports

CHUNK_BYTES = 256 * 1024
CONNECT_SECONDS = 2.0
HOST = "127.0.0.1"
CATCHING_SECONDS = 0.6
"""For so long, data of several connections may be caught."""
PSYNC = b"PSYNC"
"""In what a follower of a replication stream sends."""
LISTED = b" addr="
"""Before the address of each connection in ``CLIENT LIST``."""


class Hold:
    """Something that holds up connections until it is over.

    Args:
        requests: whether it holds requests up, and not only replies.
        loses: whether a connection ends, instead, when a reply comes over it. The reply is lost.
    """

    def __init__(self, requests: bool, loses: bool = False) -> None:
        self.requests = requests
        self.loses = loses
        self._over = asyncio.Event()

    async def wait(self) -> None:
        """Wait until it is over."""
        await self._over.wait()

    def end(self) -> None:
        """It is over; harmless when it was before."""
        self._over.set()

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return self._over.is_set()


class KeysHold(Hold):
    """Holds up the first connections over which something is sent, such as keys that move.

    Data that is sent later over other connections is not held up and overtakes it.

    Args:
        requests: whether it holds up what is sent, and not only the answer to it.
        marks: what is sent has to contain one of these.
        names: the name of some key in it has to contain this.
        catching: for how many seconds after the first one.
        until: bytes that end it once they have passed to the same server; empty for no such end.
        loses: as of :class:`Hold`.
    """

    def __init__(
        self,
        requests: bool,
        marks: Sequence[bytes],
        names: bytes = b"",
        until: bytes = b"",
        catching: float = CATCHING_SECONDS,
        loses: bool = False,
    ) -> None:
        super().__init__(requests, loses)
        self._marks = marks
        self._names = names
        self._until_passed = until
        self._catching = catching
        self.later = bool(until)
        """Whether it also holds up connections that are yet to come. Then no process renews the permit meanwhile."""
        self.caught = asyncio.Event()
        """Set when the first connection was caught."""
        self._until = math.inf
        self._link: object = None

    def takes(self, data: bytes, link: object = None) -> bool:
        """Whether a connection of a link is to be held up over which ``data`` are sent."""
        now = time.monotonic()
        if self.over or now > self._until or self._names not in data:
            return False
        if not any(mark in data for mark in self._marks):
            return False
        if not self.caught.is_set():
            self.caught.set()
            self._until = now + self._catching
            self._link = link
        return True

    def passed(self, data: bytes, link: object) -> None:
        """Hear what has passed over a link."""
        if link is self._link and self._until_passed and self._until_passed in data:
            self.end()


Holds = list[Hold]
"""What holds up one connection."""


class Relay:
    """Listens on a free port of the loopback address and passes everything on to one address.

    Args:
        target: ``host:port`` of the process to reach.
    """

    def __init__(self, target: str) -> None:
        self._port = free_ports(1)[0]
        self._target = target
        self._server: asyncio.Server | None = None
        self._links: dict[asyncio.Task[None], Holds] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._later: Holds = []
        """What holds up connections that are yet to come."""
        self._catching: list[KeysHold] = []
        self._followers: set[int] = set()
        self._far_ends: dict[bytes, bytes] = {}
        """Of followers: the end that the target sees, and the one that the follower itself has."""
        self.late_seconds = 0.0
        """How late a replication stream is: what comes over it is passed on so long after it was read."""

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        return f"{HOST}:{self._port}"

    async def accept(self) -> Self:
        """Let connect, until :meth:`refuse`."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, HOST, self._port)
        return self

    async def refuse(self) -> None:
        """Refuse new connections until :meth:`accept`. Existing connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """Refuse, and end every connection."""
        await self.refuse()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def break_all(self) -> None:
        """End every connection at once."""
        for writer in self._writers:
            writer.transport.abort()

    def hold(self, *, requests: bool = True, later: bool = True) -> Hold:
        """Pass no replies on until the hold is over; it may be one of several.

        Args:
            requests: nor any requests.
            later: also not of connections that are yet to come.
        """
        hold = Hold(requests)
        for holds in self._links.values():
            holds.append(hold)
        if later:
            self._later = [*(it for it in self._later if not it.over), hold]
        return hold

    def catch(self, hold: KeysHold) -> None:
        """Let a hold take what it is meant for."""
        self._catching = [*(it for it in self._catching if not it.over), hold]

    def release(self) -> None:
        """End every hold."""
        self.late_seconds = 0.0
        for holds in (self._catching, self._later, *self._links.values()):
            for hold in holds:
                hold.end()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        directions: list[asyncio.Task[None]] = []
        seen = b""
        holds = self._links[task] = list(self._later)
        try:
            host, _, port = self._target.rpartition(":")
            async with asyncio.timeout(CONNECT_SECONDS):
                answers, onward = await asyncio.open_connection(host, int(port))
            self._writers.add(onward)
            seen = _address(onward, "sockname")
            ends = seen, _address(writer, "peername")
            directions = [
                asyncio.create_task(self._pass_on(reader, onward, holds, ends, requests=True)),
                asyncio.create_task(self._pass_on(answers, writer, holds, ends, requests=False)),
            ]
            # If one side closes the connection, it is closed for both.
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except OSError:  # no process listens; a timeout is an OSError as well
            pass
        finally:
            for direction in directions:
                direction.cancel()
            for one in (writer, onward):
                if one is not None:
                    self._writers.discard(one)
                    one.close()
            self._followers.discard(id(holds))
            self._far_ends.pop(seen, None)
            del self._links[task]

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        holds: Holds,
        ends: tuple[bytes, bytes],
        *,
        requests: bool,
    ) -> None:
        """Copy until the end; the end, too, waits while it is held up."""
        try:
            data = b"first"
            while data:
                data = await reader.read(CHUNK_BYTES)
                if not requests and any(it.loses and not it.over for it in holds):
                    return
                if not requests and self.late_seconds and id(holds) in self._followers:
                    await asyncio.sleep(self.late_seconds)
                if requests:
                    if PSYNC in data:
                        self._followers.add(id(holds))
                        self._far_ends[ends[0]] = ends[1]
                    caught = [it for it in self._catching if it.takes(data, self)]
                    holds += caught
                    self._later += [it for it in caught if it.later]
                while held := [it for it in holds if not it.over and (it.requests or not requests)]:
                    await held[0].wait()
                holds[:] = [it for it in holds if not it.over]
                if not requests and id(holds) not in self._followers:
                    data = self._without_relay(data)
                writer.write(data)
                if requests:
                    for hold in self._catching:
                        hold.passed(data, self)
                await writer.drain()
        except OSError:
            pass

    def _without_relay(self, data: bytes) -> bytes:
        """In a list of clients, followers have their own addresses: a copy follows a replica only if both ends of its
        link to its master name one connection."""
        if LISTED in data:
            for seen, own in self._far_ends.items():
                if len(seen) == len(own):  # the list's length was sent before it
                    data = data.replace(LISTED + seen + b" ", LISTED + own + b" ")
        return data


def _address(writer: asyncio.StreamWriter, end: str) -> bytes:
    host, port = writer.get_extra_info(end)[:2]
    return f"{host}:{port}".encode()
