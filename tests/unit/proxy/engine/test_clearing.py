"""Requests with many keys of slots that move: their keys are cleared in slices, and others are served in between."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from proxy.engine.router import LOCKED, MIGRATING, OPEN
from proxy.moving.move import Sleeper
from tests.unit.proxy.engine.inprocess import Client, Engine, Server, Visit, engine, nothing_stored

COUNT = 2000
KEYS = [f"{{t}}{number}".encode() for number in range(COUNT)]
ONE_SLICE = 256
PONG = b"+PONG\r\n"


class Mover:
    """Finds keys absent. It answers for a slice once another client has had an answer since the slice was asked for."""

    def __init__(self, inside: Engine, other: Client) -> None:
        self.asked: list[list[bytes]] = []
        self.before: Callable[[], None] = lambda: None
        """Called before a slice is found absent."""
        self.error: bytes | None = None
        self.reads = self
        self.begun = 0
        self._inside = inside
        self._other = other
        self._tasks: set[asyncio.Task[None]] = set()

    def need(
        self,
        sleeper: Sleeper,
        database: int,
        missing: Sequence[tuple[int, bytes]],
        deadline: Any = None,
        asks: bool = False,
    ) -> None:
        self.asked.append([key for _, key in missing])
        self._tasks.add(asyncio.get_running_loop().create_task(self._find(sleeper)))

    async def _find(self, sleeper: Sleeper) -> None:
        generation = self._inside.router.generation
        await self._other.send(("PING",))
        assert await self._other.read(len(PONG)) == PONG
        self.before()
        sleeper.big("127.0.0.1:1", lambda: True)
        if self.error is not None:
            sleeper.fail(self.error)
        else:
            sleeper.wake(generation)

    def begin(self, *_: object) -> None:
        self.begun += 1


async def answered(inside: Engine, mover: Mover, client: Client, request: Sequence[bytes], size: int) -> bytes:
    inside.router.mover = mover  # type: ignore[assignment]
    await client.send(tuple(request))
    return await client.read(size)


async def many(visit: Visit, words: list[bytes]) -> None:
    """Answer with the number of words."""
    if words[0] == b"PING":
        visit.say(PONG)
    else:
        visit.say(b":%d\r\n" % len(words))


async def test_bounded_others_are_served_between_slices() -> None:
    async with Server(many) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)
            inside.route(MIGRATING, server.address)
            said = await answered(inside, mover, client, [b"DEL", *KEYS], 7)
            assert said == b":%d\r\n" % (COUNT + 1)
            assert [key for keys in mover.asked for key in keys] == KEYS
            assert max(map(len, mover.asked)) <= ONE_SLICE
            # If it is read at the source, all of it is sent in one piece, which may have so many keys.
            assert mover.begun == len(mover.asked)
            # Keys that are known to be absent are not asked for.
            for key in KEYS:
                inside.router.absent.remember(0, 0, key)
            mover.asked.clear()
            assert await answered(inside, mover, client, [b"SUNION", *KEYS], 7) == said
            assert mover.asked == []


async def test_a_very_long_request_is_not_read_at_the_source() -> None:
    async with Server(many) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)
            inside.route(MIGRATING, server.address)
            assert await answered(inside, mover, client, [b"EXISTS", *KEYS, *KEYS, b"{t}"], 7) == b":4002\r\n"
            assert mover.begun == 0


async def test_a_key_that_cannot_be_moved() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)
            mover.error = b"-TRYAGAIN\r\n"
            inside.route(MIGRATING, server.address)
            assert await answered(inside, mover, client, [b"DEL", *KEYS], 11) == b"-TRYAGAIN\r\n"
            assert len(mover.asked) == 1


async def test_absent_first_another_table_has_all_keys_looked_for_anew() -> None:
    async with Server(many) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)

            def turn() -> None:
                if len(mover.asked) == 2:
                    inside.router.next_generation()

            mover.before = turn
            inside.route(MIGRATING, server.address)
            assert await answered(inside, mover, client, [b"DEL", *KEYS], 7) == b":2001\r\n"
            assert [key for keys in mover.asked[2:] for key in keys] == KEYS


async def test_drained_a_lock_met_on_the_way_holds_the_request() -> None:
    async with Server(many) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)

            def lock() -> None:
                inside.route(LOCKED, server.address)

            mover.before = lock
            inside.route(MIGRATING, server.address)
            inside.router.mover = mover  # type: ignore[assignment]
            await client.send((b"DEL", *KEYS))
            async with asyncio.timeout(60):
                while not len(inside.router.holding):
                    await asyncio.sleep(0.001)
            assert len(mover.asked) == 1
            inside.route(OPEN, server.address)
            inside.router.next_generation()
            inside.router.holding.release()
            assert await client.read(7) == b":2001\r\n"


async def test_a_client_that_leaves_is_not_gone_on_with() -> None:
    async with Server(many) as server:
        with engine(server.address) as inside:
            client, other = inside.connect(), inside.connect("other", 1)
            mover = Mover(inside, other)
            mover.before = client.session.close
            inside.route(MIGRATING, server.address)
            assert await answered(inside, mover, client, [b"DEL", *KEYS], 7) == b""
            await other.send(("PING",))
            assert await other.read(len(PONG)) == PONG
            assert len(mover.asked) == 1
            assert inside.mistakes == []
