"""Messages between replies: in their order, and never within a reply."""

import asyncio

from tests.unit.proxy.engine.inprocess import Server, Visit, engine

LARGE = 200_000
HALF = LARGE // 2


async def test_in_order_behind_a_reply_that_comes_in_parts() -> None:
    rest, last = asyncio.Event(), asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"large":
            visit.say(b"$%d\r\n" % LARGE + b"x" * HALF)
            await rest.wait()
            visit.say(b"x" * HALF + b"\r\n")
        else:
            await last.wait()
            visit.say(b"+last\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(("GET", "large"), ("GET", "last"))
            # A part of the reply is out.
            received = await client.read(HALF // 2)
            client.session.push(b"+one\r\n")
            client.session.push(b"+two\r\n")
            rest.set()
            size = len(b"$%d\r\n" % LARGE) + LARGE + 2
            received += await client.read(size - len(received))
            assert received == b"$%d\r\n" % LARGE + b"x" * LARGE + b"\r\n"
            client.session.push(b"+three\r\n")
            assert await client.read(20) == b"+one\r\n+two\r\n+three\r\n"
            last.set()
            assert await client.read(7) == b"+last\r\n"
            assert client.session.owed == client.session.unsent == 0


async def test_at_once_while_nothing_of_a_reply_is_out() -> None:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        await asyncio.Event().wait()

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(("GET", "k"))
            client.session.push(b"+one\r\n")
            assert await client.read(6) == b"+one\r\n"


async def test_bounded_messages_that_wait_count_as_unsent() -> None:
    """They wait behind a reply whose rest may never come."""

    async def answer(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"$%d\r\n" % LARGE + b"x" * HALF)
        await asyncio.Event().wait()

    async with Server(answer) as server:
        limits = {"session_output_pause_bytes": HALF, "session_output_limit_bytes": HALF * 3}
        with engine(server.address, **limits) as proxy:
            client = proxy.connect()
            await client.send(("GET", "large"))
            received = await client.read(HALF // 2)
            message = b"+" + b"m" * 9_997 + b"\r\n"
            for number in range(1, 30):
                client.session.push(message)
                assert client.session.unsent >= number * len(message)
            for _ in range(2):
                client.session.push(message)
            # The part of the reply that has come is the last that is heard.
            received += await client.read(LARGE)
            assert received == (b"$%d\r\n" % LARGE + b"x" * HALF)[: len(received)]
            assert client.session.closed
