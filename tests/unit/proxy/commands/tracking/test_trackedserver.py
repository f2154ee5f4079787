"""The connection by which a server tells of changes, when it is made anew."""

from types import SimpleNamespace
from typing import Any

from proxy.commands.tracking.trackedserver import TrackedServer
from proxy.engine.backend import command
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, until

TRACK = command(("CLIENT", "TRACKING", "ON"))
EXISTS = command(("EXISTS", "key"))


async def test_nothing_is_asked_before_the_server_tracks() -> None:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        # CLIENT is answered like a part of the greeting.
        if words[0] == b"EXISTS":
            visit.say(b":0\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            services: Any = SimpleNamespace(
                router=proxy.router,
                options=proxy.options,
                settings=SimpleNamespace(backend_reply_seconds=60.0),
                now=proxy.event_loop.time,
            )
            told = TrackedServer(services, server.address, TRACK, lambda push: None, lambda: None)
            heard: list[bytes] = []
            await until(lambda: told.tells)
            proxy.options.instance = "e" * 32
            told.take_identity()
            # The loss of the former connection has yet to be told.
            told.ask(EXISTS, heard.append)
            assert heard == [b"-ERR server %b is not connected to\r\n" % server.address.encode()]
            told.tick()
            await until(lambda: len(server.visits) == 2 and told.tells)
            told.ask(EXISTS, heard.append)
            await until(lambda: len(heard) == 2)
            assert heard[1] == b":0\r\n"
            told.close("the test is over")
