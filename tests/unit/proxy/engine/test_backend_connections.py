"""Which of its connections to a server the engine takes for a session's requests."""

import asyncio

from tests.unit.proxy.engine.inprocess import Server, Visit, engine

LARGE = b"$20000\r\n" + b"x" * 20_000 + b"\r\n"


async def test_in_order_large_replies_change_the_connection_only_while_nothing_is_owed() -> None:
    released = asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"held":
            await released.wait()
        visit.say(LARGE if words[1] == b"large" else b"$-1\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            # By the time that the large reply is there, another is owed.
            await client.send(("GET", "large"), ("GET", "held"))
            assert await client.read(len(LARGE)) == LARGE
            assert client.session.owed == 1
            await client.send(("GET", "behind"))
            await client.send(("GET", "last"))
            released.set()
            assert await client.read(15) == b"$-1\r\n" * 3
            # The requests after it waited, and went over the other connection.
            first, second = server.visits
            assert [words[1] for words in first.asked] == [b"large", b"held"]
            assert [words[1] for words in second.asked] == [b"behind", b"last"]


async def test_small_replies_lead_back() -> None:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        visit.say(LARGE if words[1] == b"large" else b"$-1\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            for _ in range(3):
                await client.send(("GET", "large"))
                assert await client.read(len(LARGE)) == LARGE
            small, large = server.visits
            before = len(small.asked)
            for _ in range(100):
                await client.send(("GET", "small"))
                assert await client.read(5) == b"$-1\r\n"
            assert len(small.asked) > before
            assert len(large.asked) > 0
            large_before = len(large.asked)
            await client.send(("GET", "small"))
            assert await client.read(5) == b"$-1\r\n"
            assert len(large.asked) == large_before


async def test_sessions_of_each_worker_are_spread_over_the_connections() -> None:
    """The numbers of a worker's sessions differ by multiples of the number of workers."""

    async def answer(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"$-1\r\n")

    async with Server(answer) as server:
        for workers in (1, 2, 3, 4):
            with engine(server.address, workers=workers, backend_connections=2) as proxy:
                numbers = [proxy.connect(number=1 + place * workers).session.connection_number for place in range(8)]
                assert sorted(numbers) == [0] * 4 + [1] * 4, (workers, numbers)
