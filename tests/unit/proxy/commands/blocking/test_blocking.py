"""A command that waits, from its handler's first step: what it holds while its connection is made."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.commands.blocking.blocking import BlockingCommands
from proxy.commands.keyreads import Held
from proxy.engine.router import LOCKED, OPEN
from proxy.servers.ownconnections import OwnConnection, OwnConnections
from proxy.settings import ProxySettings
from slots.functions import slot as slot_by
from slots.messages.questions import Unblock
from slots.rules import SlotRule
from tests.unit.proxy.engine.inprocess import SLOTS, Engine, Server, Visit, engine, nothing_stored, once, until
from tests.unit.proxy.servers.test_ownconnections import Numbering

VERSIONS: Any = SimpleNamespace(old=[])
POP = ("BLPOP", "k", 0)
READ = [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"k", b"0"]
SLOT = slot_by("crc32", b"k", SLOTS)


async def test_drained_a_lock_that_comes_with_the_connection_is_not_held_up() -> None:
    async with Numbering() as server:
        with engine(server.address) as proxy:
            own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
            services: Any = SimpleNamespace(router=proxy.router, own=own, settings=ProxySettings())
            blocking, client = BlockingCommands(services, VERSIONS, Held()), proxy.connect()
            proxy.slow_path.session_closed = lambda session: None  # type: ignore[attr-defined]
            proxy.slow_path.handlers[b"XREAD"] = lambda: blocking.read(client.session, READ)
            await client.send(tuple(READ))
            await until(lambda: server.asked_for_number)
            assert proxy.loop.slot_in_flight(SLOT) == 1
            # The lock is not told of: the connection is there in the same moment.
            proxy.route(LOCKED, server.address)
            server.let_go.set()
            await until(lambda: own.idle == 0 and proxy.loop.slot_in_flight(SLOT) == 0)
            assert server.asked == []
            proxy.route(OPEN, server.address)
            proxy.router.next_generation()
            proxy.router.holding.release()
            assert await client.read(5) == b"+OK\r\n"
            assert server.asked == [READ]
            assert (own.in_use, proxy.loop.slot_in_flight(SLOT)) == (0, 0)
            own.reset("the test is over")
            await blocking.close()


async def nothing_to_take(visit: Visit, words: list[bytes]) -> None:
    """Answer as a server with empty lists: a pop in a transaction gets nothing, and one alone waits."""
    if words[0] != b"BLPOP":
        visit.say({b"MULTI": b"+OK\r\n", b"EXEC": b"*1\r\n*-1\r\n"}[words[0]])
    elif [b"MULTI"] in visit.asked:
        visit.say(b"+QUEUED\r\n")


@contextmanager
def waiting_at(proxy: Engine) -> Iterator[tuple[OwnConnections, BlockingCommands]]:
    """An engine whose pops can wait."""
    own = OwnConnections(proxy.loop, proxy.options, ProxySettings())
    services: Any = SimpleNamespace(router=proxy.router, own=own, settings=ProxySettings())
    blocking = BlockingCommands(services, VERSIONS, Held())
    proxy.slow_path.session_closed = blocking.session_closed  # type: ignore[attr-defined]
    yield own, blocking
    own.reset("the test is over")


async def test_in_order_a_pop_waits_at_its_server_once_all_before_it_is_answered() -> None:
    let_go = asyncio.Event()
    async with Server(nothing_to_take) as server, Server(once(let_go, nothing_stored)) as other:
        with engine(server.address) as proxy, waiting_at(proxy) as (own, _):
            own.give_back(await own.take(server.address, 0, 2))
            waited = server.visits[0].asked
            elsewhere = next(number for number in range(99) if slot_by("crc32", b"%d" % number, SLOTS) != SLOT)
            proxy.router.set_route(slot_by("crc32", b"%d" % elsewhere, SLOTS), OPEN, other.address, 0)
            client = proxy.connect()
            await client.send(("GET", elsewhere), POP)
            await until(lambda: [b"EXEC"] in server.asked)
            await asyncio.sleep(0.01)
            assert waited == []
            let_go.set()
            await until(lambda: waited == [[b"BLPOP", b"k", b"0"]])
            assert await client.read(5) == b"$-1\r\n"


async def test_bounded_nothing_is_left_of_a_pop_that_could_not_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    async with Server(nothing_to_take) as server:
        with engine(server.address) as proxy, waiting_at(proxy) as (own, blocking):
            own.give_back(await own.take(server.address, 0, 2))
            monkeypatch.setattr(OwnConnection, "call", no_memory)
            client = proxy.connect()
            await client.send(POP)
            await until(lambda: bool(proxy.mistakes))
            assert (own.in_use, own.idle, proxy.loop.slot_in_flight(SLOT)) == (0, 1, 0)
            assert client.session.closed
            # No wait is known of it.
            assert blocking.answers()[Unblock](Unblock(number=client.session.id, error=True)) is None


async def test_a_pop_whose_keys_get_several_slots_meanwhile_does_not_wait_at_one_server() -> None:
    other = next(key for key in (b"%d" % number for number in range(99)) if slot_by("crc32", key, SLOTS) != SLOT)
    let_go = asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words == [b"EXEC"]:
            await let_go.wait()
        if words == [b"LPOP", b"k"]:
            visit.say(b"$-1\r\n")
        elif words[0] == b"LPOP":
            visit.say(b"$1\r\nx\r\n")
        else:
            await nothing_to_take(visit, words)

    async with Server(answer) as server:
        with engine(server.address) as proxy, waiting_at(proxy) as (own, _):
            own.give_back(await own.take(server.address, 0, 2))
            proxy.router.rule_by((SlotRule("*", tag="all"),))
            client = proxy.connect()
            await client.send(("BLPOP", "k", other, 0))
            await until(lambda: [b"EXEC"] in server.asked)
            proxy.router.rule_by(())
            let_go.set()
            reply = b"*2\r\n$%d\r\n%b\r\n$1\r\nx\r\n" % (len(other), other)
            assert await client.read(len(reply)) == reply


async def test_a_pop_that_was_answered_waits_no_more() -> None:
    let_go = asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        await nothing_to_take(visit, words)
        if words[0] == b"BLPOP" and [b"MULTI"] not in visit.asked:
            await let_go.wait()
            visit.say(b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy, waiting_at(proxy) as (own, blocking):
            own.give_back(await own.take(server.address, 0, 2))
            client = proxy.connect()
            await client.send(POP)
            await until(lambda: server.visits[0].asked == [[b"BLPOP", b"k", b"0"]])
            state = client.session.state
            assert state is not None
            assert state.blocking is not None
            assert (own.in_use, proxy.loop.slot_in_flight(SLOT)) == (1, 1)
            # Nothing else goes on with it.
            client.session.wake()
            client.session.complete(b"+WRONG\r\n")
            let_go.set()
            assert await client.read(18) == b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n"
            assert state.blocking is None
            assert blocking.answers()[Unblock](Unblock(number=client.session.id, error=True)) is None
            assert (own.in_use, own.idle, proxy.loop.slot_in_flight(SLOT)) == (0, 1, 0)


async def test_a_session_that_is_closed_waits_no_more_and_its_slot_is_held_until_the_server_has_ended_it() -> None:
    async with Server(nothing_to_take) as server:
        with engine(server.address) as proxy, waiting_at(proxy) as (own, blocking):
            own.give_back(await own.take(server.address, 0, 2))
            client = proxy.connect()
            await client.send(POP)
            await until(lambda: server.visits[0].asked == [[b"BLPOP", b"k", b"0"]])
            client.close()
            assert blocking.answers()[Unblock](Unblock(number=client.session.id, error=True)) is None
            assert (own.in_use, proxy.loop.slot_in_flight(SLOT)) == (1, 1)
            server.visits[0].say(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")
            await until(lambda: own.in_use == 0)
            assert proxy.loop.slot_in_flight(SLOT) == 0
            assert proxy.mistakes == []
            await blocking.close()
