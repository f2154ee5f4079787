"""Random pipelines to the engine while the table changes: each request has one reply, in order, and runs once.

The handlers wait in every way that there is: for keys, for what is owed, for futures, in any order. They fail, and give
their replies later. The table locks slots, has them migrate, and wakes sessions at any moment.
"""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import AFTER_OWED, MUTED_ONCE, NO_REPLY, Answered, Later, Unit, clear, nothing_owed
from proxy.engine.router import LOCKED, MIGRATING, OPEN
from proxy.worker.holding import Holding
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, until

SECONDS = 120.0


@pytest.mark.parametrize("seed", range(60))
async def test_pipelines_while_the_table_changes(seed: int) -> None:
    rand = random.Random(seed)
    ran: dict[bytes, int] = {}
    begun: dict[bytes, int] = {}
    wrong: list[str] = []
    state = OPEN

    async def serve(visit: Visit, words: list[bytes]) -> None:
        if rand.random() < 0.1:
            await asyncio.sleep(rand.random() * 0.003)
        if words[0] == b"GET":
            ran[words[1]] = ran.get(words[1], 0) + 1
            visit.say(b"$%d\r\n%b\r\n" % (len(words[1]), words[1]))
        elif words[0] == b"MGET":
            visit.say(b"*%d\r\n" % (len(words) - 1) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words[1:]))
        else:
            visit.say(b"+OK\r\n")

    async with Server(serve) as server:
        with engine(server.address, session_max_pipeline=64) as proxy:
            proxy.router.holding = holding = Holding(30.0)
            proxy.loop.waiting_limit = 2_000_000
            wakers: list[Any] = []

            def need(session: Any, database: int, missing: Any, deadline: Any = None, asks: bool = False) -> None:
                wakers.append((session, proxy.router.generation))

            proxy.router.mover = SimpleNamespace(need=need)  # type: ignore[assignment]

            async def wait_some() -> None:
                kind = rand.randrange(4)
                if kind == 0:
                    await asyncio.sleep(0)
                elif kind == 1:
                    await asyncio.sleep(rand.random() * 0.004)
                elif kind == 2:
                    future = asyncio.get_running_loop().create_future()
                    asyncio.get_running_loop().call_soon(future.set_result, None)
                    await future

            async def carried(session: Any, name: bytes, kind: int) -> Any:
                begun[name] = begun.get(name, 0) + 1
                bulk = b"$%d\r\n%b\r\n" % (len(name), name)
                if kind & 1:
                    await wait_some()
                if kind & 2:
                    await nothing_owed()
                    if session.owed:
                        wrong.append("owed")
                    if kind & 4:
                        await wait_some()
                if kind & 8:
                    many = [b"{x}%d" % number for number in range(300)] if kind & 16 else []
                    try:
                        slot, address = await clear([name, *many] if not many else [b"{x}" + name, *many])
                    except Answered:
                        return bulk
                    if proxy.router.route(slot)[0] == LOCKED:
                        wrong.append("locked")
                    return Unit(slot, address, command(("PING",)) * 2 + command(("GET", name)), 2)
                if kind & 32:
                    raise ValueError("on purpose")
                return bulk

            async def later(name: bytes) -> bytes:
                await wait_some()
                return b"$%d\r\n%b\r\n" % (len(name), name)

            def handle(session: Any, argv: list[bytes]) -> Any:
                if argv[0] == b"ECHO":
                    return carried(session, argv[1], int(argv[2]))
                if argv[0] == b"TIME":
                    return Later(later(argv[1]))
                if argv[0] == b"PUBSUB":
                    return b"$%d\r\n%b\r\n" % (len(argv[1]), argv[1])
                if argv[0] == b"CLIENT":
                    session.muted = MUTED_ONCE
                    return NO_REPLY
                if argv[0] == b"WAIT" and session.owed:
                    return AFTER_OWED
                return b"$%d\r\n%b\r\n" % (len(argv[1]), argv[1])

            proxy.slow_path.handle = handle  # type: ignore[method-assign]
            client = proxy.connect()
            requests, expected = [], []
            muted = False
            for index in range(300):
                name = b"n%d" % index
                reply = b"$%d\r\n%b\r\n" % (len(name), name)
                choice = rand.randrange(9)
                if choice < 4:
                    kind = rand.randrange(64)
                    pad = b"p" * (rand.choice([0, 0, 0, 0, 0, 300_000]))
                    requests.append(command(("ECHO", name, kind, pad)))
                    if kind & 32 and not kind & 8:
                        reply = b"-ERR the proxy failed to run this command; its log says why\r\n"
                elif choice == 4:
                    requests.append(command(("GET", name)))
                elif choice == 5:
                    requests.append(command(("TIME", name)))
                    # A confirmation, as of a subscription, is never muted.
                    muted = False
                elif choice == 6:
                    requests.append(b"ECHO %b %d\r\n" % (name, rand.randrange(32)))
                elif choice == 7:
                    requests.append(command((rand.choice(["PUBSUB", "WAIT"]), name)))
                else:
                    requests.append(command(("CLIENT", "x", "y")))
                    muted = True
                    continue
                expected.append(b"" if muted else reply)
                muted = False
            data = b"".join(requests)
            want = b"".join(expected)

            async def send() -> None:
                position = 0
                while position < len(data):
                    size = rand.choice([1, 7, 100, 5000, 100_000, 1_000_000])
                    await client.send_bytes(data[position : position + size])
                    position += size
                    if rand.random() < 0.3:
                        await asyncio.sleep(rand.random() * 0.003)

            async def change() -> None:
                nonlocal state
                number = 0
                while True:
                    await asyncio.sleep(rand.random() * 0.004)
                    dice = rand.random()
                    if dice < 0.35:
                        state = rand.choice([LOCKED, OPEN, MIGRATING])
                        number += 1
                        for slot in range(16):
                            proxy.router.set_route(slot, state, server.address, number if state == MIGRATING else 0)
                        proxy.router.next_generation()
                        holding.release()
                    if dice < 0.8:
                        while wakers:
                            session, generation = wakers.pop(rand.randrange(len(wakers)))
                            session.wake(generation)
                    elif dice < 0.9:
                        client.session.wake()

            async def churn() -> None:
                while True:
                    await asyncio.sleep(rand.random() * 0.01)
                    holding.expire()

            tasks = [asyncio.create_task(coroutine) for coroutine in (send(), change(), churn())]
            try:
                got = await client.read(len(want), SECONDS)
            finally:
                for task in tasks:
                    task.cancel()
            same = next(
                (place for place, pair in enumerate(zip(got, want, strict=False)) if len(set(pair)) > 1), len(got)
            )
            assert got == want, (same, got[same - 60 : same + 80], want[same - 60 : same + 80])
            assert not wrong
            assert all(count == 1 for count in begun.values()), begun
            assert all(count == 1 for count in ran.values()), ran
            assert all("on purpose" in text for text in proxy.mistakes), proxy.mistakes
            await until(lambda: all(proxy.loop.slot_in_flight(slot) == 0 for slot in range(16)))
