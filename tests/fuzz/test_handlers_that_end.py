"""Random handlers of clients that leave at any moment: each comes to its end once, and nothing is left of it.

They wait for servers, futures, tasks, locks and keys, and wait again while they tidy up. Sessions are woken and resumed
without a reason. Replies that come are in order.
"""

import asyncio
import gc
import random
import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import Answered, Later, Reply, Unit, clear, nothing_owed
from proxy.engine.router import LOCKED, MIGRATING, OPEN
from proxy.engine.session import Session
from proxy.servers import slotrequests
from proxy.worker.holding import Holding
from tests.unit.proxy.engine.inprocess import SLOTS, Engine, Server, Visit, engine, until

SECONDS = 60.0
CLIENTS = 24
PING = command(("PING",))


def bulk(name: bytes) -> bytes:
    """The reply to every request: its name."""
    return b"$%d\r\n%b\r\n" % (len(name), name)


class Run:
    """One engine, with handlers that do as the dice say."""

    def __init__(self, rand: random.Random, proxy: Engine, address: str) -> None:
        self.rand, self.proxy, self.address = rand, proxy, address
        self.wrong: list[Any] = []
        self.begun: dict[bytes, int] = {}
        self.ended: dict[bytes, int] = {}
        self.wakers: list[tuple[Any, int]] = []
        proxy.router.holding = Holding(30.0)
        proxy.loop.waiting_limit = 2_000_000
        proxy.options.queue_pause_bytes = 200_000
        proxy.router.mover = SimpleNamespace(need=self.need)  # type: ignore[assignment]
        proxy.slow_path.handle = self.handle  # type: ignore[method-assign]

    def need(self, session: Any, database: int, missing: list[tuple[int, bytes]], *_: Any) -> None:
        """The mover: it answers at once, or later."""
        if self.rand.random() < 0.2:
            session.wake(self.proxy.router.generation)
        else:
            self.wakers.append((session, self.proxy.router.generation))

    async def ask(self, name: bytes) -> bytes:
        return await self.proxy.router.shared_backend(self.address).ask(command(("GET", name)))

    async def wait_some(self, name: bytes) -> None:
        """Wait in one of all ways."""
        loop = asyncio.get_running_loop()
        match self.rand.randrange(8):
            case 0:
                await asyncio.sleep(0)
            case 1:
                await asyncio.sleep(self.rand.random() * 0.003)
            case 2:
                future = loop.create_future()
                loop.call_soon(future.set_result, None)
                await future
            case 3 | 4:
                if await self.ask(name) != bulk(name):
                    self.wrong.append(("another's reply", name))
            case 5:
                await asyncio.gather(self.ask(name), self.ask(name))
            case 6:
                reply = Reply()
                if self.rand.random() < 0.5:
                    reply.give(b"x")
                else:
                    loop.call_soon(reply.give, b"x")
                await reply
            case 7:
                await asyncio.create_task(self.ask(name))

    async def handler(self, session: Any, name: bytes, kind: int) -> Any:
        self.begun[name] = self.begun.get(name, 0) + 1
        try:
            for _ in range(self.rand.randrange(4)):
                await self.wait_some(name)
            if kind & 1:
                await nothing_owed()
                if session.owed:
                    self.wrong.append("owed")
            if not kind & 2:
                return bulk(name)
            slot, address = await clear([name])
            if self.proxy.router.route(slot)[0] == LOCKED:
                self.wrong.append("locked")
            request = PING + command(("GET", name))
            if kind & 4:
                return Unit(slot, address, request, 1)
            backend = self.proxy.router.shared_backend(address)
            return await slotrequests.send(self.proxy.router, slot, backend, request, 1, slotrequests.as_it_came)
        finally:
            if kind & 8 and sys.exc_info()[0] is asyncio.CancelledError:
                await self.tidy_up(name)
            self.ended[name] = self.ended.get(name, 0) + 1

    async def tidy_up(self, name: bytes) -> None:
        await self.wait_some(name)
        try:
            await clear([name])
        except Answered:
            await self.wait_some(name)

    async def later(self, name: bytes) -> bytes:
        await self.wait_some(name)
        return bulk(name)

    def handle(self, session: Any, argv: list[bytes]) -> Any:
        if argv[0] == b"ECHO":
            return self.handler(session, argv[1], int(argv[2]))
        return Later(self.later(argv[1])) if argv[0] == b"TIME" else bulk(argv[1])

    async def client(self, number: int) -> None:
        """Send requests, take some of the replies or all, and leave."""
        rand = self.rand
        requests, want = [], b""
        for index in range(rand.randrange(1, 60)):
            name = b"c%dn%d" % (number, index)
            match rand.randrange(8):
                case 0:
                    requests.append(command(("GET", name)))
                case 1:
                    requests.append(command(("TIME", name)))
                case 2:
                    requests.append(command(("PUBSUB", name)))
                case _:
                    pad = b"p" * rand.choice([0, 0, 0, 0, 0, 300_000])
                    requests.append(command(("ECHO", name, rand.randrange(16), pad)))
            want += bulk(name)
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        session = Session(self.proxy.router, theirs, f"client {number}", number)
        loop = asyncio.get_running_loop()
        sending = asyncio.create_task(loop.sock_sendall(ours, b"".join(requests)))
        leaves_early = rand.random() < 0.5
        stop = rand.randrange(1, len(want) + 1) if leaves_early else len(want)
        got = b""
        async with asyncio.timeout(SECONDS):
            while len(got) < stop and (piece := await loop.sock_recv(ours, stop - len(got))):
                got += piece
        if got != want[:stop]:
            self.wrong.append(("replies", got[-60:], want[max(0, len(got) - 60) :][:120]))
        if leaves_early and rand.random() < 0.5:
            session.close()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        ours.close()

    def set_routes(self, state: int, migration: int) -> None:
        for slot in range(SLOTS):
            self.proxy.router.set_route(slot, state, self.address, migration if state == MIGRATING else 0)
        self.proxy.router.next_generation()
        self.proxy.router.holding.release()

    async def change(self) -> None:
        """Change the table, and wake and resume sessions, with a reason and without."""
        rand, number = self.rand, 0
        while True:
            await asyncio.sleep(rand.random() * 0.004)
            dice = rand.random()
            if dice < 0.3:
                number += 1
                self.set_routes(rand.choice([LOCKED, OPEN, MIGRATING]), number)
            if dice < 0.8:
                while self.wakers:
                    session, generation = self.wakers.pop(rand.randrange(len(self.wakers)))
                    session.wake(generation)
            else:
                for session in list(self.proxy.router.sessions):
                    rand.choice([session.wake, session.resume_reading])()


async def play(seed: int) -> None:
    """All clients of one seed."""
    rand = random.Random(seed)

    async def serve(visit: Visit, words: list[bytes]) -> None:
        if rand.random() < 0.1:
            await asyncio.sleep(rand.random() * 0.003)
        visit.say(bulk(words[1]) if words[0] == b"GET" else b"+OK\r\n")

    async with Server(serve) as server:
        with engine(server.address, session_max_pipeline=64) as proxy:
            run = Run(rand, proxy, server.address)
            changing = asyncio.create_task(run.change())
            for first in range(0, CLIENTS, 8):
                await asyncio.gather(*(run.client(first + number) for number in range(8)))
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
            for session in list(proxy.router.sessions):
                session.close()
            run.set_routes(OPEN, 0)
            while run.wakers:
                run.wakers.pop()[0].wake()
            await until(lambda: run.begun == run.ended)
            await until(lambda: not any(proxy.loop.slot_in_flight(slot) for slot in range(SLOTS)))
            proxy.router.holding.forget_closed()
            await until(lambda: proxy.loop.kept == 0 and proxy.loop.waiting == 0)
            assert run.wrong == []
            assert set(run.begun.values()) == {1}
            assert proxy.mistakes == []


def nothing_is_left() -> bool:
    """Whether there is no session any more, and no reply."""
    gc.collect()
    return not any(type(thing) in (Session, Reply) for thing in gc.get_objects())


@pytest.mark.parametrize("seed", range(20))
async def test_clients_leave_at_any_moment(seed: int) -> None:
    await play(seed)
    await until(nothing_is_left)
