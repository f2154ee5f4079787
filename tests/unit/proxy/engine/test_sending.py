"""When the engine sends what there is for a client."""

import asyncio

from tests.unit.proxy.engine.inprocess import Server, Visit, engine


async def test_bounded_a_reply_does_not_wait_for_others_that_do_not_come() -> None:
    """The reply is left for a while, so that it can go with others. Nothing else happens here that would cause it to be
    sent."""
    released = asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"held":
            await released.wait()
        visit.say(b"$-1\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            for _ in range(20):
                await client.send(("GET", "first"), ("GET", "held"))
                assert await client.read(5) == b"$-1\r\n"
                assert client.session.owed == 1
                released.set()
                assert await client.read(5) == b"$-1\r\n"
                released.clear()
