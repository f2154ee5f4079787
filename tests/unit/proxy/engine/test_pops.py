"""Pops take what is there over the connection that sessions share; plain Python gets them if there is nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import GATED, Reply
from proxy.engine.router import LOCKED, OFFLINE, OPEN
from proxy.engine.session import Session
from tests.unit.proxy.engine.inprocess import Answer, Engine, Server, Visit, engine, nobody_listens, once, until

POP = ("BLPOP", "{t}q", 0)
ELEMENT = b"*2\r\n$4\r\n{t}q\r\n$1\r\nx\r\n"
WAITED = b"+WAITED\r\n"


def answering(last: bytes, queued: bytes = b"+QUEUED\r\n") -> Answer:
    """Answer MULTI, the pop and EXEC."""

    async def answer(visit: Visit, words: list[bytes]) -> None:
        visit.say({b"MULTI": b"+OK\r\n", b"EXEC": last, b"GET": b"$-1\r\n"}.get(words[0], queued))

    return answer


class PlainPython:
    """Plain Python: it is asked to have a request wait, and answers at once, or when told to."""

    def __init__(self, proxy: Engine, at_once: bool = True) -> None:
        self.asked: list[list[bytes]] = []
        self.waits = 0
        """How often it was asked only that a request waits, for which there is nothing."""
        self.reply: Reply[bytes] = Reply()
        self.at_once = at_once
        proxy.slow_path.handle = self.handle  # type: ignore[method-assign]
        proxy.router.blocking = self  # type: ignore[assignment]

    def handle(self, session: Session, argv: list[bytes]) -> Any:
        self.asked.append(argv)
        return WAITED if self.at_once else self.wait()

    def begin_wait(self, session: Session, argv: list[bytes], heard: Callable[[bytes], None]) -> Any:
        self.waits += 1
        return self.handle(session, argv)

    async def wait(self) -> bytes:
        return await self.reply


@pytest.mark.parametrize(
    "request_",
    [
        POP,
        ("brpop", "{t}q", "{t}r", "0"),
        ("BLMOVE", "{t}q", "{t}r", "LEFT", "RIGHT", "0"),
        ("BRPOPLPUSH", "{t}q", "{t}r", "0"),
        ("BLMPOP", "0", "2", "{t}q", "{t}r", "LEFT"),
        ("BZPOPMIN", "{t}q", "0"),
        ("BZMPOP", "0", "1", "{t}q", "MIN"),
    ],
)
async def test_what_is_there_is_taken_in_one_piece_and_nothing_looks_at_it(request_: tuple[str | int, ...]) -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send(request_, ("GET", "k"))
            assert await client.read(len(ELEMENT) + 5) == ELEMENT + b"$-1\r\n"
            words = [str(word).encode() for word in request_]
            assert server.asked == [[b"MULTI"], words, [b"EXEC"], [b"GET", b"k"]]
            assert python.asked == []
            assert proxy.loop.requests == 2
            assert all(proxy.loop.slot_in_flight(slot) == 0 for slot in range(16))
            assert (client.session.unparsed, client.session.kept) == (0, 0)


@pytest.mark.parametrize("nothing", [b"*-1\r\n", b"_\r\n", b"*1\r\n*-1\r\n", b"*1\r\n$-1\r\n", b"*1\r\n_\r\n"])
async def test_plain_python_has_it_wait_if_there_is_nothing(nothing: bytes) -> None:
    async with Server(answering(nothing)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy, at_once=False), proxy.connect()
            await client.send(POP, ("GET", "k"))
            await until(lambda: bool(python.asked))
            assert python.asked == [[b"BLPOP", b"{t}q", b"0"]]
            assert len(server.asked) == 3, "in-order: nothing behind it is looked at"
            python.reply.give(WAITED)
            assert await client.read(len(WAITED) + 5) == WAITED + b"$-1\r\n"
            assert proxy.loop.requests == 2
            # The next one is tried like the first.
            await client.send(POP)
            await until(lambda: len(python.asked) == 2)
            assert server.asked[-3:] == [[b"MULTI"], [b"BLPOP", b"{t}q", b"0"], [b"EXEC"]]


async def test_an_inline_one() -> None:
    async with Server(answering(b"*1\r\n*-1\r\n")) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send_bytes(b'BLPOP "{t}q" 0\r\nGET k\r\n')
            assert await client.read(len(WAITED) + 5) == WAITED + b"$-1\r\n"
            assert python.asked == [[b"BLPOP", b"{t}q", b"0"]]


@pytest.mark.parametrize("queued", [b"-OOM command not allowed\r\n", b"-ERR unknown command\r\n"])
async def test_a_refusal_is_asked_for_again_without_multi(queued: bytes) -> None:
    async with Server(answering(b"-EXECABORT Transaction discarded\r\n", queued)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send(POP)
            assert await client.read(len(WAITED)) == WAITED
            assert len(python.asked) == 1


@pytest.mark.parametrize("error", [b"*1\r\n-WRONGTYPE Operation\r\n", b"-LOADING Redis\r\n"])
async def test_an_error_is_the_reply(error: bytes) -> None:
    async with Server(answering(error)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send(POP)
            expected = error.removeprefix(b"*1\r\n")
            assert await client.read(len(expected)) == expected
            assert python.asked == []


async def test_drained_it_waits_out_a_lock() -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            proxy.route(LOCKED, server.address)
            await client.send(POP)
            await until(lambda: client.session.waits)
            assert server.asked == []
            proxy.route(OPEN, server.address)
            proxy.router.next_generation()
            proxy.router.holding.release()
            assert await client.read(len(ELEMENT)) == ELEMENT
            assert python.asked == []
            assert proxy.loop.requests == 1


async def test_a_slot_without_a_server_is_for_plain_python() -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            proxy.route(OFFLINE, None)
            await client.send(POP)
            assert await client.read(len(WAITED)) == WAITED
            assert (len(python.asked), server.asked) == (1, [])


@pytest.mark.parametrize(
    "request_",
    [
        ("BLPOP", "{t}q"),
        ("BLPOP", "{t}q", "another slot", 0),
        ("BLMOVE", "{t}q", "{t}r", "LEFT", "RIGHT"),
        ("BLMPOP", "0", "x", "{t}q", "LEFT"),
        ("BLMPOP", "0", "9", "{t}q", "LEFT"),
    ],
)
async def test_what_is_not_plainly_right_is_for_plain_python(request_: tuple[str | int, ...]) -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send(request_)
            assert await client.read(len(WAITED)) == WAITED
            assert (len(python.asked), server.asked) == (1, [])


async def test_a_client_that_has_not_logged_in() -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            client.session.attention = GATED
            await client.send(POP)
            assert await client.read(len(WAITED)) == WAITED
            assert (len(python.asked), server.asked) == (1, [])


async def test_drained_it_counts_for_its_slot_until_it_is_answered() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, answering(b"*1\r\n" + ELEMENT))) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(POP)
            await until(lambda: any(proxy.loop.slot_in_flight(slot) == 3 for slot in range(16)))
            # Even if its client leaves: it may run all the same.
            client.hang_up()
            await asyncio.sleep(0.01)
            assert sum(proxy.loop.slot_in_flight(slot) for slot in range(16)) == 3
            let_go.set()
            await until(lambda: all(proxy.loop.slot_in_flight(slot) == 0 for slot in range(16)))
            await until(lambda: client.session.closed)
            assert proxy.mistakes == []


async def test_a_server_that_is_lost_is_an_error() -> None:
    async def hang_up(visit: Visit, words: list[bytes]) -> None:
        visit.hang_up()

    async with Server(hang_up) as server:
        with engine(server.address) as proxy:
            python, client = PlainPython(proxy), proxy.connect()
            await client.send(POP)
            assert b"closed the connection" in await client.read_line()
            # Nobody knows what was taken.
            assert python.asked == []


async def test_muted_replies_and_what_is_behind_a_client_that_left() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, answering(b"*1\r\n" + ELEMENT))) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(POP, ("GET", "behind"))
            await until(lambda: bool(server.asked))
            client.say_no_more()
            let_go.set()
            await until(lambda: client.session.closed)
            assert server.asked[-1] == [b"EXEC"]
            muted = proxy.connect()
            muted.session.muted = 1
            await muted.send(POP)
            await until(lambda: muted.session.taken == 1)
            muted.session.muted = 0
            await muted.send(("GET", "k"))
            assert await muted.read(5) == b"$-1\r\n"


async def test_command_bytes_are_the_clients_own() -> None:
    async with Server(answering(b"*1\r\n" + ELEMENT)) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send_bytes(command(("bLpOp", b"{t}\x00\r\n", b"0.50")))
            await client.read(len(ELEMENT))
            assert server.asked[1] == [b"bLpOp", b"{t}\x00\r\n", b"0.50"]


async def test_while_its_server_is_down_it_is_an_error_at_once() -> None:
    """Nothing is queued for a connection that nobody opens: there would never be a reply."""
    with nobody_listens() as address, engine(address) as proxy:
        proxy.options.retry_seconds_min = proxy.options.retry_seconds_max = 1e9
        python, client = PlainPython(proxy), proxy.connect()
        for request in (("GET", "k"), POP, POP):
            await client.send(request)
            assert b"cannot be connected to" in await client.read_line()
        assert (proxy.router.shared_backend(address).queued, python.asked) == (0, [])


async def test_nothing_goes_on_with_a_request_about_which_a_server_was_asked() -> None:
    """It would be run twice, or its answer be given to the next one."""
    let_go = asyncio.Event()
    async with Server(once(let_go, answering(b"*1\r\n" + ELEMENT))) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(POP, ("GET", "k"))
            await until(lambda: bool(server.asked))
            client.session.wake()
            client.session.complete(b"+WRONG\r\n")
            let_go.set()
            assert await client.read(len(ELEMENT) + 5) == ELEMENT + b"$-1\r\n"
            assert [words[0] for words in server.asked] == [b"MULTI", b"BLPOP", b"EXEC", b"GET"]
