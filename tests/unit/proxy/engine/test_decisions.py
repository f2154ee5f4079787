"""A mistake in what plain Python decides costs only the session that sent the request."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.engine.outcomes import Later
from proxy.engine.router import LOCKED, OPEN
from tests.unit.proxy.engine.inprocess import Server, engine, nothing_stored, until


def fail() -> bytes:
    raise RuntimeError("a handler's mistake")


async def test_in_what_comes_next_when_held_requests_are_let_go() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = fail
            one, two = proxy.connect(), proxy.connect()
            proxy.route(LOCKED, server.address)
            await one.send(("GET", "k"), ("ECHO", "x"), ("PING",))
            await two.send(("GET", "k"))
            await until(lambda: len(proxy.router.holding) == 2)
            proxy.route(OPEN, server.address)
            proxy.router.holding.release()
            assert await two.read(5) == b"$-1\r\n"
            assert one.session.closed
            assert not two.session.closed
            assert proxy.mistakes == ["a handler's mistake"]


async def test_in_what_comes_next_when_a_server_has_room_again() -> None:
    """All sessions share the connection that has them go on."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = fail
            proxy.options.queue_pause_bytes = 1000
            one, two, other = proxy.connect(), proxy.connect(), proxy.connect()
            await other.send(("GET", "k"))
            assert await other.read(5) == b"$-1\r\n"
            await one.send(("SET", "k", "x" * 5000), ("ECHO", "x"))
            await two.send(("SET", "k", "x" * 5000), ("GET", "k"))
            assert await two.read(10) == b"+OK\r\n$-1\r\n"
            await until(lambda: one.session.closed)
            [backend] = proxy.router.shared_backends
            assert backend.connects == 1
            assert proxy.mistakes == ["a handler's mistake"]


async def fail_in_steps() -> bytes:
    return fail()


async def fail_after_a_while() -> bytes:
    await asyncio.sleep(0.001)
    return fail()


@pytest.mark.parametrize("how", [fail, fail_in_steps, fail_after_a_while, lambda: Later(fail_after_a_while())])
async def test_at_the_front(how: Callable[[], Any]) -> None:
    later = how is not fail
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = how
            one, two = proxy.connect(), proxy.connect()
            await two.send(("GET", "k"))
            assert await two.read(5) == b"$-1\r\n"
            await one.send(("GET", "k"), ("ECHO", "x"), ("GET", "k"))
            if later:
                error = b"-ERR the proxy failed to run this command; its log says why\r\n"
                expected = b"$-1\r\n" + error + b"$-1\r\n"
                assert await one.read(len(expected)) == expected
            else:
                await until(lambda: one.session.closed)
            await two.send(("GET", "k"))
            assert await two.read(5) == b"$-1\r\n"
            assert proxy.mistakes == ["a handler's mistake"]
