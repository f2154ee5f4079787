"""Bare connections that read one reply at a time, so that what is said within MULTI can be compared byte by byte."""

import asyncio
from collections.abc import Iterable

from proxy.engine.backend import command
from tests.integration.worker.wire import LIMIT, Wire

Request = tuple[bytes | str | int, ...]


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """One reply as it came."""
    line = await reader.readline()
    kind, rest = line[:1], line[1:-2]
    if kind in b"$=!" and rest != b"-1":
        return line + await reader.readexactly(int(rest) + 2)
    if kind in b"*~>%" and rest != b"-1":
        for _ in range(int(rest) * (2 if kind == b"%" else 1)):
            line += await read_reply(reader)
    return line


class Talk(Wire):
    """One connection, to the proxy or to a server."""

    async def ask(self, *words: bytes | str | int) -> bytes:
        """Send a request; its reply."""
        self.send(*words)
        return await self.reply()

    async def reply(self) -> bytes:
        """The next reply."""
        async with asyncio.timeout(LIMIT):
            return await read_reply(self.reader)


async def converse(address: str, requests: Iterable[Request], protocol: int = 2) -> list[bytes]:
    """The replies to requests that are sent one by one."""
    async with Talk(address, protocol) as talk:
        return [await talk.ask(*request) for request in requests]


async def converse_at_once(address: str, requests: Iterable[Request], protocol: int = 2) -> list[bytes]:
    """The replies to requests that are sent in one piece."""
    async with Talk(address, protocol) as talk:
        sent = [command(request) for request in requests]
        talk.writer.write(b"".join(sent))
        return [await talk.reply() for _ in sent]
