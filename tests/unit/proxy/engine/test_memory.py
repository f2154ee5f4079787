"""**bounded**: every byte that is kept for a client is counted, and given up when it is sent or the client has gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from proxy.engine.backend import command
from proxy.engine.router import OPEN
from tests.unit.proxy.engine.inprocess import LIMIT, SLOTS, Client, Engine, Server, Visit, engine, until

LARGE = b"$300000\r\n" + b"x" * 300_000 + b"\r\n"
HALF = SLOTS // 2


@dataclass
class Scene:
    """An engine with two servers; the second one answers once it is told to."""

    proxy: Engine
    released: asyncio.Event
    here: str
    there: str

    async def settled(self) -> None:
        """Wait until nothing is kept."""
        await until(lambda: self.proxy.loop.kept == 0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    released = asyncio.Event()

    def reply(words: list[bytes]) -> bytes:
        return b"*%d\r\n" % (len(words) - 1) + LARGE * (len(words) - 1) if words[0] == b"MGET" else LARGE

    async def at_once(visit: Visit, words: list[bytes]) -> None:
        visit.say(reply(words))

    async def later(visit: Visit, words: list[bytes]) -> None:
        await released.wait()
        visit.say(reply(words))

    async with Server(at_once) as first, Server(later) as second:
        with engine(first.address) as proxy:
            for slot in range(HALF, SLOTS):
                proxy.router.set_route(slot, OPEN, second.address, 0)
            keys = [f"k{number}" for number in range(99)]
            here = next(key for key in keys if proxy.router.slot_of_key(0, key.encode()) < HALF)
            there = next(key for key in keys if proxy.router.slot_of_key(0, key.encode()) >= HALF)
            yield Scene(proxy, released, here, there)
            released.set()


@asynccontextmanager
async def leaving(scene: Scene) -> AsyncIterator[Client]:
    """A client that goes in the end; nothing is kept for it then."""
    client = scene.proxy.connect()
    yield client
    kept = scene.proxy.loop.kept
    assert kept > 0
    client.close()
    await scene.settled()


async def test_replies_that_are_not_taken(scene: Scene) -> None:
    async with leaving(scene) as client:
        await client.send(*[("GET", scene.here)] * 10)
        await until(lambda: client.session.unsent > len(LARGE))
        assert client.session.kept >= client.session.unsent > 0
        assert scene.proxy.loop.kept == client.session.kept


async def test_replies_before_their_turn(scene: Scene) -> None:
    async with leaving(scene) as client:
        await client.send(("GET", scene.there), ("GET", scene.here))
        await until(lambda: client.session.unsent == len(LARGE))
        assert scene.proxy.loop.kept == client.session.kept >= len(LARGE)


async def test_parts_of_replies(scene: Scene) -> None:
    async with leaving(scene) as client:
        await client.send(("MGET", scene.here, scene.there))
        await until(lambda: client.session.unsent > len(LARGE))
        assert scene.proxy.loop.kept == client.session.kept
    # The other part comes when no client waits for it any more.
    scene.released.set()
    other = scene.proxy.connect()
    await other.send(("GET", scene.there))
    assert await other.read(len(LARGE)) == LARGE
    await scene.settled()


async def test_messages_behind_a_reply_that_is_not_complete(scene: Scene) -> None:
    async with leaving(scene) as client:
        await client.send(("GET", scene.here), ("GET", scene.there))
        assert await client.read(len(LARGE)) == LARGE
        client.session.push(b"+" + b"m" * 500_000 + b"\r\n")
        assert scene.proxy.loop.kept == client.session.kept


async def test_a_request_that_is_not_complete(scene: Scene) -> None:
    async with leaving(scene) as client:
        size = 100_000
        sending = asyncio.create_task(client.send_bytes(command(("SET", scene.here, b"x" * size))[: size // 2]))
        await until(lambda: client.session.unparsed == size // 2)
        await sending
        assert scene.proxy.loop.kept == client.session.kept >= size // 2


async def test_requests_behind_one_that_waits(scene: Scene) -> None:
    async with leaving(scene) as client:
        waiting = asyncio.Event()

        async def wait() -> bytes:
            await waiting.wait()
            return b"+waited\r\n"

        scene.proxy.slow_path.handlers[b"ECHO"] = wait
        await client.send(("ECHO", "x"), *[("GET", scene.here)] * 3)
        await until(lambda: client.session.unparsed > 0)
        assert scene.proxy.loop.kept == client.session.kept > 0
        waiting.set()


async def test_what_is_sent_and_answered(scene: Scene) -> None:
    scene.released.set()
    clients = [scene.proxy.connect() for _ in range(3)]
    for client in clients:
        request = command(("GET", scene.there)) + command(("MGET", scene.here, scene.there))
        for start in range(0, len(request), 7):
            await client.send_bytes(request[start : start + 7])
            await asyncio.sleep(0)
    for client in clients:
        expected = LARGE + b"*2\r\n" + LARGE * 2
        assert await client.read(len(expected)) == expected
    await scene.settled()
    assert [client.session.kept for client in clients] == [0] * 3


async def test_the_limit_is_told_of_whatever_is_kept(scene: Scene) -> None:
    told = asyncio.Event()
    scene.proxy.loop.kept_limit = 1_000_000
    scene.proxy.loop.on_excess = told.set
    clients = [scene.proxy.connect() for _ in range(4)]
    await clients[0].send(("GET", scene.there), ("GET", scene.here))
    await clients[1].send(("MGET", scene.there, scene.here))
    await until(lambda: all(client.session.unsent >= len(LARGE) for client in clients[:2]))
    assert not told.is_set()
    await clients[2].send(("GET", scene.there), ("GET", scene.here))
    await clients[3].send_bytes(command(("SET", "k", b"x" * 200_000))[:150_000])
    async with asyncio.timeout(LIMIT):
        await told.wait()


async def test_a_large_request_waits_for_those_at_servers_before_it_and_small_ones_do_not(scene: Scene) -> None:
    """The second server reads nothing before it is told to."""
    loop = scene.proxy.loop
    loop.waiting_limit = 1_000_000
    slow, large, other = (scene.proxy.connect() for _ in range(3))
    await slow.send(("GET", scene.there))
    await until(lambda: bool(scene.proxy.loop.requests))
    sending = asyncio.create_task(slow.send(("SET", scene.there, b"x" * 16_000_000)))
    # One request goes in any case, however large.
    await until(lambda: loop.waiting > 1_000_000)
    await sending
    await large.send(("SET", scene.here, b"x" * 900_000))
    await until(lambda: large.session.unparsed > 900_000)
    await other.send(("GET", scene.here))
    assert await other.read(len(LARGE)) == LARGE
    # It is for the other server, and still not sent.
    assert large.session.owed == 0
    more, slow_path = scene.proxy.connect(), scene.proxy.connect("slow")
    await more.send(("SET", scene.here, b"x" * 300_000))
    await until(lambda: more.session.unparsed > 300_000)
    scene.proxy.slow_path.handlers[b"ECHO"] = lambda: b"+done\r\n"
    await slow_path.send(("ECHO", b"x" * 300_000))
    await until(lambda: slow_path.session.unparsed > 300_000)
    assert scene.proxy.slow_path.handled == []
    # A client that leaves holds no other up.
    large.close()
    scene.released.set()
    assert await more.read(len(LARGE)) == LARGE
    assert await slow_path.read(7) == b"+done\r\n"
    for client in (slow, other, more, slow_path):
        client.close()
    await until(lambda: loop.waiting == 0)
    await scene.settled()
    assert scene.proxy.mistakes == []


async def test_requests_for_a_server_that_reads_nothing_stay_with_their_sessions(scene: Scene) -> None:
    scene.proxy.options.queue_pause_bytes = 1000
    clients = [scene.proxy.connect() for _ in range(4)]
    await clients[0].send(("GET", scene.there))
    await until(lambda: bool(scene.proxy.loop.requests))
    sending = [asyncio.create_task(client.send(("SET", scene.there, b"x" * 8_000_000))) for client in clients]
    await asyncio.gather(*sending)
    await until(lambda: sum(client.session.unparsed > 8_000_000 for client in clients) == 3)
    assert scene.proxy.loop.waiting < 12_000_000
    assert sum(client.session.owed for client in clients) == 2
    scene.released.set()
    for client in clients:
        assert await client.read(len(LARGE)) == LARGE
    await until(lambda: scene.proxy.loop.waiting == 0)
