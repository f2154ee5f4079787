"""Clients that do what others do not: they are in the middle of something while their proxy drains, or read from
replicas."""

import asyncio
from typing import Self

from tests.integration.cluster.harness import LIMIT, plain_client


class Talk:
    """A bare connection, spoken to by lines."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, line: str) -> bytes:
        """Send a line, and take one."""
        self.writer.write(line.encode() + b"\r\n")
        async with asyncio.timeout(LIMIT):
            return await self.reader.readline()

    async def ended(self) -> bytes:
        """All that comes until the other side ends the connection."""
        async with asyncio.timeout(LIMIT):
            return await self.reader.read()


class Amid:
    """Three clients of one proxy: one in a transaction, one that blocks, one that has sent half of a request."""

    def __init__(self, address: str) -> None:
        self.multi, self.blocked, self.part = Talk(address), Talk(address), Talk(address)

    async def __aenter__(self) -> Self:
        for talk in (self.multi, self.blocked, self.part):
            await talk.__aenter__()
        assert await self.multi.ask("MULTI") == b"+OK\r\n"
        assert await self.multi.ask("INCR multi") == b"+QUEUED\r\n"
        assert await self.blocked.ask("CLIENT SETNAME blocked") == b"+OK\r\n"
        self.blocked.writer.write(b"BLPOP nothing 0\r\n")
        self.part.writer.write(b"*2\r\n$3\r\nGET\r\n$1\r\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        for talk in (self.multi, self.blocked, self.part):
            await talk.__aexit__()

    async def come_to_their_ends(self) -> None:
        """Requests under way are answered, and then the connections end."""
        self.part.writer.write(b"k\r\n")
        assert await self.part.ended() == b"$-1\r\n"
        assert await self.multi.ask("EXEC") == b"*1\r\n"
        assert (await self.multi.ended()).startswith(b":")


class Reader:
    """Reads a key from replicas, where there are any that may be read, again and again inside the block."""

    def __init__(self, address: str, key: str) -> None:
        self.seen: set[str] = set()
        self._address = address
        self._key = key
        self._ending = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        await self._task

    async def _read(self) -> None:
        async with plain_client(self._address, single_connection_client=True) as client:
            await client.execute_command("READONLY")
            while not self._ending:
                self.seen.add(str((await client.get(self._key)).decode()))
                await asyncio.sleep(0.005)
