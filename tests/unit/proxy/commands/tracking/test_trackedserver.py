"""The connection by which a server tells of changes, when it is made anew."""

import asyncio
from types import SimpleNamespace
from typing import Any

from proxy.commands.tracking.trackedserver import AGAIN_SECONDS, TrackedServer
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


async def test_a_server_that_refuses_to_subscribe_is_asked_again_once_in_a_while() -> None:
    allowed = False
    now = 100.0

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[0] == b"SUBSCRIBE":
            name = words[1]
            push = b">3\r\n$9\r\nsubscribe\r\n$%d\r\n%b\r\n:1\r\n" % (len(name), name)
            visit.say(push if allowed else b"-NOPERM no channels\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            services: Any = SimpleNamespace(
                router=proxy.router,
                options=proxy.options,
                settings=SimpleNamespace(backend_reply_seconds=60.0),
                now=lambda: now,
            )
            told = TrackedServer(services, server.address, TRACK, lambda push: None, lambda: None)
            await until(lambda: told.is_settled)
            assert told.refused == "NOPERM no channels (allow this proxy's user there +subscribe and &*)"
            for _ in range(5):
                told.tick()
            # It is accepted behind all that were made before.
            _, writer = await asyncio.open_connection(*server.address.split(":"))
            writer.write(command(("MARK",)))
            await until(lambda: [b"MARK"] in server.asked)
            assert len(server.visits) == 2
            writer.close()
            allowed = True
            now += AGAIN_SECONDS
            told.tick()
            await until(lambda: told.tells)
            assert told.refused is None
            assert len(server.visits) == 3
            told.close("the test is over")
