"""A connection to a server: how it is made if the server has a host name."""

import asyncio
import socket
from typing import Any

import pytest

from proxy.engine.backend import Backend, command
from proxy.engine.refusals import too_large
from proxy.engine.requests import Loop
from slotferry.processes import free_ports
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, nothing_stored, options, until


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server as far as the greeting and PING go."""
    while line := await reader.readline():
        words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
        writer.write({b"PING": b"+PONG\r\n", b"ACL": b"*-1\r\n"}.get(words[0], b"+OK\r\n"))
    writer.close()


async def test_every_address_of_a_host_name_is_tried() -> None:
    """For example, localhost is ::1 first on many machines where the server listens at 127.0.0.1 alone."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    event_loop = asyncio.get_running_loop()
    nobody = ("127.0.0.1", free_ports(1)[0])

    async def several(*_: Any, **__: Any) -> list[Any]:
        return [
            (family, socket.SOCK_STREAM, 6, "", address)
            for family, address in ((9999, nobody), (socket.AF_INET, nobody), (socket.AF_INET, ("127.0.0.1", port)))
        ]

    event_loop.getaddrinfo = several  # type: ignore[method-assign]
    backend = Backend(Loop(event_loop, 16), f"several:{port}", 0, 2, options(), 5.0)
    answered: asyncio.Future[bytes] = event_loop.create_future()
    backend.call(command(("PING",)), answered.set_result)
    async with asyncio.timeout(60):
        assert await answered == b"+PONG\r\n"
    assert backend.connects == 1
    backend.close()
    server.close()


@pytest.mark.parametrize("most", [0, 300_000])
async def test_of_a_reply_that_is_too_large_nothing_is_kept(most: int) -> None:
    """The caller gets an error as soon as the size is known, and the connection goes on after the rest of the reply."""
    sent = asyncio.Event()
    rest = asyncio.Event()

    async def serve_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            if words[0] == b"KEYS":
                writer.write(b"*2\r\n$2000000\r\n" + b"x" * 1_500_000)
                sent.set()
                await rest.wait()
                writer.write(b"-" * 500_000 + b"\r\n$1\r\ny\r\n")
            else:
                writer.write({b"PING": b"+PONG\r\n", b"ACL": b"*-1\r\n"}.get(words[0], b"+OK\r\n"))
        writer.close()

    server = await asyncio.start_server(serve_large, "127.0.0.1", 0)
    event_loop = asyncio.get_running_loop()
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop = Loop(event_loop, 16)
    backend = Backend(loop, address, 0, 2, options(), 5.0)
    told: list[bytes] = []
    large: asyncio.Future[None] = event_loop.create_future()
    answered: asyncio.Future[bytes] = event_loop.create_future()

    def tell(reply: bytes) -> None:
        told.append(reply)
        large.set_result(None)

    backend.call(command(("KEYS", "*")), tell, 0, most)
    backend.call(command(("PING",)), answered.set_result)
    async with asyncio.timeout(60):
        await sent.wait()
        await large
        assert not answered.done()
        rest.set()
        assert await answered == b"+PONG\r\n"
    [error] = told
    assert error == too_large(address, most or 1_000_000, "" if most else "session_output_limit_bytes")
    assert backend.connects == 1
    assert loop.errors == 0, "no client has got one yet"
    backend.close()
    server.close()


async def test_a_callback_may_reset_the_connection_and_ask_again() -> None:
    """Replies of the old connection that have already come are not taken for replies of the new one."""

    async def answer(visit: Visit, words: list[bytes]) -> None:
        # The replies to both come in one piece.
        if words[0] == b"GET":
            visit.say(b"+PONG\r\n$5\r\nstale\r\n")
        elif words[0] == b"ECHO":
            visit.say(b"$%d\r\n%b\r\n" % (len(words[1]), words[1]))

    told: list[tuple[str, bytes]] = []
    async with Server(answer) as server:
        backend = Backend(Loop(asyncio.get_running_loop(), 16), server.address, 0, 2, options(), 5.0)

        def first(reply: bytes) -> None:
            told.append(("first", reply))
            backend.reset("was left by the test")
            backend.call(command(("ECHO", "fresh")), lambda reply: told.append(("fresh", reply)))

        backend.call(command(("PING",)), first)
        backend.call(command(("GET", "k")), lambda reply: told.append(("second", reply)))
        await until(lambda: len(told) == 3)
        backend.close()
    left = f"-ERR server {server.address} was left by the test\r\n".encode()
    assert told == [("first", b"+PONG\r\n"), ("second", left), ("fresh", b"$5\r\nfresh\r\n")]
    assert len(server.visits) == 2


async def test_nobody_is_told_the_password_by_a_server_that_knows_no_hello() -> None:
    """Such a server repeats what it was sent. That matters in RESP3 only, where the greeting logs in by HELLO."""

    async def serve_old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            repeated = b" ".join(b"`%b`," % word for word in words[1:])
            writer.write(b"-ERR unknown command `%b`, with args beginning with: %b \r\n" % (words[0], repeated))
        writer.close()

    server = await asyncio.start_server(serve_old, "127.0.0.1", 0)
    event_loop = asyncio.get_running_loop()
    secret = options()
    secret.password = "inner"
    backend = Backend(Loop(event_loop, 16), f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 0, 3, secret, 5.0)
    answered: asyncio.Future[bytes] = event_loop.create_future()
    backend.call(command(("PING",)), answered.set_result)
    async with asyncio.timeout(60):
        reply = await answered
    assert b"refuses HELLO 3: ERR unknown command `HELLO`" in reply
    assert b"inner" not in reply
    backend.close()
    server.close()


async def test_the_end_of_a_connection_is_told_with_whether_all_sessions_share_it() -> None:
    """What is known of a server rests on shared ones alone; others end with their clients."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            told: list[tuple[str, bool]] = []
            proxy.options.on_disconnected = lambda address, shared: told.append((address, shared))
            own = Backend(proxy.loop, server.address, 0, 2, proxy.options, 5.0)
            for backend in (proxy.router.shared_backend(server.address), own):
                assert backend.open()
                await until(lambda backend=backend: backend.is_ready)  # type: ignore[misc]
                backend.reset("was left")
            own.close()
            assert told == [(server.address, True), (server.address, False)]
