"""The queue of a connection to a server, when that connection is lost."""

import pytest

from tests.unit.proxy.engine.inprocess import Server, Visit, engine, nothing_stored, until


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
