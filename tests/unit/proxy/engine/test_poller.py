"""The engine without epoll, as on systems that have none: the event loop watches each socket."""

import asyncio
from typing import Any

import pytest
import uvloop

from proxy.engine.backend import Backend, command
from proxy.engine.requests import Loop
from tests.unit.proxy.engine.inprocess import options

LARGE = 20_000_000


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_backend_connects_writes_and_reads(portable: bool, run: Any) -> None:
    async def exchange() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Answers the greeting and PING, and says how long an ECHO's message is, after some time."""
            while line := await reader.readline():
                if line.startswith(b"*"):
                    words = []
                    for _ in range(int(line[1:])):
                        size = int((await reader.readline())[1:])
                        words.append((await reader.readexactly(size + 2))[:-2])
                    if words[0] == b"ECHO":
                        writer.write(b"$%d\r\n%b\r\n" % (len(words[1]), words[1]))
                    elif words[0] == b"ACL":
                        writer.write(b"$-1\r\n")
                    else:
                        writer.write(b"+OK\r\n")
                    await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 16)
        port = server.sockets[0].getsockname()[1]
        event_loop = asyncio.get_running_loop()
        backend = Backend(
            Loop(event_loop, 16, portable), f"127.0.0.1:{port}", 0, 2, options(own_reply_bytes=100_000_000), 30.0
        )
        message = b"x" * LARGE
        # More than the socket takes at once, both ways.
        for _ in range(2):
            answered: asyncio.Future[bytes] = event_loop.create_future()
            backend.call(command(("ECHO", message)), answered.set_result)
            async with asyncio.timeout(30):
                assert await answered == b"$%d\r\n%b\r\n" % (LARGE, message)
        assert backend.connects == 1
        backend.close()
        server.close()

    run(exchange())
