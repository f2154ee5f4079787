"""The usual WATCH and EXEC go over a connection of the session's own, and plain Python decides about all others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.commands.services import Services
from proxy.commands.transactions.watching import Watching
from proxy.engine.router import LOCKED, MIGRATING, OFFLINE, OPEN
from proxy.servers.ownconnections import OwnConnections
from tests.unit.proxy.engine.inprocess import Client, Engine, Server, SlowPath, Visit, engine, until
from tests.unit.proxy.engine.test_multi import Taken, run_at_exec, said

WATCH = ("WATCH", "{t}a")
UNWATCH = [b"UNWATCH"]
OK = b"+OK"
TRANSACTION = (("MULTI",), ("SET", "{t}a", "1"), ("EXEC",))
DONE = [OK, b"+QUEUED", b"*1", OK]


class Watched:
    """An engine whose sessions can watch, and one connection for that which nobody uses."""

    def __init__(self, proxy: Engine, server: Server) -> None:
        self.proxy = proxy
        self.server = server
        self.own = OwnConnections(proxy.loop, proxy.options, proxy.router.settings)
        parts: Any = SimpleNamespace(
            router=proxy.router,
            own=self.own,
            now=proxy.event_loop.time,
            settings=proxy.router.settings,
        )
        self.watching = Watching(cast(Services, parts))
        self.taken = Taken(proxy)
        cast(SlowPath, proxy.slow_path).session_closed = self.watching.end  # type: ignore[attr-defined]
        self.client = proxy.connect()

    @property
    def used(self) -> Visit:
        """The connection that watches, as the server sees it; the first one that was made."""
        return self.server.visits[0]

    async def watched(self) -> None:
        """The client watches."""
        assert await said(self.client, WATCH) == [OK]

    async def came_back(self, *asked: list[bytes]) -> None:
        """The connection can be used again, and was asked this last."""
        await until(lambda: self.own.in_use == 0)
        assert self.own.idle == 1
        assert self.used.asked[-len(asked) :] == list(asked)
        assert all(self.proxy.loop.slot_in_flight(slot) == 0 for slot in range(16))
        assert self.proxy.mistakes == []


Answer = Callable[[Visit, list[bytes]], Any]


@asynccontextmanager
async def watches(answer: Answer = run_at_exec, idle: bool = True) -> AsyncIterator[Watched]:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            made = Watched(proxy, server)
            if idle:
                made.own.give_back(await made.own.take(server.address, 0, 2))
            yield made
            made.own.reset("the test is over")


def held_back(let_go: asyncio.Event, name: bytes, answer: Answer = run_at_exec) -> Answer:
    """Answer one command not before the event."""

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        if words[0] == name:
            await let_go.wait()
        await answer(visit, words)

    return slowly


async def test_both_go_over_one_connection_and_nothing_looks_at_them() -> None:
    async with watches() as to:
        for _ in range(3):
            await to.watched()
            assert to.own.in_use == 1
            await to.client.send(("GET", "{t}a"))
            assert await to.client.read_line() == OK
            await to.client.send(*TRANSACTION)
            assert [await to.client.read_line() for _ in DONE] == DONE
            assert to.client.session.watch is None
            await to.came_back([b"WATCH", b"{t}a"], [b"MULTI"], [b"SET", b"{t}a", b"1"], [b"EXEC"])
        assert to.taken.asked == []
        assert to.taken.queued is None
        assert len(to.server.visits) == 2, "the other one has the GETs"
        assert to.proxy.loop.requests == 3 * 5


async def test_what_is_read_meanwhile_comes_from_the_server_that_watches() -> None:
    async with watches() as to:
        to.client.session.replica_reads = True
        await to.watched()
        assert not to.client.session.replica_reads
        await said(to.client, *TRANSACTION)
        assert to.client.session.replica_reads


@pytest.mark.parametrize("state", [LOCKED, MIGRATING, OFFLINE])
async def test_absent_first_drained_a_slot_that_is_not_at_rest_is_for_plain_python(state: int) -> None:
    async with watches() as to:
        to.proxy.route(state, to.server.address)
        assert await said(to.client, WATCH) == [b"+TAKEN"]
        assert to.own.in_use == 0
        to.proxy.route(OPEN, to.server.address)
        await to.watched()
        to.proxy.route(state, to.server.address)
        assert await said(to.client, *TRANSACTION) == [OK, b"+QUEUED", b"+TAKEN"]
        assert to.taken.queued == [[b"SET", b"{t}a", b"1"]]


async def test_a_slot_that_has_changed_hands_meanwhile_is_for_plain_python() -> None:
    async with watches() as to:
        await to.watched()
        to.proxy.route(LOCKED, to.server.address)
        to.proxy.route(OPEN, to.server.address)
        assert await said(to.client, *TRANSACTION) == [OK, b"+QUEUED", b"+TAKEN"]


async def test_one_way_another_migration_of_the_slot_is_for_plain_python() -> None:
    async with watches() as to:
        await to.watched()
        to.proxy.router.set_route(to.proxy.router.slot_of_key(0, b"{t}a"), OPEN, to.server.address, 1)
        assert await said(to.client, *TRANSACTION) == [OK, b"+QUEUED", b"+TAKEN"]


@pytest.mark.parametrize("change", ["protocol", "database"])
async def test_a_session_that_uses_other_connections_by_now_is_for_plain_python(change: str) -> None:
    async with watches() as to:
        await to.watched()
        setattr(to.client.session, change, 3)
        assert await said(to.client, *TRANSACTION) == [OK, b"+QUEUED", b"+TAKEN"]


async def test_a_lost_connection_is_for_plain_python() -> None:
    async with watches() as to:
        await to.watched()
        to.used.hang_up()
        watch = to.client.session.watch
        assert watch is not None
        await until(lambda: not watch.holds())
        assert await said(to.client, *TRANSACTION) == [OK, b"+QUEUED", b"+TAKEN"]


async def test_other_watches_are_for_plain_python() -> None:
    async with watches() as to:
        assert await said(to.client, ("WATCH",)) == [b"+TAKEN"]
        assert await said(to.client, ("WATCH", "{t}a", "{u}a")) == [b"+TAKEN"], "of two slots"
        assert await said(to.client, ("WATCH", "__slotferry:x")) == [b"+TAKEN"]
        await to.watched()
        assert await said(to.proxy.connect(), WATCH) == [b"+TAKEN"], "no connection is idle"
        to.own.give_back(await to.own.take(to.server.address, 0, 2))
        assert await said(to.client, WATCH) == [b"+TAKEN"], "a second one"


async def test_in_order_neither_is_sent_before_what_is_owed() -> None:
    let_go = asyncio.Event()
    async with watches(held_back(let_go, b"GET")) as to:
        await to.client.send(("GET", "{t}a"), WATCH)
        await until(lambda: bool(to.taken.asked))
        let_go.set()
        assert [await to.client.read_line() for _ in range(2)] == [OK, b"+TAKEN"]
        await to.watched()
        let_go.clear()
        await to.client.send(("GET", "{t}a"), *TRANSACTION)
        await until(lambda: to.taken.queued is not None)
        let_go.set()
        assert [await to.client.read_line() for _ in range(4)] == [OK, OK, b"+QUEUED", b"+TAKEN"]


async def test_a_watch_that_fails_watches_nothing() -> None:
    async def refuses(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"-LOADING later\r\n" if words[0] == b"WATCH" else b"+OK\r\n")

    async with watches(refuses) as to:
        assert await said(to.client, WATCH) == [b"-LOADING later"]
        assert to.client.session.watch is None
        await to.came_back([b"WATCH", b"{t}a"], UNWATCH)


async def test_drained_it_counts_until_the_server_has_answered_and_the_connection_comes_back() -> None:
    """The client leaves meanwhile."""
    for name in (b"WATCH", b"EXEC"):
        let_go = asyncio.Event()
        async with watches(held_back(let_go, name)) as to:
            slot = to.proxy.router.slot_of_key(0, b"{t}a")
            if name == b"WATCH":
                await to.client.send(WATCH)
            else:
                await to.watched()
                await to.client.send(*TRANSACTION)
            await until(lambda to=to, name=name: to.used.asked[-1:] and to.used.asked[-1][0] == name)  # type: ignore[misc]
            to.client.close()
            await asyncio.sleep(0.01)
            assert to.proxy.loop.slot_in_flight(slot) > 0
            assert (to.own.in_use, to.own.idle) == (1, 0)
            let_go.set()
            await to.came_back(*([UNWATCH] if name == b"WATCH" else [[b"EXEC"]]))


async def test_an_exec_that_the_server_refuses_leaves_a_watch_behind() -> None:
    async def refuses(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"-EXECABORT no\r\n" if words[0] == b"EXEC" else b"+OK\r\n")

    async with watches(refuses) as to:
        await to.watched()
        assert (await said(to.client, *TRANSACTION))[-1] == b"-EXECABORT no"
        await to.came_back([b"EXEC"], UNWATCH)


async def test_a_transaction_of_another_slot_is_for_plain_python() -> None:
    async with watches() as to:
        await to.watched()
        slot_of = to.proxy.router.slot_of_key
        other = next(f"k{number}" for number in range(99) if slot_of(0, b"k%d" % number) != slot_of(0, b"{t}a"))
        assert await said(to.client, ("MULTI",), ("SET", other, "1")) == [OK, b"+TAKEN"]


async def test_a_client_that_ends_its_watch_with_its_connection() -> None:
    async with watches() as to:
        await to.watched()
        to.client.close()
        await to.came_back([b"WATCH", b"{t}a"], UNWATCH)


async def clients(to: Watched, count: int) -> list[Client]:
    made = [to.proxy.connect() for _ in range(count)]
    for one in made:
        to.own.give_back(await to.own.take(to.server.address, 0, 2))
        await one.send(WATCH)
        assert await one.read_line() == OK
    return made


async def test_each_session_has_its_own() -> None:
    async with watches() as to:
        several = await clients(to, 3)
        assert to.own.in_use == 3
        for one in several:
            await one.send(*TRANSACTION)
        for one in several:
            assert [await one.read_line() for _ in DONE] == DONE
        await until(lambda: to.own.idle == 3)
        assert to.taken.asked == []
