"""A server that answers as a test tells it to, for cases that a real server has only rarely."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import hiredis
import pytest

Answer = Callable[[list[bytes]], bytes | None]


class ScriptedServer:
    """Answers each command by ``answer``, which gets the arguments and gives the packed reply; None closes."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.commands: list[list[bytes]] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    self.commands.append(command)
                    reply = self.answer(command)
                    if reply is None:
                        return
                    writer.write(reply)
        finally:
            writer.close()


@pytest.fixture
async def scripted() -> AsyncIterator[Callable[[Answer], Awaitable[ScriptedServer]]]:
    """Starts scripted servers on free ports."""
    servers: list[asyncio.Server] = []

    async def start(answer: Answer) -> ScriptedServer:
        scripted_server = ScriptedServer(answer)
        server = await asyncio.start_server(scripted_server.serve, "127.0.0.1", 0)
        servers.append(server)
        scripted_server.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return scripted_server

    yield start
    for server in servers:
        server.close()
