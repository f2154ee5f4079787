"""A request is counted once, however often it is looked at."""

import asyncio
from typing import Any

import pytest

from proxy.engine.outcomes import AFTER_OWED, Last, Later, Unit, clear, nothing_owed
from proxy.engine.router import LOCKED, OFFLINE
from tests.unit.proxy.engine.inprocess import Engine, Server, engine, nothing_stored, until

PING = b"*1\r\n$4\r\nPING\r\n"


async def at_once() -> bytes:
    return b"+PONG\r\n"


async def after_a_while() -> bytes:
    await asyncio.sleep(0.001)
    return b"+PONG\r\n"


async def unit(waits: bool) -> Unit:
    await nothing_owed()
    if waits:
        await asyncio.sleep(0.001)
    slot, address = await clear([b"key"])
    return Unit(slot, address, PING + PING, 1)


def outcomes(proxy: Engine, *given: Any) -> None:
    """Have the slow path decide so about ECHO, one after the other."""
    left = list(given)
    proxy.slow_path.handlers[b"ECHO"] = lambda: left.pop(0)() if len(left) > 1 else left[0]()


WAYS = {
    "a reply": [lambda: b"+PONG\r\n"],
    "the last reply": [lambda: Last(b"+PONG\r\n")],
    "keys": [lambda: [b"key"]],
    "steps": [at_once],
    "steps that wait": [after_a_while],
    "a unit": [lambda: unit(False)],
    "a unit after a while": [lambda: unit(True)],
    "a reply later": [lambda: Later(after_a_while())],
    "after what is owed": [lambda: AFTER_OWED, lambda: b"+PONG\r\n"],
}


@pytest.mark.parametrize("way", WAYS)
async def test_of_the_slow_path(way: str) -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            outcomes(proxy, *WAYS[way])
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(5) in (b"+PONG", b"+OK\r\n")
            assert proxy.loop.requests == 1


@pytest.mark.parametrize(
    "request_", [("GET", "a"), ("MGET", "a", "b"), ("MSET", "a", 1, "b", 2), ("DEL", "a", "b"), ("DEL", "a")]
)
async def test_of_slots_that_nobody_owns(request_: tuple[str | int, ...]) -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            for slot in range(16):
                proxy.router.set_route(slot, OFFLINE, None, 0)
            client = proxy.connect()
            await client.send(request_)
            assert (await client.read(10)).startswith(b"-ERR slot ")
            await until(lambda: proxy.loop.requests == 1)


async def test_an_empty_line_is_none() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send_bytes(b"\r\n*0\r\n\r\n" + PING)
            assert await client.read(7) == b"+PONG\r\n"
            assert proxy.loop.requests == 1


async def test_one_whose_client_leaves_while_it_waits() -> None:
    """given a request behind it, which is not looked at and not counted."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            proxy.route(LOCKED, server.address)
            await client.send(("GET", "a"), ("GET", "b"))
            await until(lambda: client.session.waits)
            client.say_no_more()
            await until(lambda: client.session.has_left())
            client.session.wake()
            await until(lambda: client.session.closed)
            assert proxy.loop.requests == 1
