"""COPY ... DB, MOVE, and SELECT within MULTI: two databases of one slot, as one Redis, and while the slot moves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.commands.databases import elsewhere
from proxy.engine.backend import command
from proxy.engine.refusals import crossslot
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import frozen

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "{t}key"
SLOT = slot_of(KEY)
OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
CROSSSLOT = crossslot(KEY.encode(), SLOT, OTHER.encode(), slot_of(OTHER))

CONVERSATIONS: dict[str, list[Request]] = {
    "copied and moved": [
        *[("SET", "{t}a", "1"), ("COPY", "{t}a", "{t}b", "DB", 3), ("COPY", "{t}a", "{t}b", "db", 3)],
        *[("COPY", "{t}a", "{t}b", "DB", 3, "REPLACE"), ("MOVE", "{t}a", 4), ("GET", "{t}a"), ("MOVE", "{t}a", 4)],
        *[("COPY", "{t}none", "{t}x", "DB", 3), ("SELECT", 3), ("GET", "{t}b"), ("SELECT", 4), ("GET", "{t}a")],
        *[("MOVE", "{t}a", 3), ("SELECT", 3), ("MGET", "{t}a", "{t}b"), ("MOVE", "{t}a", 0)],
    ],
    "to where it is": [
        *[("SET", "{t}a", "1"), ("MOVE", "{t}a", 0), ("COPY", "{t}a", "{t}a", "DB", 0), ("COPY", "{t}a", "{t}a")],
        *[("COPY", "{t}a", "{t}c", "DB", 0), ("GET", "{t}c"), ("COPY", "{t}a", "{t}a", "DB", 1), ("MOVE", "{t}a", 1)],
    ],
    "mistakes": [
        *[("SET", "{t}a", "1"), ("MOVE", "{t}a", 16), ("MOVE", "{t}a", -1), ("MOVE", "{t}a", "x"), ("MOVE", "{t}a")],
        *[("MOVE", "{t}a", 2**31), ("MOVE", "{t}a", 2**63), ("COPY", "{t}a", "{t}b", "DB"), ("MOVE", "{t}a", "01")],
        *[("COPY", "{t}a", "{t}b", "DB", 16), ("COPY", "{t}a", "{t}b", "DB", "x"), ("COPY", "{t}a", "{t}b", "FOO")],
        *[("COPY", "{t}a", "{t}b", "DB", 16, "FOO"), ("COPY", "{t}a", "{t}b", "FOO", "DB", 16), ("COPY", "{t}a")],
        *[("COPY", "{t}a", "{t}b", "DB", 2**31), ("COPY", "{t}a", "{t}b", "DB", 1, "DB", 2), ("DBSIZE",)],
        *[("SELECT", 2), ("GET", "{t}b"), ("SELECT", 1), ("GET", "{t}b")],
    ],
    "SELECT within MULTI": [
        *[("SET", "{t}a", "0"), ("MULTI",), ("SELECT", 3), ("GET", "{t}a"), ("SET", "{t}a", "3"), ("EXEC",)],
        *[("GET", "{t}a"), ("MULTI",), ("SELECT", 0), ("GET", "{t}a"), ("SELECT", 5), ("SELECT", 3), ("EXEC",)],
        *[("GET", "{t}a"), ("MULTI",), ("SELECT", 3), ("GET", "{t}a"), ("EXEC",), ("GET", "{t}a"), ("SELECT", 0)],
        *[("GET", "{t}a"), ("MULTI",), ("SELECT", 6), ("EXEC",), ("SET", "{t}b", "6"), ("SELECT", 0), ("GET", "{t}b")],
    ],
    "there and back": [
        *[("MULTI",), ("SET", "{t}a", "0"), ("SELECT", 3), ("SET", "{t}a", "3"), ("SELECT", 0), ("GET", "{t}a")],
        *[("EXEC",), ("GET", "{t}a"), ("SELECT", 3), ("GET", "{t}a")],
    ],
    "SELECT discarded, and spoilt": [
        *[("MULTI",), ("SELECT", 3), ("DISCARD",), ("SET", "{t}a", "0"), ("MULTI",), ("SELECT", 3), ("NOSUCH",)],
        *[("EXEC",), ("GET", "{t}a"), ("MULTI",), ("SELECT",), ("EXEC",), ("GET", "{t}a")],
    ],
    "SELECT of what is none": [
        *[("SET", "{t}a", "0"), ("MULTI",), ("SELECT", 16), ("SELECT", "x"), ("SELECT", -1), ("SELECT", 2**31)],
        *[("GET", "{t}a"), ("EXEC",), ("GET", "{t}a"), ("MULTI",), ("SELECT", 2), ("SELECT", 99), ("GET", "{t}a")],
        *[("EXEC",), ("GET", "{t}a")],
    ],
    "wrong type elsewhere": [
        *[("MULTI",), ("SELECT", 2), ("SET", "{t}a", "x"), ("INCR", "{t}a"), ("LPUSH", "{t}a", 1), ("EXEC",)],
        *[("GET", "{t}a"), ("SELECT", 0), ("GET", "{t}a")],
    ],
    "copied and moved within MULTI": [
        *[("SET", "{t}a", "1"), ("MULTI",), ("COPY", "{t}a", "{t}b", "DB", 2), ("MOVE", "{t}a", 1), ("SELECT", 1)],
        *[("MOVE", "{t}a", 2), ("SELECT", 2), ("MGET", "{t}a", "{t}b"), ("MOVE", "{t}a", 99), ("COPY", "{t}a", "{t}c")],
        *[("COPY", "{t}a", "{t}d", "DB", 99), ("EXEC",), ("MGET", "{t}a", "{t}b", "{t}c")],
    ],
    "with WATCH": [
        *[("SELECT", 2), ("SET", "{t}a", "2"), ("SELECT", 0), ("WATCH", "{t}a"), ("MULTI",), ("SELECT", 2)],
        *[("GET", "{t}a"), ("EXEC",), ("GET", "{t}a"), ("SELECT", 0), ("WATCH", "{t}a"), ("SET", "{t}a", "0")],
        *[("MULTI",), ("SELECT", 2), ("GET", "{t}a"), ("EXEC",), ("GET", "{t}a"), ("WATCH", "{t}a"), ("MULTI",)],
        *[("SELECT", 2), ("EXEC",), ("GET", "{t}a"), ("WATCH", "{t}a"), ("SELECT", 0), ("MULTI",), ("SELECT", 2)],
        *[("EXEC",), ("GET", "{t}a")],
    ],
}


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """One worker with two servers, and a third that is just a Redis server."""
    harness = await start_worker(servers=3)
    await harness.apply([Slot(index, 2) for index in range(512, 1024)])
    return harness


async def forget(worker: WorkerHarness) -> None:
    for group in (1, 2, 3):
        async with worker.direct(group) as direct:
            await direct.flushall()


@pytest.mark.parametrize("protocol", [2, 3])
async def test_as_one_redis(worker: WorkerHarness, protocol: int) -> None:
    for name, requests in CONVERSATIONS.items():
        expected = await converse(worker.servers[2].address, requests, protocol)
        assert await converse(worker.settings.listen, requests, protocol) == expected, name
        await forget(worker)
        assert await converse_at_once(worker.settings.listen, requests, protocol) == expected, name
        await forget(worker)


async def test_keys_of_several_slots(worker: WorkerHarness) -> None:
    requests: list[Request] = [("SET", KEY, 1), ("COPY", KEY, OTHER, "DB", 1), ("MULTI",), ("SELECT", 1)]
    requests += [("SET", KEY, 1), ("SELECT", 2), ("SET", OTHER, 1), ("EXEC",)]
    assert (await converse(worker.settings.listen, requests))[-2:] == [
        CROSSSLOT,
        b"-EXECABORT Transaction discarded because of previous errors.\r\n",
    ]
    assert (await converse(worker.settings.listen, requests[:2]))[1] == CROSSSLOT


async def test_a_shared_connection_stays_in_its_database(worker: WorkerHarness) -> None:
    """All sessions share it: whatever a transaction of one does, the others are where they were."""
    stop = asyncio.Event()

    async def wander() -> None:
        async with Talk(worker.settings.listen) as talk:
            while not stop.is_set():
                await talk.ask("MULTI")
                await talk.ask("SELECT", 3)
                await talk.ask("INCR", KEY)
                await talk.ask("EXEC")
                await talk.ask("SELECT", 0)
                await talk.ask("MULTI")
                await talk.ask("SELECT", 4)
                await talk.ask("NOSUCH")
                await talk.ask("EXEC")

    async def stay() -> None:
        async with Talk(worker.settings.listen) as talk:
            for number in range(300):
                talk.send("SET", "{t}mine", number)
                talk.send("GET", "{t}mine")
                assert await talk.reply() == b"+OK\r\n"
                assert await talk.reply() == b"$%d\r\n%d\r\n" % (len(str(number)), number)

    wandering = [asyncio.create_task(wander()) for _ in range(4)]
    await asyncio.gather(*(stay() for _ in range(2)))
    stop.set()
    await asyncio.gather(*wandering)
    group = 1 if SLOT < 512 else 2
    async with worker.direct(group, db=3) as third, worker.direct(group, db=4) as fourth:
        assert await third.keys() == [KEY.encode()]
        assert await fourth.dbsize() == 0


async def test_a_pipeline_sees_what_it_has_done_in_other_databases(worker: WorkerHarness) -> None:
    requests: list[Request] = []
    for number in range(50):
        requests += [("SET", KEY, number), ("MOVE", KEY, 1), ("EXISTS", KEY), ("SELECT", 1), ("GET", KEY)]
        requests += [("COPY", KEY, KEY, "DB", 2, "REPLACE"), ("DEL", KEY), ("SELECT", 2), ("GET", KEY), ("SELECT", 0)]
        # In a transaction, too.
        requests += [("SELECT", 3), ("SET", KEY, number), ("SELECT", 4), ("SET", "{t}x", "y" * 20_000), ("SELECT", 0)]
        requests += [
            ("MULTI",),
            ("SELECT", 3),
            ("INCR", KEY),
            ("SELECT", 4),
            ("STRLEN", "{t}x"),
            ("EXEC",),
            ("DBSIZE",),
        ]
        requests += [("DEL", "{t}x"), ("MULTI",), ("SELECT", 0), ("EXEC",)]
    said = await converse_at_once(worker.settings.listen, requests)
    assert said == await converse(worker.servers[2].address, requests)


async def test_absent_first_nothing_is_run_in_two_databases_while_their_slot_moves(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Talk(worker.settings.listen) as talk:
        for database in (0, 3):
            await talk.ask("SELECT", database)
            await talk.ask("SET", KEY, database)
        await talk.ask("SET", "{t}copy", "3")
        await talk.ask("SELECT", 0)
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        # Whatever is known about their keys in the session's own database.
        assert await talk.ask("GET", KEY) == b"$1\r\n0\r\n"
        for words in (("MOVE", KEY, 3), ("COPY", KEY, "{t}copy", "DB", 3, "REPLACE")):
            assert await talk.ask(*words) == elsewhere.MOVES
        for watches in (False, True):
            if watches:
                await talk.ask("WATCH", KEY)
            await talk.ask("MULTI")
            await talk.ask("INCR", KEY)
            await talk.ask("SELECT", 3)
            await talk.ask("INCR", KEY)
            assert await talk.ask("EXEC") == elsewhere.MOVES
            # The transaction is over.
            assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
        # It is served in one database, even if that is another than the session's.
        assert await talk.ask("COPY", KEY, "{t}copy", "DB", 0) == b":1\r\n"
        for database, value in ((0, b"0"), (3, b"3")):
            await talk.ask("SELECT", database)
            assert await talk.ask("GET", KEY) == b"$1\r\n%b\r\n" % value, "nothing was run"
            await talk.ask("GET", "{t}copy")
        await talk.ask("DEL", KEY)
        await talk.ask("SELECT", 0)
        await worker.apply([Slot(SLOT, 2)])
        assert await talk.ask("MOVE", KEY, 3) == b":1\r\n"
        await talk.ask("MULTI")
        await talk.ask("SELECT", 3)
        await talk.ask("INCR", KEY)
        assert await talk.ask("EXEC") == b"*2\r\n+OK\r\n:1\r\n"
    assert await worker.keys(1, *range(16)) == []


@pytest.mark.long
async def test_drained_a_lock_waits_for_move(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("SET", KEY, "0")
        for words, reply in (
            (("MOVE", KEY, 1), b":1\r\n"),
            (("EXEC",), b"*2\r\n+OK\r\n:1\r\n"),
        ):
            if words == ("EXEC",):
                await talk.ask("MULTI")
                await talk.ask("SELECT", 2)
                await talk.ask("INCR", KEY)
            async with frozen(worker, 1):
                talk.send(*words)

                await worker.under_way()
                acting = asyncio.create_task(worker.act([SLOT], SlotState.PREPARED))
                done, _ = await asyncio.wait([acting], timeout=0.3)
                assert not done
            assert await talk.reply() == reply
            await acting
            await worker.apply([Slot(SLOT, 1)])


async def test_a_client_that_leaves_leaves_nothing_held(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Talk(worker.settings.listen) as talk:
        # Its connection is up by this.
        for words in (("MULTI",), ("SELECT", 3), ("EXEC",), ("SELECT", 0)):
            await talk.ask(*words)
        for words in (("MULTI",), ("SELECT", 3), ("SET", KEY, "3")):
            await talk.ask(*words)
        async with frozen(worker, 1):
            worker.messages.clear()
            talk.writer.write(command(("EXEC",)))
            await talk.writer.drain()
            await worker.under_way()
            talk.writer.close()
    await worker.act([SLOT], SlotState.PREPARED)
    async with worker.direct(1, db=3) as direct:
        assert await direct.get(KEY) == b"3"


# -- users -------------------------------------------------------------------------------------------------

TENANT = {"name": "tenant", "password": "t", "databases": [1, 2]}


async def test_a_tenant_gets_at_its_databases_only(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=[TENANT])
    refused = b"-NOPERM this user has no permissions to access database %d; SELECT another one\r\n"
    async with worker.direct(1) as direct, Talk(worker.settings.listen) as talk:
        await direct.set("{t}secret", "0")
        for words in (("AUTH", "tenant", "t"), ("SELECT", 1), ("SET", KEY, "1")):
            assert await talk.ask(*words) == b"+OK\r\n"
        assert await talk.ask("COPY", KEY, "{t}secret", "DB", 0, "REPLACE") == refused % 0
        assert await talk.ask("MOVE", KEY, 0) == refused % 0
        assert await talk.ask("COPY", KEY, KEY, "DB", 2) == b":1\r\n"
        for words in (("SELECT", 0), ("MOVE", KEY, 3), ("COPY", KEY, KEY, "DB", 0)):
            assert await talk.ask("MULTI") == b"+OK\r\n"
            assert await talk.ask(*words) == refused % (3 if words[0] == "MOVE" else 0)
            assert await talk.ask("GET", "{t}secret") == b"+QUEUED\r\n"
            assert (await talk.ask("EXEC")).startswith(b"-EXECABORT")
        assert await direct.get("{t}secret") == b"0"


async def test_a_tenant_elsewhere_comes_home_within_a_transaction(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, users=[TENANT])
    refused = b"-NOPERM this user has no permissions to access database 0; SELECT another one\r\n"
    async with worker.direct(1) as direct, Talk(worker.settings.listen) as talk:
        await direct.set("{t}secret", "0")
        await talk.ask("AUTH", "tenant", "t")
        # It begins in a database that is not its own, within a transaction too.
        await talk.ask("MULTI")
        assert await talk.ask("GET", "{t}secret") == refused
        assert (await talk.ask("EXEC")).startswith(b"-EXECABORT")
        await talk.ask("MULTI")
        assert await talk.ask("SELECT", 1) == b"+QUEUED\r\n"
        assert await talk.ask("SET", KEY, "1") == b"+QUEUED\r\n"
        assert await talk.ask("DISCARD") == b"+OK\r\n"
        assert await talk.ask("GET", "{t}secret") == refused
        await talk.ask("MULTI")
        await talk.ask("SELECT", 1)
        assert await talk.ask("SET", KEY, "1") == b"+QUEUED\r\n"
        assert await talk.ask("EXEC") == b"*2\r\n+OK\r\n+OK\r\n"
        assert await talk.ask("GET", KEY) == b"$1\r\n1\r\n"
        assert await direct.keys() == [b"{t}secret"]
