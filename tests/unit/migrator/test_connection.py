"""Limits and errors of a connection."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
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
    assert caught.value.refusal is Refusal.AUTHENTICATION
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


async def test_what_has_to_hold_is_looked_at_when_it_is_a_commands_turn(scripted: Start) -> None:
    """given a command that waits for another one, it is not sent if its condition no longer holds."""
    holds = True

    def answer(command: list[bytes]) -> bytes:
        nonlocal holds
        holds = command != [b"FIRST"]
        return b"+OK\r\n"

    def require() -> None:
        if not holds:
            raise SourceUnavailable("it is another one by now")

    server = await scripted(answer)
    connection = await connect(server.address)
    first = asyncio.create_task(connection.send(pack("FIRST"), 1))
    with pytest.raises(SourceUnavailable, match="another one by now"):
        await asyncio.gather(first, connection.send(pack("SECOND"), 1, require=require))
    await connection.call("PING")
    connection.close()
    assert server.commands[-2:] == [[b"FIRST"], [b"PING"]]


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


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_command_may_come_in_parts(scripted: Start) -> None:
    server = await scripted(lambda command: b"+OK\r\n")
    connection = await connect(server.address)
    data = b"x" * 3_000_000

    reply = await connection.stream(parts_of(b"*2\r\n$4\r\nECHO\r\n$3000000\r\n", data[:1], data[1:], b"\r\n"))

    assert reply == b"OK"
    assert server.commands[-1] == [b"ECHO", data]
    assert await connection.call("PING") == b"OK"


async def test_an_error_after_all_parts_is_a_reply(scripted: Start) -> None:
    server = await scripted(lambda command: b"-ERR no\r\n" if command[0] == b"ECHO" else b"+OK\r\n")
    connection = await connect(server.address)
    assert str(await connection.stream(parts_of(b"*1\r\n$4\r\nEC", b"HO\r\n"))) == "ERR no"
    assert await connection.call("PING") == b"OK"


async def test_who_breaks_off_in_the_middle_closes_the_connection(scripted: Start) -> None:
    server = await scripted(lambda command: b"+OK\r\n")
    connection = await connect(server.address)

    async def broken() -> AsyncIterator[bytes]:
        yield b"*2\r\n$4\r\nECHO\r\n$300\r\nxyz"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await connection.stream(broken())
    with pytest.raises(SourceUnavailable, match="in the middle of a command"):
        await connection.call("PING")
    assert len(server.commands) == 1


async def test_a_server_that_answers_in_the_middle_refuses() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"a-name\r\n")
        writer.write(b"+OK\r\n")
        await reader.readuntil(b"$999\r\n")
        writer.write(b"-ERR Protocol error: invalid bulk length\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    async def endless() -> AsyncIterator[bytes]:
        yield b"*2\r\n$4\r\nECHO\r\n$999\r\n"
        while True:
            yield b""
            await asyncio.sleep(0.001)

    with pytest.raises(SourceRefused, match="invalid bulk length"):
        await asyncio.wait_for(connection.stream(endless()), 30)
    with pytest.raises(SourceUnavailable):
        await connection.call("PING")
    server.close()


async def test_a_server_that_takes_no_bytes_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"a-name\r\n")
        writer.write(b"+OK\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while asked < 200:
            asked += 1
            yield b"x" * 1_000_000

    with pytest.raises(SourceUnavailable, match="takes no bytes"):
        await asyncio.wait_for(connection.stream(endless()), 30)
    assert asked < 100
    server.close()
