"""A Sentinel's link: how long topom waits for an answer."""

import asyncio

import pytest

from slots.access import ServerAccess
from topom.masters.sentinels.link import SentinelLink

SAVING_SECONDS = 2.0
"""A Sentinel was seen to flush its file for so long while others wrote to the same disk."""


@pytest.mark.long
async def test_a_sentinel_that_saves_its_file_is_waited_for() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sent := await reader.read(4096):
            asked.append(sent)
            if b"REMOVE" in sent:
                await asyncio.sleep(SAVING_SECONDS)
            writer.write(b"+OK\r\n" * sent.count(b"*"))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    link = SentinelLink(f"{host}:{port}", ServerAccess())
    try:
        await link.forget("group-1")
        assert b"REMOVE" in asked[-1]
    finally:
        await link.close()
        server.close()
