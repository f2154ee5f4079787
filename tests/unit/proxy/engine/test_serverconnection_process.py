"""run-id: which of two processes at one address is the present one."""

import asyncio

from proxy.engine.backend import command
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, until


class TwoProcesses(Server):
    """Connection n leads to process n; the first says who it is only when told to."""

    def __init__(self) -> None:
        super().__init__(answer_ping)
        self.first_may_say = asyncio.Event()

    async def greet(self, visit: Visit, words: list[bytes]) -> None:
        """Answer a part of a greeting."""
        if words[0] != b"INFO":
            await super().greet(visit, words)
            return
        first = visit is self.visits[0]
        if first:
            await self.first_may_say.wait()
        name = b"run_id:%b\r\n" % (b"old" if first else b"new")
        visit.say(b"$%d\r\n%b\r\n" % (len(name), name))


async def answer_ping(visit: Visit, words: list[bytes]) -> None:
    """Answer PING, and nothing else."""
    if words[0] == b"PING":
        visit.say(b"+PONG\r\n")


async def test_a_late_greeting_of_the_process_before_does_not_end_the_present_ones_connections() -> None:
    async with TwoProcesses() as server:
        with engine(server.address) as proxy:
            router = proxy.router
            # Opened first, to the old process, which is slow to introduce itself.
            old = router.shared_backend(server.address)
            before = old.ask(command(("PING",)))
            await until(lambda: len(server.visits) == 1)
            await asyncio.sleep(0.1)
            # Opened later: by now the address leads to the new process. It is up and in use.
            client = proxy.connect()
            client.session.database = 1
            await client.send(("SET", "a", "1"))
            await until(lambda: len(server.visits) == 2 and server.visits[1].asked == [[b"SET", b"a", b"1"]])
            server.first_may_say.set()
            answered = await before
            # The command on its way at the new process is not given up because of the old one ...
            assert client.session.owed == 1
            # ... and the old process gets no commands.
            assert server.visits[0].asked == []
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
