"""How the waiting of a handler ends: once, with what it waited for, and never not at all."""

import asyncio
import gc
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import Reply, Unit, clear
from proxy.engine.refusals import FAILED
from proxy.engine.router import LOCKED, MIGRATING
from proxy.engine.session import Session
from proxy.servers import slotrequests
from tests.unit.proxy.engine.inprocess import Engine, Server, Visit, engine, nothing_stored, once, until

GET = command(("GET", "k"))
ECHO = command(("ECHO", "x"))


def mover(proxy: Engine) -> list[Any]:
    """Have all slots in migration; gives the list of who asked for keys, with them."""
    needed: list[Any] = []
    proxy.router.mover = SimpleNamespace(  # type: ignore[assignment]
        need=lambda session, database, missing, *_: needed.append(missing)
    )
    return needed


def echo_from_client_of_its_own(proxy: Engine, number: int) -> socket.socket:
    """A client that only the engine knows sends an ECHO; gives the client's end."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    Session(proxy.router, theirs, "client", number)
    ours.send(ECHO)
    return ours


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_without_an_outcome(waits: bool) -> None:
    async def handler() -> None:
        if waits:
            await asyncio.sleep(0.001)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            assert await client.read(100) == b""
            assert len(proxy.mistakes) == 1


async def test_absent_first_what_wakes_an_earlier_wait_says_nothing_about_later_keys() -> None:
    future = asyncio.get_running_loop().create_future()

    async def handler() -> Unit:
        begun.append(1)
        await future
        slot, address = await clear([b"k"])
        return Unit(slot, address, GET)

    begun: list[int] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            needed = mover(proxy)
            proxy.slow_path.handlers[b"ECHO"] = handler
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: bool(begun))
            client.session.wake(proxy.router.generation)
            future.set_result(None)
            await until(lambda: bool(needed))
            assert server.asked == []


async def test_keys_are_asked_for_once() -> None:
    """However often somebody says that there is room again."""

    async def handler() -> bytes:
        await clear([b"k"])
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            needed = mover(proxy)
            proxy.slow_path.handlers[b"ECHO"] = handler
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            await until(lambda: bool(needed))
            client.session.resume_reading()
            assert len(needed) == 1
            client.session.wake(proxy.router.generation)
            assert await client.read(12) == b"+OK\r\n+PONG\r\n"


@pytest.mark.parametrize("kind", ["bad key", "no mover"])
async def test_a_handler_tidies_up_after_a_mistake_of_the_engine(kind: str) -> None:
    steps: list[str] = []

    async def handler() -> bytes:
        try:
            await clear(["text"] if kind == "bad key" else [b"k"])  # type: ignore[list-item]
        finally:
            await asyncio.sleep(0)
            steps.append("tidied up")
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.router.mover = None  # type: ignore[assignment]
            proxy.slow_path.handlers[b"ECHO"] = handler
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(len(FAILED)) == FAILED
            assert steps == ["tidied up"]


async def test_a_reply_that_somebody_else_gives_up() -> None:
    async def handler() -> bytes:
        try:
            return await reply
        except asyncio.CancelledError:
            return b"+given up\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            reply = Reply()
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: reply.session is not None)
            reply.cancel()
            assert await client.read(11) == b"+given up\r\n"


async def test_two_handlers_may_await_one_reply() -> None:
    async def handler() -> bytes:
        begun.append(1)
        return await reply

    begun: list[int] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            reply = Reply()
            proxy.slow_path.handlers[b"ECHO"] = handler
            clients = proxy.connect("first"), proxy.connect("second", 1)
            for client in clients:
                await client.send(("ECHO", "x"))
            await until(lambda: len(begun) == 2)
            reply.give(b"+OK\r\n")
            for client in clients:
                assert await client.read(5) == b"+OK\r\n"


async def test_a_reply_of_which_nothing_can_be_made() -> None:
    def finish(reply: bytes) -> bytes:
        raise ValueError("on purpose")

    async def handler() -> bytes:
        slot, address = await clear([b"k"])
        backend = proxy.router.shared_backend(address)
        return await slotrequests.send(proxy.router, slot, backend, GET, 0, finish)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(len(FAILED)) == FAILED


async def test_a_client_that_a_handler_ends_does_not_wait_for_a_lock() -> None:
    steps: list[str] = []

    async def handler() -> bytes:
        client.session.close()
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await clear([b"k"])
            finally:
                steps.append("ended")
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            proxy.route(LOCKED, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: steps == ["ended"])


async def reply_of(proxy: Engine) -> bytes:
    """A handler that gives a reply after it has ended its client."""
    next(iter(proxy.router.sessions)).close()
    return b"+OK\r\n"


async def unit_of(proxy: Engine) -> Unit:
    """The same with a request."""
    next(iter(proxy.router.sessions)).close()
    slot, address = await clear([b"k"])
    return Unit(slot, address, GET)


async def late_reply_of(proxy: Engine) -> bytes:
    """It is not to be stopped."""
    session = next(iter(proxy.router.sessions))
    asyncio.get_running_loop().call_soon(session.close)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.001)
    return b"+OK\r\n"


def at_once(proxy: Engine) -> bytes:
    """A plain function."""
    next(iter(proxy.router.sessions)).close()
    return b"+OK\r\n"


@pytest.mark.parametrize("handler", [at_once, reply_of, unit_of, late_reply_of])
async def test_nothing_is_left_of_a_client_that_was_ended(handler: Callable[[Engine], Any]) -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = lambda: handler(proxy)
            for number in range(50):
                ours = echo_from_client_of_its_own(proxy, number)
                await until(lambda: not proxy.router.sessions)
                await asyncio.sleep(0.003)
                ours.close()
            await until(lambda: proxy.loop.kept == 0)
            gc.collect()
            assert not any(type(thing) is Session for thing in gc.get_objects())
            assert proxy.mistakes == []


async def test_only_the_engine_refers_to_a_client_that_has_gone() -> None:
    """Its handler has been told, and is yet to go on."""
    ended: list[bool] = []
    begun: list[bool] = []

    async def handler() -> bytes:
        begun.append(True)
        try:
            return await Reply()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            for number in range(20):
                ours = echo_from_client_of_its_own(proxy, number)
                await until(lambda: len(begun) > len(ended))
                next(iter(proxy.router.sessions)).close()
                # Behind what tells the handler, and before the turn in which it goes on.
                asyncio.get_running_loop().call_soon(gc.collect)
                await until(lambda: len(begun) == len(ended))
                ours.close()
            gc.collect()
            assert not any(type(thing) is Session for thing in gc.get_objects())


async def test_in_order_a_handler_that_waits_and_changes_the_protocol() -> None:
    """Another connection is used from there on: owed replies come first."""
    let_go = asyncio.Event()

    async def handler() -> bytes:
        await asyncio.sleep(0.001)
        client.session.protocol = 3
        return b"+OK\r\n"

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"first":
            await let_go.wait()
        visit.say(b"+%b\r\n" % words[1])

    async with Server(slowly) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("GET", "first"), ("ECHO", "x"), ("GET", "second"))
            await until(lambda: client.session.protocol == 3)
            await asyncio.sleep(0.02)
            assert [words[1] for words in server.asked] == [b"first"]
            let_go.set()
            assert await client.read(22) == b"+first\r\n+OK\r\n+second\r\n"


async def test_bounded_a_large_request_waits_for_room_whatever_its_handler_sends() -> None:
    let_go, go_on = asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    async def handler() -> Unit:
        steps.append("begun")
        await go_on.wait()
        slot, address = await clear([b"k"])
        steps.append("cleared")
        return Unit(slot, address, GET)

    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.loop.waiting_limit = 1_000_000
            proxy.options.queue_pause_bytes = 100_000_000
            proxy.slow_path.handlers[b"ECHO"] = handler
            large, other = proxy.connect(), proxy.connect("other", 1)
            sending = asyncio.create_task(large.send(("ECHO", "x" * 500_000)))
            await until(lambda: bool(steps))
            # More than the sockets take.
            filling = asyncio.create_task(other.send(("SET", "k", "x"), *[("SET", "k", "x" * 900_000)] * 20))
            await until(lambda: proxy.loop.waiting > 600_000)
            go_on.set()
            await asyncio.sleep(0.05)
            before = list(steps)
            let_go.set()
            assert await large.read(5) == b"$-1\r\n"
            await asyncio.gather(sending, filling)
            assert before == ["begun"]


async def test_nothing_is_run_for_a_client_that_left_though_each_wait_is_short() -> None:
    """It may have had a reply elsewhere meanwhile. The server holds its replies back, so nothing is sent to it."""
    begun: list[Any] = []

    def need(session: Any, *_: Any) -> None:
        begun.append(session)
        if len(begun) == 5:
            client.hang_up()
        asyncio.get_running_loop().call_soon(session.wake, proxy.router.generation)

    async with Server(once(asyncio.Event(), nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.router.mover = SimpleNamespace(need=need)  # type: ignore[assignment]
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(*[("SET", f"k{number}", "v") for number in range(30)])
            await until(lambda: len(begun) >= 5)
            await asyncio.sleep(0.05)
            assert len(begun) == 5
