"""run-id: which of two processes at one address is the present one."""

import asyncio
from typing import Self

from proxy.engine.backend import command
from tests.unit.proxy.engine.inprocess import GREETING, engine, until


class TwoProcesses:
    """Connection n leads to process n; the first says who it is only when told to."""

    def __init__(self) -> None:
        self.first_may_say = asyncio.Event()
        self.asked: dict[int, list[bytes]] = {}
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            if words[0] == b"INFO":
                if number == 1:
                    await self.first_may_say.wait()
                name = b"run_id:%s\r\n" % (b"old" if number == 1 else b"new")
                writer.write(b"$%d\r\n%b\r\n" % (len(name), name))
            elif words[0] in GREETING:
                writer.write(GREETING[words[0]])
            else:
                self.asked.setdefault(number, []).append(words[0])
                if words[0] == b"PING":
                    writer.write(b"+PONG\r\n")
        writer.close()


async def test_a_late_greeting_of_the_process_before_does_not_end_the_present_ones_connections() -> None:
    async with TwoProcesses() as server:
        with engine(server.address) as proxy:
            router = proxy.router
            # Opened first, to the old process, which is slow to introduce itself.
            old = router.shared_backend(server.address)
            before = old.ask(command(("PING",)))
            await until(lambda: server.connections == 1)
            await asyncio.sleep(0.1)
            # Opened later: by now the address leads to the new process. It is up and in use.
            client = proxy.connect()
            client.session.database = 1
            await client.send(("SET", "a", "1"))
            await until(lambda: b"SET" in server.asked.get(2, []))
            server.first_may_say.set()
            answered = await before
            # The command on its way at the new process is not given up because of the old one ...
            assert client.session.owed == 1
            # ... and the old process gets no commands.
            assert 1 not in server.asked
            assert answered.startswith(b"-ERR server ")
            assert b"is another process by now; nothing was run" in answered
            assert old.connects == 1


async def test_a_new_connection_that_is_ended_meanwhile_is_not_up() -> None:
    """Whoever hears of the old connections' end may end it."""
    async with TwoProcesses() as server:
        server.first_may_say.set()
        with engine(server.address) as proxy:
            old = proxy.router.shared_backend(server.address)
            old.open()
            await until(lambda: old.is_ready)
            new = proxy.router.shared_backend(server.address, 1)
            said: list[bytes] = []

            def lost(reply: bytes) -> None:
                said.append(reply)
                new.reset("is given up, too")

            old.call(command(("SET", "a", "1")), lost)
            new.open()
            await until(lambda: bool(said))
            assert not new.is_ready
            # It connects again.
            assert await new.ask(command(("PING",))) == b"+PONG\r\n"
