"""A command that waits, from its handler's first step: what it holds while its connection is made."""

from types import SimpleNamespace
from typing import Any

from proxy.commands.blocking.blocking import BlockingCommands
from proxy.engine.router import LOCKED, OPEN
from proxy.servers.ownconnections import OwnConnections
from proxy.settings import ProxySettings
from slots.functions import slot as slot_by
from tests.unit.proxy.engine.inprocess import SLOTS, engine, until
from tests.unit.proxy.servers.test_ownconnections import Numbering

READ = [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"k", b"0"]
SLOT = slot_by("crc32", b"k", SLOTS)


async def test_drained_a_lock_that_comes_with_the_connection_is_not_held_up() -> None:
    async with Numbering() as server:
        with engine(server.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
            services: Any = SimpleNamespace(router=proxy.router, own=own, settings=ProxySettings())
            blocking, client = BlockingCommands(services), proxy.connect()
            proxy.slow_path.session_closed = lambda session: None  # type: ignore[attr-defined]
            proxy.slow_path.handlers[b"XREAD"] = lambda: blocking.read(client.session, READ)
            await client.send(tuple(READ))
            await until(lambda: server.asked_for_number)
            assert proxy.loop.slot_in_flight(SLOT) == 1
            # The lock is not told of: the connection is there in the same moment.
            proxy.route(LOCKED, server.address)
            server.let_go.set()
            await until(lambda: own.idle == 0 and proxy.loop.slot_in_flight(SLOT) == 0)
            assert server.asked == []
            proxy.route(OPEN, server.address)
            proxy.router.next_generation()
            proxy.router.holding.release()
            assert await client.read(5) == b"+OK\r\n"
            assert server.asked == [READ]
            assert (own.in_use, proxy.loop.slot_in_flight(SLOT)) == (0, 0)
            own.reset("the test is over")
            await blocking.close()
