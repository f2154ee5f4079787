"""A connection to a server: how it comes about where the server is named by a host name."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from cli.processes import free_ports
from proxy.engine.backend import Backend, command
from proxy.engine.requests import Loop


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server as far as the greeting and PING go."""
    while line := await reader.readline():
        words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
        writer.write({b"PING": b"+PONG\r\n", b"ACL": b"*-1\r\n"}.get(words[0], b"+OK\r\n"))
    writer.close()


async def test_every_address_of_a_host_name_is_tried() -> None:
    """As of localhost, which is ::1 first on many machines where the server listens at 127.0.0.1 alone."""
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
    options: Any = SimpleNamespace(
        password="",
        instance="f" * 32,
        new_name=lambda: "name.",
        connect_seconds=5.0,
        queue_pause_bytes=1_000_000,
        window_bytes=1_000_000,
        retry_seconds_min=1.0,
        retry_seconds_max=1.0,
        on_lost=print,
        on_disconnected=print,
        tls=None,
        user="",
    )
    backend = Backend(Loop(event_loop, 16), f"several:{port}", 0, 2, options, 5.0)
    answered: asyncio.Future[bytes] = event_loop.create_future()
    backend.call(command(("PING",)), answered.set_result)
    async with asyncio.timeout(10):
        assert await answered == b"+PONG\r\n"
    assert backend.connects == 1
    backend.close()
    server.close()
