"""SCAN's pages in the middle of a server go from socket to socket; plain Python gets all others."""

import asyncio
from typing import Any

import pytest

from proxy.commands.keyspace.scancursor import Cursor
from proxy.engine.keylist import HERE, HERE_OR_THERE, HIDDEN
from proxy.engine.outcomes import LIMITED
from proxy.engine.scans import Pages
from proxy.engine.session import Session
from slots.functions import slot as slot_by
from tests.unit.proxy.engine.inprocess import (
    SLOTS,
    Answer,
    Client,
    Engine,
    Server,
    Visit,
    engine,
    nobody_listens,
    once,
    until,
)

EPOCH = 7
GROUP = 3
REST = Cursor(0, EPOCH, GROUP, 0).pack()
PYTHON = b"+PYTHON\r\n"
RESERVED = b"__slotferry:"


def at(position: int) -> int:
    """The scan's cursor at a position of the group."""
    return Cursor(0, EPOCH, GROUP, position).pack()


def page(cursor: int | str, *keys: str) -> bytes:
    """A page as a server gives it."""
    texts = [str(cursor), *keys]
    first, *others = [b"$%d\r\n%b\r\n" % (len(text), text.encode()) for text in texts]
    return b"*2\r\n" + first + b"*%d\r\n" % len(others) + b"".join(others)


def giving(reply: bytes) -> Answer:
    async def answer(visit: Visit, words: list[bytes]) -> None:
        visit.say(reply if words[0] == b"SCAN" else b"$-1\r\n")

    return answer


class Python:
    """The slow path: it notes what it is asked."""

    def __init__(self, proxy: Engine) -> None:
        self.asked: list[list[bytes]] = []
        proxy.slow_path.handle = self.handle  # type: ignore[method-assign]

    def handle(self, session: Session, argv: list[bytes]) -> Any:
        self.asked.append(argv)
        return PYTHON


def prepared(proxy: Engine, address: str, shown: bytes = bytes([HERE]) * SLOTS) -> tuple[Python, Client]:
    """Plain Python has told the engine how to scan the one group."""
    proxy.router.pages = Pages(proxy.router.generation, {REST: (address, shown)}, REST, RESERVED)
    return Python(proxy), proxy.connect()


@pytest.mark.parametrize(
    ("options", "given"), [((), b"0"), (("MATCH", "a*", "count", "500", "TYPE", "string"), b"17"), ((), b"4294967295")]
)
async def test_a_page_in_the_middle(options: tuple[str, ...], given: bytes) -> None:
    reply = page(4294967295, "a", "bb", "")
    async with Server(giving(reply)) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            cursor = at(int(given)) if given != b"0" else 0
            await client.send(("scan", cursor, *options), ("GET", "k"))
            expected = page(at(4294967295), "a", "bb", "") + b"$-1\r\n"
            assert await client.read(len(expected)) == expected
            assert server.asked == [[b"SCAN", given, *(word.encode() for word in options)], [b"GET", b"k"]]
            assert python.asked == []
            assert proxy.loop.requests == 2
            assert client.session.kept == 0


async def test_owned_keys_of_other_slots_and_slotferrys_own_are_hidden() -> None:
    keys = [f"k{number}" for number in range(64)]
    marks = bytes([HIDDEN, HERE, HERE_OR_THERE, HERE] * (SLOTS // 4))
    reply = page(9, *keys, RESERVED.decode() + "x", keys[0], keys[2])
    async with Server(giving(reply)) as server:
        with engine(server.address) as proxy:
            _, client = prepared(proxy, server.address, marks)
            await client.send(("SCAN", 0))
            shown = [key for key in [*keys, keys[0], keys[2]] if marks[slot_by("crc32", key.encode(), SLOTS)] == HERE]
            moving = {key: None for key in keys if marks[slot_by("crc32", key.encode(), SLOTS)] == HERE_OR_THERE}
            assert moving
            assert len(shown) > 8
            expected = page(at(9), *shown, *moving)
            assert await client.read(len(expected)) == expected


@pytest.mark.parametrize(
    "reply",
    [
        page(0, "a"),
        page(4294967296, "a"),
        page("x", "a"),
        page("99999999999999999999999", "a"),
        page(5, *["k"] * 1001),
        b"*2\r\n$1\r\n5\r\n*1\r\n:1\r\n",
        b"*2\r\n$1\r\n5\r\n$1\r\na\r\n",
        b"*0\r\n",
        b"-ERR syntax error\r\n",
        b"$-1\r\n",
    ],
)
async def test_the_last_page_and_anything_else_is_for_plain_python(reply: bytes) -> None:
    async with Server(giving(reply)) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            await client.send(("SCAN", at(3), "COUNT", 10), ("GET", "k"))
            assert await client.read(len(PYTHON) + 5) == PYTHON + b"$-1\r\n"
            assert python.asked == [[b"SCAN", b"%d" % at(3), b"COUNT", b"10"]]
            assert proxy.loop.requests == 2


@pytest.mark.parametrize(
    "request_",
    [
        ("SCAN",),
        ("SCAN", "x"),
        ("SCAN", ""),
        ("SCAN", "-1"),
        ("SCAN", "+1"),
        ("SCAN", "9" * 19),
        ("SCAN", Cursor(1, EPOCH, GROUP, 5).pack()),
        ("SCAN", Cursor(0, EPOCH - 1, GROUP, 5).pack()),
        ("SCAN", Cursor(0, EPOCH, GROUP + 1, 5).pack()),
        ("SCAN", 0, "COUNT", 1000),
        ("SCAN", 0, "MATCH", "*", "COUNT", "100000"),
    ],
)
async def test_what_the_engine_was_not_told_of_is_for_plain_python(request_: tuple[str | int, ...]) -> None:
    async with Server(giving(page(5, "a"))) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            await client.send(request_)
            assert await client.read(len(PYTHON)) == PYTHON
            assert (len(python.asked), server.asked) == (1, [])


async def test_another_table_before_the_request_and_while_the_page_comes() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, giving(page(5, "a")))) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            await client.send(("SCAN", 0))
            await until(lambda: bool(server.asked))
            proxy.router.next_generation()
            let_go.set()
            assert await client.read(len(PYTHON)) == PYTHON
            await client.send(("SCAN", 0))
            assert await client.read(len(PYTHON)) == PYTHON
            assert len(server.asked) == 1
            assert len(python.asked) == 2


@pytest.mark.parametrize("told", [False, True])
async def test_without_groups(told: bool) -> None:
    async with Server(giving(page(5, "a"))) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            proxy.router.pages = Pages(proxy.router.generation, {}, None, RESERVED) if told else None
            await client.send(("SCAN", 0), ("SCAN", at(1)))
            assert await client.read(2 * len(PYTHON)) == 2 * PYTHON
            assert len(python.asked) == 2


async def test_a_user_who_may_not_use_the_database() -> None:
    async with Server(giving(page(5, "a"))) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            client.session.attention = LIMITED
            await client.send(("SCAN", 0))
            assert await client.read(len(PYTHON)) == PYTHON
            assert (len(python.asked), server.asked) == (1, [])


async def test_a_server_that_is_lost() -> None:
    async def hang_up(visit: Visit, words: list[bytes]) -> None:
        visit.hang_up()

    async with Server(hang_up) as server:
        with engine(server.address) as proxy:
            python, client = prepared(proxy, server.address)
            await client.send(("SCAN", 0))
            # Plain Python asks again, and says what there is to say.
            assert await client.read(len(PYTHON)) == PYTHON
            assert len(python.asked) == 1


async def test_while_its_server_is_down_it_is_an_error_at_once() -> None:
    """Nothing is queued for a connection that nobody opens: there would never be a reply."""
    with nobody_listens() as address, engine(address) as proxy:
        proxy.options.retry_seconds_min = proxy.options.retry_seconds_max = 1e9
        python, client = prepared(proxy, address)
        for request in (("GET", "k"), ("SCAN", at(3)), ("SCAN", at(3))):
            await client.send(request)
            assert b"cannot be connected to" in await client.read_line()
        assert (proxy.router.shared_backend(address).queued, python.asked) == (0, [])
