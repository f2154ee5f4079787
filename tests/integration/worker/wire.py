"""Bare connections, for tests that compare every byte."""

import asyncio
import itertools
from contextlib import suppress
from types import TracebackType
from typing import Self

from proxy.engine.backend import command

LIMIT = 60.0

_marks = itertools.count(1)


class Wire:
    """One connection, to the proxy or to a server."""

    def __init__(self, address: str, protocol: int = 2) -> None:
        self._address = address
        self.protocol = protocol

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=2**26)
        if self.protocol == 3:
            await self.say("HELLO", 3)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        if not self.writer.transport.get_write_buffer_size():
            # The socket is closed in the loop's next round. What follows is about a client that has left.
            with suppress(OSError):
                await self.writer.wait_closed()

    def send(self, *words: bytes | str | int) -> None:
        """Send a request."""
        self.writer.write(command(words))

    async def say(self, *words: bytes | str | int) -> bytes:
        """Send a request; everything that comes up to the reply to a PING sent after it, which is left out."""
        self.send(*words)
        return await self.heard()

    async def heard(self) -> bytes:
        """Everything that comes up to the reply to a PING sent now, which is left out."""
        mark = b"mark-%08d" % next(_marks)
        self.send("PING", mark)
        end = b"$%d\r\n%b\r\n" % (len(mark), mark)
        async with asyncio.timeout(LIMIT):
            found = await self.reader.readuntil(end)
        # A RESP2 connection with subscriptions gets an array.
        return found.removesuffix(end).removesuffix(b"*2\r\n$4\r\npong\r\n")

    async def read(self, size: int) -> bytes:
        """So many bytes."""
        async with asyncio.timeout(LIMIT):
            return await self.reader.readexactly(size)

    async def ended(self) -> bytes:
        """What comes until the other side closes the connection."""
        async with asyncio.timeout(LIMIT):
            return await self.reader.read()
