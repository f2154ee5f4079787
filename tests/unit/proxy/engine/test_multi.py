"""Transactions of simple commands go from socket to socket; all others are handed over with what is queued."""

import asyncio
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.framing import EXEC, MULTI
from proxy.engine.outcomes import IN_TRANSACTION
from proxy.engine.rights import KEYED, CommandRights
from proxy.engine.router import LOCKED, MIGRATING, OFFLINE, OPEN
from proxy.engine.session import Session
from slots.keyaccess import READS, WRITES
from tests.unit.proxy.engine.inprocess import Client, Engine, Server, Visit, engine, once, until

QUEUED = b"+QUEUED\r\n"
TAKEN = b"+TAKEN\r\n"


async def run_at_exec(visit: Visit, words: list[bytes]) -> None:
    """Answer as a Redis server whose commands all say OK; the words of a transaction are not looked at."""
    last = [asked[0] for asked in visit.asked]
    if words[0] == b"MULTI":
        visit.say(b"+OK\r\n")
    elif words[0] == b"EXEC":
        begun = len(last) - 1 - last[::-1].index(b"MULTI")
        queued = len(last) - begun - 2
        visit.say(b"*%d\r\n" % queued + b"+OK\r\n" * queued)
    elif last.count(b"MULTI") > last.count(b"EXEC"):
        visit.say(QUEUED)
    else:
        visit.say(b"+OK\r\n")


class Taken:
    """What plain Python gets of a transaction."""

    def __init__(self, proxy: Engine) -> None:
        self.queued: list[list[bytes]] | None = None
        self.asked: list[list[bytes]] = []
        proxy.slow_path.take_transaction = self.take  # type: ignore[attr-defined]
        proxy.slow_path.handle = self.handle  # type: ignore[method-assign, assignment]

    def take(self, session: Session, requests: list[list[bytes]]) -> None:
        """It goes on in plain Python."""
        self.queued = requests
        session.attention |= IN_TRANSACTION

    def handle(self, session: Session, argv: list[bytes]) -> Any:
        """It decides about everything from now on."""
        self.asked.append(argv)
        return TAKEN


async def said(client: Client, *requests: tuple[bytes | str | int, ...]) -> list[bytes]:
    """The lines of the replies to requests that are sent at once."""
    await client.send(*requests)
    lines: list[bytes] = []
    while len(lines) < len(requests):
        lines.append(await client.read_line())
    return lines


async def test_a_simple_one_goes_in_one_piece_and_nothing_looks_at_it() -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client, other = proxy.connect(), proxy.connect()
            requests = [
                ("MULTI",),
                ("SET", "{t}a", "1"),
                ("MSET", "{t}a", 1, "{t}b", 2),
                ("OBJECT", "ENCODING", "{t}a"),
            ]
            assert await said(client, *requests) == [b"+OK", *[b"+QUEUED"] * 3]
            assert client.session.multi_count == 3
            assert await said(other, ("GET", "{t}a")) == [b"+OK"], "nothing has been sent"
            assert await said(client, ("EXEC",)) == [b"*3"]
            assert await client.read(15) == b"+OK\r\n" * 3
            assert client.session.multi_count == -1
            [visit] = server.visits
            sent = [[str(word).encode() for word in request] for request in [*requests, ("EXEC",)]]
            assert visit.asked[1:] == sent
            assert (taken.queued, taken.asked) == (None, [])
            assert client.session.kept == 0
            assert proxy.loop.requests == 6
            # The next one begins anew.
            assert await said(client, ("MULTI",), ("GET", "other"), ("EXEC",)) == [b"+OK", b"+QUEUED", b"*1"]


@pytest.mark.parametrize(
    "request_",
    [
        ("MULTI",),
        ("DISCARD",),
        ("WATCH", "{t}a"),
        ("NOSUCH", "x"),
        ("GET",),
        ("GET", "another slot"),
        ("MGET", "{t}a", "another slot"),
        ("MSET", "{t}a"),
        ("MSET", "{t}a", "1", "{t}b"),
        ("PUBLISH", "channel", "x"),
        ("EVAL", "return 1", 1, "{t}a"),
        ("BLPOP", "{t}a", 1),
        ("SORT", "{t}a"),
        ("SELECT", 1),
        ("COPY", "{t}a", "{t}b"),
        ("PING",),
        ("CLIENT", "ID"),
        ("EXEC", "x"),
        ("SET", "__slotferry:moving", "x"),
        ("QUIT",),
        ("RESET",),
    ],
)
async def test_anything_else_is_for_plain_python(request_: tuple[str | int, ...]) -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            assert await said(client, ("MULTI",), ("SET", "{t}a", "1"), request_) == [b"+OK", b"+QUEUED", b"+TAKEN"]
            assert taken.queued == [[b"SET", b"{t}a", b"1"]]
            assert client.session.multi_count == -1
            assert await said(client, ("EXEC",)) == [b"+TAKEN"]
            assert len(taken.asked) == 2
            assert all(not visit.asked for visit in server.visits)


@pytest.mark.parametrize("state", [LOCKED, MIGRATING, OFFLINE])
async def test_an_exec_whose_slot_is_not_at_rest(state: int) -> None:
    """drained, absent-first."""
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            assert await said(client, ("MULTI",), ("SET", "{t}a", "1")) == [b"+OK", b"+QUEUED"]
            proxy.route(state, None if state == OFFLINE else server.address)
            assert await said(client, ("EXEC",)) == [b"+TAKEN"]
            assert taken.queued == [[b"SET", b"{t}a", b"1"]]
            assert all(not visit.asked for visit in server.visits)


async def test_an_empty_one() -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            assert await said(proxy.connect(), ("MULTI",), ("EXEC",)) == [b"+OK", b"+TAKEN"]
            assert taken.queued == []


@pytest.mark.parametrize("what", ["attention", "a command", "a key"])
async def test_a_session_that_loses_a_right_meanwhile(what: str) -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            assert await said(client, ("MULTI",), ("SET", "{t}a", "1")) == [b"+OK", b"+QUEUED"]
            if what == "attention":
                client.session.attention = 1
            elif what == "a command":
                client.session.limit(CommandRights(b"", []))
            else:
                client.session.limit(CommandRights(bytes([KEYED | WRITES]) * 1000, [(b"{t}a", READS), (b"b", WRITES)]))
            assert await said(client, ("SET", "{t}a", "2")) == [b"+TAKEN"]
            assert taken.queued == [[b"SET", b"{t}a", b"1"]]


async def test_a_session_with_the_rights_to_its_keys() -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            assert await said(client, ("MULTI",)) == [b"+OK"]
            client.session.limit(CommandRights(bytes([KEYED | WRITES]) * 1000, [(b"{t}*", WRITES)]))
            assert await said(client, ("SET", "{t}a", "1")) == [b"+QUEUED"]
            assert taken.queued is None


async def test_bounded_a_large_one_is_for_plain_python_which_knows_the_limit() -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address, session_max_request_bytes=4096) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            assert await said(client, ("MULTI",), ("SET", "{t}a", "x" * 2000)) == [b"+OK", b"+QUEUED"]
            assert client.session.kept > 2000, "it counts for the limit of all sessions"
            assert await said(client, ("SET", "{t}a", "x" * 2000)) == [b"+TAKEN"]
            assert taken.queued == [[b"SET", b"{t}a", b"x" * 2000]]


async def test_bounded_a_long_one_goes_on_in_plain_python() -> None:
    """While it is handed over, nobody else is served."""
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            taken = Taken(proxy)
            client = proxy.connect()
            requests = [("MULTI",), *[("INCR", "{t}a")] * 256]
            assert await said(client, *requests) == [b"+OK", *[b"+QUEUED"] * 256]
            assert taken.queued is None
            assert await said(client, ("INCR", "{t}a")) == [b"+TAKEN"]
            assert taken.queued == [[b"INCR", b"{t}a"]] * 256
            assert taken.asked == [[b"INCR", b"{t}a"]]


async def test_a_client_that_leaves() -> None:
    async with Server(run_at_exec) as server:
        with engine(server.address) as proxy:
            Taken(proxy)
            client = proxy.connect()
            before = proxy.loop.kept
            assert await said(client, ("MULTI",), ("SET", "{t}a", "x" * 2000)) == [b"+OK", b"+QUEUED"]
            assert proxy.loop.kept > before + 2000
            client.hang_up()
            await until(lambda: client.session.closed)
            assert proxy.loop.kept <= before


async def test_replies_come_in_order_behind_those_of_requests_before_it() -> None:
    let_go = asyncio.Event()

    async with Server(once(let_go, run_at_exec)) as server:
        with engine(server.address) as proxy:
            Taken(proxy)
            client = proxy.connect()
            await client.send(("GET", "x"), ("MULTI",), ("GET", "{t}a"), ("EXEC",), ("GET", "y"))
            await until(lambda: bool(server.visits) and bool(server.visits[0].asked))
            let_go.set()
            expected = b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+OK\r\n"
            assert await client.read(len(expected)) == expected


async def test_an_exec_waits_while_its_server_has_too_much_to_do() -> None:
    let_go = asyncio.Event()

    async with Server(once(let_go, run_at_exec)) as server:
        with engine(server.address) as proxy:
            Taken(proxy)
            proxy.options.queue_pause_bytes = 1000
            other, client = proxy.connect("other"), proxy.connect()
            # More than the sockets take.
            await other.send(("SET", "k", "x"), ("SET", "k", "x" * 20_000_000))
            await until(lambda: bool(server.visits) and bool(server.visits[0].asked))
            await client.send(("MULTI",), ("GET", "{t}a"), ("EXEC",), ("GET", "x"))
            assert await client.read(14) == b"+OK\r\n+QUEUED\r\n"
            assert client.session.multi_count == 1
            let_go.set()
            assert await client.read(14) == b"*1\r\n+OK\r\n+OK\r\n"
            assert proxy.loop.requests == 6


async def test_a_server_that_is_lost() -> None:
    async with Server(run_at_exec) as server:
        with engine("127.0.0.1:1") as proxy:
            Taken(proxy)
            client = proxy.connect()
            # The first request makes it connect.
            assert (await said(client, ("GET", "x")))[0].startswith(b"-ERR server 127.0.0.1:1 ")
            assert await said(client, ("MULTI",), ("GET", "{t}a")) == [b"+OK", b"+QUEUED"]
            assert (await said(client, ("EXEC",)))[0].startswith(b"-ERR server 127.0.0.1:1 ")
            proxy.route(OPEN, server.address)
            assert await said(client, ("MULTI",), ("GET", "{t}a"), ("EXEC",)) == [b"+OK", b"+QUEUED", b"*1"]


def test_the_bounds_are_sent_as_they_are() -> None:
    assert (command(("MULTI",)), command(("EXEC",))) == (MULTI, EXEC)
