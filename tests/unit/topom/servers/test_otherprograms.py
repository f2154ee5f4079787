"""A program that speaks HTTP is told from a Redis server, and from what does not answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slotferry.redis_server import start_redis
from topom.servers import otherprograms
from topom.servers.otherprograms import speaks_http


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.fixture
async def web() -> AsyncIterator[str]:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_http_is_recognised(web: str) -> None:
    assert await speaks_http(web)


async def test_a_redis_server_is_none(tmp_path: Path) -> None:
    server = await start_redis("redis", tmp_path)
    try:
        assert not await speaks_http(server.address)
    finally:
        await server.stop()


async def test_what_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otherprograms, "SECONDS", 0.1)
    assert not await speaks_http("127.0.0.1:1")
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        assert not await speaks_http(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
