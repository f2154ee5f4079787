"""How long a watch lasts, by a clock of the test's own."""

from types import SimpleNamespace
from typing import Any, cast

from proxy.commands.services import Services
from proxy.commands.transactions.watching import UNWATCH, WATCH_SECONDS, Watching
from proxy.engine.backend import command
from proxy.engine.session import Session
from proxy.servers.ownconnections import OwnConnections
from tests.unit.proxy.engine.inprocess import Server, SlowPath, Visit, engine, until


class Watches(SlowPath):
    """Has a watch end with its session, as the worker's slow path does."""

    def __init__(self, watching: Watching) -> None:
        super().__init__()
        self._watching = watching

    def session_closed(self, session: Session) -> None:
        self._watching.end(session)


async def stores_nothing(visit: Visit, words: list[bytes]) -> None:
    visit.say(b"+OK\r\n")


async def test_bounded_a_watch_is_limited_in_time_and_its_connection_comes_back() -> None:
    now = 1000.0
    async with Server(stores_nothing) as server:
        with engine(server.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, proxy.router.settings)
            parts: Any = SimpleNamespace(router=proxy.router, own=own, now=lambda: now, settings=proxy.router.settings)
            watching = Watching(cast(Services, parts))
            slow_path = proxy.router.slow_path = Watches(watching)  # type: ignore[assignment]
            client = proxy.connect()
            slow_path.handlers[b"WATCH"] = lambda: watching.begin(client.session, [b"WATCH", b"key"])
            await client.send(("WATCH", "key"))
            assert await client.read_line() == b"+OK"
            # given: just before its end, the client watches once more.
            now += WATCH_SECONDS - 1
            await client.send(("WATCH", "key"))
            assert await client.read_line() == b"+OK"
            watch = client.session.watch
            assert watch is not None

            # when: the time of the first WATCH is over. Then: that of the second one counts.
            now += 2
            watching.tick()
            assert watch.holds()
            assert (len(own), own.idle) == (1, 0)

            # when: that is over, too.
            now += WATCH_SECONDS - 2
            watching.tick()
            # then: EXEC will find that it does not hold, and the next session can have the connection.
            assert client.session.watch is watch
            assert not watch.holds()
            await until(lambda: own.idle == 1)
            assert command(tuple(server.asked[-1])) == UNWATCH
            watching.tick()
            own.reset("the test is over")
