"""Limits and errors of a connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from migrator import connection as module
from migrator.connection import Connection, Timeouts, pack, split_address
from migrator.errors import Refusal, SourceRefused, SourceUnavailable
from slots.access import ServerAccess

QUICK = Timeouts(connect_seconds=0.3, reply_seconds=0.2)
Start = Callable[[Callable[[list[bytes]], bytes | None]], Awaitable[Any]]


async def connect(address: str, password: str | None = None) -> Connection:
    return await Connection.open(
        address,
        name="a-name",
        access=ServerAccess(password or ""),
        unavailable=SourceUnavailable,
        refused=SourceRefused,
        timeouts=QUICK,
    )


@pytest.mark.parametrize(
    ("address", "parts"),
    [("h:1", ("h", 1)), ("127.0.0.1:6379", ("127.0.0.1", 6379)), ("[::1]:7", ("::1", 7)), ("::1:7", ("::1", 7))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "h", "h:", ":1", "h:x"])
def test_wrong_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        split_address(address)


def test_packing() -> None:
    assert pack("KEYS", b"", 12) == b"*3\r\n$4\r\nKEYS\r\n$0\r\n\r\n$2\r\n12\r\n"


async def test_password_and_name_come_before_anything_else(scripted: Start) -> None:
    server = await scripted(lambda command: b"+OK\r\n")
    connection = await connect(server.address, "secret")
    await connection.call("PING")
    connection.close()
    assert server.commands == [[b"AUTH", b"secret"], [b"CLIENT", b"SETNAME", b"a-name"], [b"PING"]]


async def test_a_wrong_password_is_a_refusal(scripted: Start) -> None:
    server = await scripted(lambda command: b"-WRONGPASS invalid\r\n")
    with pytest.raises(SourceRefused) as caught:
        await connect(server.address, "secret")
    assert caught.value.reason is Refusal.AUTHENTICATION
    assert "secret" not in str(caught.value)


async def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(SourceUnavailable, match=f"127.0.0.1:{port} cannot be connected to"):
        await connect(f"127.0.0.1:{port}")


async def test_a_server_that_accepts_and_is_silent(scripted: Start) -> None:
    server = await scripted(lambda command: b"")
    with pytest.raises(SourceUnavailable, match=r"no reply within 0\.3 s"):
        await connect(server.address)


async def test_a_reply_that_does_not_come_ends_the_connection(scripted: Start) -> None:
    server = await scripted(lambda command: b"" if command[0] == b"SLOW" else b"+OK\r\n")
    connection = await connect(server.address)
    with pytest.raises(SourceUnavailable, match=r"no reply within 0\.2 s"):
        await connection.call("SLOW")
    with pytest.raises(SourceUnavailable, match="no reply within"):
        await connection.call("PING")


async def test_a_server_that_closes(scripted: Start) -> None:
    server = await scripted(lambda command: None if command[0] == b"PING" else b"+OK\r\n")
    connection = await connect(server.address)
    with pytest.raises(SourceUnavailable, match="closed the connection"):
        await connection.call("PING")


async def test_what_is_no_redis(scripted: Start) -> None:
    server = await scripted(lambda command: b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(SourceUnavailable, match="does not speak the Redis protocol"):
        await connect(server.address)


async def test_a_reply_without_end(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLY_BYTES", 1000)
    server = await scripted(lambda command: b"$2000\r\n" + b"x" * 2000 if command[0] == b"GET" else b"+OK\r\n")
    connection = await connect(server.address)
    with pytest.raises(SourceUnavailable, match="larger than 1000 bytes"):
        await connection.call("GET", "key")


async def test_a_pipeline_gives_errors_in_their_places(scripted: Start) -> None:
    server = await scripted(lambda command: b"-ERR no\r\n" if command[0] == b"B" else b"+OK\r\n")
    connection = await connect(server.address)
    replies = await connection.send(b"".join(pack(name) for name in "ABC"), 3)
    connection.close()
    assert [str(reply) if isinstance(reply, Exception) else reply for reply in replies] == [b"OK", "ERR no", b"OK"]


async def test_who_is_cancelled_leaves_a_connection_that_can_be_waited_for(scripted: Start) -> None:
    server = await scripted(lambda command: b"" if command[0] == b"SLOW" else b"+OK\r\n")
    connection = await connect(server.address)
    call = asyncio.create_task(connection.call("SLOW"))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert not await connection.quiet(0.05)
    connection.close()
    assert await connection.quiet(0.05)
