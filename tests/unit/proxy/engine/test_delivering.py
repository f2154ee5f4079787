"""One message for many sessions."""

from proxy.engine.delivering import deliver
from tests.unit.proxy.engine.inprocess import Server, engine, nothing_stored

RESP2 = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"
RESP3 = b">" + RESP2[1:]


async def test_each_session_gets_it_in_its_protocol_and_one_that_is_closed_keeps_nothing_of_it() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            two, three, closed = (proxy.connect() for _ in range(3))
            three.session.protocol = 3
            closed.session.close()
            before = proxy.loop.kept
            deliver([closed.session], RESP2, RESP3)
            assert (closed.session.unsent, closed.session.kept, proxy.loop.kept) == (0, 0, before)
            deliver([two.session, closed.session, three.session], RESP2, RESP3)
            assert await two.read(len(RESP2)) == RESP2
            assert await three.read(len(RESP3)) == RESP3
