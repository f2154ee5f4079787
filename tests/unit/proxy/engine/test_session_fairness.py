"""A long pipeline of requests that plain Python decides does not keep other clients waiting until it is done."""

import asyncio

from tests.unit.proxy.engine.inprocess import Server, engine, nothing_stored

LONG = 5000


async def test_others_have_their_turn_within_a_long_pipeline() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = lambda: b"+echo\r\n"
            proxy.slow_path.handlers[b"TIME"] = lambda: b"+time\r\n"
            busy = proxy.connect("busy")
            others = [proxy.connect(f"other {number}") for number in range(3)]
            # What the sockets take has arrived before any of it is looked at.
            sending = [busy.send(*[("ECHO", "x")] * LONG), *(other.send(*[("TIME",)] * 10) for other in others)]
            await asyncio.gather(*sending)
            for other in others:
                assert await other.read(70) == b"+time\r\n" * 10
            before = proxy.slow_path.handled.index(others[-1].session.peer)
            assert before < LONG // 10
            assert await busy.read(7 * LONG) == b"+echo\r\n" * LONG
            assert proxy.slow_path.handled.count("busy") == LONG
