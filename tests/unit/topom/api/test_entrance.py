"""Connections to the API whose clients read their answers slowly, or not at all."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from tests.unit.topom.operators import eventually
from topom.api import entrance, guesses
from topom.api.callers import Callers
from topom.api.entrance import Entrance
from topom.term.tokens import Tokens

TOKEN = "the-token-of-the-operator"
HEAD = f"GET {{path}} HTTP/1.1\r\nHost: topom\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
LARGE = 4 * 1024 * 1024
"""Bytes; far more than the buffers of two sockets hold."""
BUFFER = 64 * 1024
LIMIT_SECONDS = 0.3


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    """A large answer; it has an end, or none."""
    length = [(b"content-length", b"%d" % LARGE)]
    await send({"type": "http.response.start", "status": 200, "headers": length if scope["path"] == "/whole" else []})
    if scope["path"] == "/quiet":
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await asyncio.sleep(4 * LIMIT_SECONDS)
        await send({"type": "http.response.body", "body": b"y"})
    elif scope["path"] == "/stream":
        for _ in range(16 * LARGE // BUFFER):
            await send({"type": "http.response.body", "body": b"x" * BUFFER, "more_body": True})
    else:
        await send({"type": "http.response.body", "body": b"x" * LARGE, "more_body": scope["path"] == "/broken"})


class Topom:
    """A server with an entrance."""

    def __init__(self) -> None:
        self.entrance = Entrance(10_000, Callers(Tokens(TOKEN)))
        config = uvicorn.Config(
            _answer, log_config=None, access_log=False, lifespan="off", http=self.entrance.protocol()
        )
        self.server = uvicorn.Server(config)
        self.listening = socket.create_server(("127.0.0.1", 0))
        # Else the system takes most of the answer at once. Accepted connections have the same.
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)

    async def ask(self, path: str) -> socket.socket:
        """A connection that has asked for a path, and has read nothing."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, self.listening.getsockname())
        await loop.sock_sendall(connection, HEAD.format(path=path).encode())
        await eventually(lambda: self.connections == 1)
        return connection


@pytest.fixture
async def topom(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Topom]:
    monkeypatch.setattr(entrance, "HEAD_SECONDS", LIMIT_SECONDS)
    one = Topom()
    serving = asyncio.create_task(one.server.serve(sockets=[one.listening]))
    try:
        yield one
    finally:
        one.server.should_exit = True
        one.server.force_exit = True
        await serving


@pytest.mark.parametrize("path", ["/whole", "/broken"])
async def test_a_client_that_does_not_read_is_cut_off(topom: Topom, path: str) -> None:
    with await topom.ask(path):
        async with asyncio.timeout(60):
            while topom.connections:
                await asyncio.sleep(0.02)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
async def test_a_client_that_takes_nothing_more_of_a_stream_is_cut_off(
    topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has vanished looks the same to topom: nothing of what is sent arrives."""
    monkeypatch.setattr(entrance, "UNHEARD_SECONDS", LIMIT_SECONDS)
    with await topom.ask("/stream"):
        async with asyncio.timeout(20):
            while topom.connections:
                await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_client_that_reads_slowly_gets_all(topom: Topom) -> None:
    loop = asyncio.get_running_loop()
    with await topom.ask("/whole") as connection:
        came, began = 0, loop.time()
        async with asyncio.timeout(30):
            while came < LARGE:
                part = await loop.sock_recv(connection, BUFFER)
                assert part, f"the connection ended after {came} bytes"
                came += len(part)
                await asyncio.sleep(0.02)
        assert loop.time() - began > 3 * LIMIT_SECONDS


async def test_a_proven_client_may_wait_for_news(topom: Topom) -> None:
    loop = asyncio.get_running_loop()
    with await topom.ask("/quiet") as connection:
        came = b""
        async with asyncio.timeout(60):
            while not came.endswith(b"y\r\n0\r\n\r\n"):
                part = await loop.sock_recv(connection, 1000)
                assert part, came
                came += part


async def test_who_guesses_tokens_over_streams_is_told_to_stop(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "MOST_WRONG", 2)

    async def ask(token: str) -> bytes:
        port = topom.listening.getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(
            f"GET /stream HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{shown}\r\n".encode()
        )
        async with asyncio.timeout(60):
            status = await reader.readline()
        writer.close()
        return status.split()[1]

    assert [await ask("a-wrong-one") for _ in range(3)] == [b"403", b"403", b"429"]
    assert await ask("") == b"403"


@pytest.mark.parametrize("sent", [b"*1\r\n$4\r\nPING\r\n", b"*", b"*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n"])
async def test_a_redis_client_is_told_where_it_is(topom: Topom, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(*topom.listening.getsockname())
    writer.write(sent)
    assert await reader.read() == entrance.NOT_REDIS
    writer.close()
    await eventually(lambda: topom.connections == 0)


async def test_a_star_further_on_is_of_http(topom: Topom) -> None:
    reader, writer = await asyncio.open_connection(*topom.listening.getsockname())
    writer.write(b"GET /")
    await writer.drain()
    await eventually(lambda: topom.connections == 1)
    writer.write(b"* HTTP/1.1\r\nHost: topom\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    writer.close()
