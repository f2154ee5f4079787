"""The queue of a connection to a server, when that connection is lost or cannot be made."""

import asyncio

import pytest

from tests.unit.proxy.engine.inprocess import LIMIT, Server, Visit, engine, nothing_stored, until


@pytest.mark.parametrize("half", [b"$500\r\nab", b"*9\r\n$1\r\na\r\n", b"$-"])
async def test_half_a_reply_over_a_connection_that_was_lost_is_no_part_of_one_over_the_next(half: bytes) -> None:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"lost":
            visit.say(half)
            visit.hang_up()
        else:
            await nothing_stored(visit, words)

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            proxy.options.retry_seconds_min = proxy.options.retry_seconds_max = 0.0
            client = proxy.connect()
            await client.send(("GET", "lost"))
            assert b"closed the connection" in await client.read_line()
            backend = proxy.router.shared_backend(server.address)
            await until(lambda: backend.open() and backend.is_ready)
            await client.send(("GET", "k"), ("GET", "k"))
            assert await client.read(10) == b"$-1\r\n" * 2
            assert len(server.visits) == 2


class SilentServer(Server):
    """Greets nobody until it speaks."""

    def __init__(self) -> None:
        super().__init__(nothing_stored)
        self.speaks = asyncio.Event()
        self.met = 0
        """Connections whose greeting has begun to come."""

    async def greet(self, visit: Visit, words: list[bytes]) -> None:
        if words[0] == b"CLIENT":
            self.met += 1
        await self.speaks.wait()
        await super().greet(visit, words)


async def test_after_an_attempt_to_connect_has_failed_requests_wait_for_no_other() -> None:
    async with SilentServer() as server:
        with engine(server.address) as proxy:
            proxy.options.retry_seconds_min = proxy.options.retry_seconds_max = 0.0
            proxy.options.connect_seconds = 0.0
            client = proxy.connect()
            await client.send(("GET", "first"))
            await until(lambda: server.met == 1)
            backend = proxy.router.shared_backend(server.address)
            # The first attempt may succeed at once, so the request waits for it.
            assert backend.queued == 1
            proxy.loop.tick()
            backend.check_time()
            assert b"did not accept a connection" in await client.read_line()

            proxy.options.connect_seconds = LIMIT
            backend.check_time()
            await until(lambda: server.met == 2)
            await client.send(("GET", "second"), ("MGET", "a", "b"))
            for _ in range(2):
                assert b"did not accept a connection" in await client.read_line()
            assert (backend.queued, len(server.visits)) == (0, 2)

            # It finds by itself that the server is back.
            server.speaks.set()
            await until(lambda: backend.is_ready)
            await client.send(("GET", "third"))
            assert await client.read(5) == b"$-1\r\n"
            assert len(server.visits) == 2


async def test_a_connection_that_was_lost_in_use_is_made_anew_for_the_next_request() -> None:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"lost":
            visit.hang_up()
        else:
            await nothing_stored(visit, words)

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            proxy.options.retry_seconds_min = proxy.options.retry_seconds_max = 0.0
            client = proxy.connect()
            await client.send(("GET", "lost"))
            assert b"closed the connection" in await client.read_line()
            proxy.loop.tick()
            await client.send(("GET", "k"))
            assert await client.read(5) == b"$-1\r\n"
            assert len(server.visits) == 2


async def test_what_is_no_failure_of_the_server_does_not_break_its_connection() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            proxy.options.lost_masters = frozenset([server.address])
            await client.send(("GET", "k"))
            assert b"another server takes its place" in await client.read_line()
            proxy.options.lost_masters = frozenset()
            proxy.loop.tick()
            await client.send(("GET", "k"))
            assert await client.read(5) == b"$-1\r\n"
