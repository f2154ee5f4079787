"""WATCH: no lost update whatever happens between WATCH and EXEC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import redis.asyncio
import redis.exceptions

from proxy.engine.refusals import crossslot
from slots.group import Group
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import PERIOD, PROMPT, Replicated
from tests.integration.worker.test_slot_states import until

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "{t}key"
SLOT = slot_of(KEY)
OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
CHANGED = b"*-1\r\n"
CROSSSLOT = crossslot(KEY.encode(), slot_of(KEY), OTHER.encode(), slot_of(OTHER))


@asynccontextmanager
async def watching(worker: WorkerHarness, protocol: int = 2) -> AsyncIterator[Talk]:
    """A client that watches the key and has queued a command that overwrites it."""
    async with Talk(worker.settings.listen, protocol) as talk:
        for words in (("WATCH", KEY), ("GET", KEY), ("MULTI",), ("SET", KEY, "mine")):
            assert not (await talk.ask(*words)).startswith(b"-")
        yield talk


async def can_watch(worker: WorkerHarness, key: str = KEY) -> bool:
    async with Talk(worker.settings.listen) as talk:
        return await talk.ask("WATCH", key) == b"+OK\r\n"


async def move(worker: WorkerHarness, source: int, target: int, pause: float) -> None:
    """Take the slot from one group to the other and leave it there; the test is the migrator, too."""
    await worker.act([SLOT], SlotState.PREPARING, source, target)
    await worker.act([SLOT], SlotState.PREPARED, source, target)
    await asyncio.sleep(pause)
    await worker.act([SLOT], SlotState.MIGRATING, source, target)
    await asyncio.sleep(pause)
    async with worker.client() as client, worker.direct(source) as old:
        await client.exists(KEY)
        assert await old.exists(KEY) == 0
    await worker.act([SLOT], SlotState.FINISHED, source, target)
    await worker.apply([Slot(SLOT, target)])


@pytest.mark.parametrize("protocol", [2, 3])
async def test_no_update_is_lost_while_the_slot_moves_back_and_forth(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker()
    moved = asyncio.Event()
    done = changed = 0

    async def count() -> None:
        nonlocal done, changed
        async with worker.client(protocol=protocol) as client, client.pipeline() as pipe:
            while not moved.is_set():
                await pipe.watch(KEY)
                value = int(await pipe.get(KEY) or 0)
                pipe.multi()
                pipe.set(KEY, value + 1)
                pipe.get(KEY)
                try:
                    assert await pipe.execute() == [True, str(value + 1).encode()]
                    done += 1
                except redis.exceptions.WatchError:
                    changed += 1

    counting = [asyncio.create_task(count()) for _ in range(6)]
    for turn in range(8):
        await move(worker, *((1, 2) if turn % 2 == 0 else (2, 1)), pause=0.02)
        wanted = done + 10

        async def more(wanted: int = wanted) -> bool:
            return done >= wanted

        await until(more)
    moved.set()
    await asyncio.gather(*counting)
    async with worker.client() as client:
        assert await client.get(KEY) == str(done).encode()
    assert changed > 20


async def test_redis_py_transaction(worker: WorkerHarness) -> None:
    async def add(client: redis.asyncio.Redis) -> None:
        async def work(pipe: redis.asyncio.client.Pipeline) -> None:
            value = int(await pipe.get(KEY) or 0)
            pipe.multi()
            pipe.set(KEY, value + 1)

        for _ in range(20):
            await client.transaction(work, KEY)

    async with worker.client() as client:
        await asyncio.gather(*(add(client) for _ in range(5)))
        assert await client.get(KEY) == b"100"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_change_by_anybody_is_noticed(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client() as other, worker.client(protocol=protocol) as client, client.pipeline() as pipe:
        await pipe.watch(KEY)
        await other.set(KEY, "theirs")
        pipe.multi()
        pipe.set(KEY, "mine")
        with pytest.raises(redis.exceptions.WatchError):
            await pipe.execute()
        assert await client.get(KEY) == b"theirs"


@pytest.mark.parametrize(
    "states",
    [
        [SlotState.PREPARED],
        [SlotState.PREPARED, SlotState.PREPARING],
        [SlotState.PREPARED, SlotState.MIGRATING],
        [SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED],
    ],
)
async def test_a_slot_that_has_changed_hands_may_have_changed(
    start_worker: StartWorker, states: list[SlotState]
) -> None:
    worker = await start_worker()
    async with worker.client() as client, watching(worker) as talk:
        for state in states:
            await worker.act([SLOT], state)
        if states[-1] is not SlotState.PREPARED:
            await client.set(KEY, "theirs")
        assert await talk.ask("EXEC") == CHANGED
        assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
        if states[-1] is not SlotState.PREPARED:
            assert await talk.ask("GET", KEY) == b"$6\r\ntheirs\r\n"


async def test_a_new_master_may_have_changed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    async with watching(worker) as talk, worker.direct(1) as old:
        await worker.apply(groups=[Group(1, (worker.servers[2].address, worker.servers[0].address))])
        assert await talk.ask("EXEC") == CHANGED
        assert await old.get(KEY) is None


@pytest.mark.parametrize("state", [SlotState.PENDING, SlotState.PREPARING])
async def test_a_slot_that_has_not_changed_hands_yet(start_worker: StartWorker, state: SlotState) -> None:
    worker = await start_worker()
    async with watching(worker) as talk:
        await worker.act([SLOT], state)
        await worker.apply([Slot(slot_of(OTHER), 2)])
        assert await talk.ask("EXEC") == b"*1\r\n+OK\r\n"


@pytest.mark.parametrize("theirs", [False, True])
async def test_a_migration_that_ends_leaves_the_slot_where_it_is(start_worker: StartWorker, theirs: bool) -> None:
    worker = await start_worker()
    for state in (SlotState.PREPARED, SlotState.MIGRATING):
        await worker.act([SLOT], state)
    async with worker.client() as client, watching(worker) as talk:
        if theirs:
            await client.set(KEY, "theirs")
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.apply([Slot(SLOT, 2)])
        assert await talk.ask("EXEC") == (CHANGED if theirs else b"*1\r\n+OK\r\n")


async def test_another_migration_to_the_same_server_is_a_change(start_worker: StartWorker) -> None:
    """by-action: what is known to be absent counts for one action."""
    worker = await start_worker()
    for state in (SlotState.PREPARED, SlotState.MIGRATING):
        await worker.act([SLOT], state)
    async with watching(worker) as talk:
        action = worker.table.slots[SLOT].action
        assert action is not None
        await worker.apply([Slot(SLOT, 1, replace(action, epoch=action.epoch + 1))])
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.apply([Slot(SLOT, 2)])
        assert await talk.ask("EXEC") == CHANGED


async def test_absent_first_keys_move_before_watch_and_before_exec(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with (
        worker.client() as client,
        Talk(worker.settings.listen) as talk,
        worker.direct(2) as target,
    ):
        await client.mset({KEY: "1", "{t}b": "2"})
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await talk.ask("WATCH", KEY) == b"+OK\r\n"
        assert await worker.keys(1) == [b"{t}b"]
        for words in (("MULTI",), ("INCR", KEY), ("INCR", "{t}b")):
            await talk.ask(*words)
        assert await talk.ask("EXEC") == b"*2\r\n:2\r\n:3\r\n"
        assert await worker.keys(1) == []
        await talk.ask("WATCH", KEY)
        await client.set(KEY, "theirs")
        for words in (("MULTI",), ("SET", KEY, "mine")):
            await talk.ask(*words)
        assert await talk.ask("EXEC") == CHANGED
        assert await target.get(KEY) == b"theirs"


@pytest.mark.long
async def test_watch_waits_for_a_locked_slot(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=3.0, own_connections=1)
    async with Talk(worker.settings.listen) as talk:
        await worker.act([SLOT], SlotState.PREPARED)
        talk.send("WATCH", KEY)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await talk.reply() == b"+OK\r\n"
        assert await talk.ask("UNWATCH") == b"+OK\r\n"
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.act([SLOT], SlotState.PREPARED, 2, 1)
        assert b"is locked while it changes hands" in await talk.ask("WATCH", KEY)
        # The one connection there is has come back.
        assert await can_watch(worker, OTHER)


async def test_one_slot_only(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("WATCH", KEY, OTHER) == CROSSSLOT
        assert await talk.ask("WATCH", KEY, "{t}other") == b"+OK\r\n"
        assert await talk.ask("WATCH", OTHER) == CROSSSLOT
        await talk.ask("MULTI")
        assert await talk.ask("SET", OTHER, "1") == CROSSSLOT
        assert (await talk.ask("EXEC")).startswith(b"-EXECABORT")
        assert await talk.ask("WATCH", OTHER) == b"+OK\r\n"


async def test_a_switch_of_protocol_ends_the_watch(worker: WorkerHarness) -> None:
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("WATCH", KEY)
        await talk.ask("HELLO", "3")
        await talk.ask("MULTI")
        assert await talk.ask("EXEC") == b"_\r\n"
        await talk.ask("WATCH", KEY)
        await talk.ask("MULTI")
        await talk.ask("HGETALL", "{t}h")
        assert await talk.ask("EXEC") == b"*1\r\n%0\r\n"


async def test_in_order_watch_and_exec_come_after_what_was_sent_before(worker: WorkerHarness) -> None:
    """All in one write: what goes over the shared connections must not be overtaken, nor overtake."""
    requests = [
        # A server reads so long a request in many pieces, and other connections in between.
        ("SET", KEY, "0" * 8_000_000),
        ("WATCH", KEY),
        ("MULTI",),
        ("EXEC",),
        ("WATCH", KEY),
        ("SET", KEY, "1" * 8_000_000),
        ("MULTI",),
        ("EXEC",),
        ("SET", KEY, "0"),
        ("WATCH", KEY),
        ("GET", KEY),
        ("MULTI",),
        ("INCR", KEY),
        ("EXEC",),
        ("INCR", KEY),
        ("WATCH", KEY),
        ("UNWATCH",),
        ("GET", KEY),
    ]
    expected = [b"+OK", b"+OK", b"+OK", b"*0", b"+OK", b"+OK", b"+OK", b"*-1"]
    expected += [b"+OK", b"+OK", b"$1\r\n0", b"+OK", b"+QUEUED", b"*1\r\n:1", b":2", b"+OK", b"+OK", b"$1\r\n2"]
    async with Talk(worker.settings.listen) as talk:
        for _ in range(5):
            for request in requests:
                talk.send(*request)
            assert [await talk.reply() for _ in requests] == [reply + b"\r\n" for reply in expected]


async def test_what_is_read_under_a_watch_comes_from_the_master(start_worker: StartWorker) -> None:
    """A replica may not yet have what was written before the WATCH, which then would not count as a change."""
    async with AsyncExitStack() as stack:
        worker = await start_worker(servers=1, extra=PROMPT, replica_reads=True, replica_check_seconds=PERIOD)
        replicated = await stack.enter_async_context(Replicated.around(worker))
        await replicated.add(1, False)
        await worker.apply(groups=replicated.groups())
        await replicated.reading(1024)
        async with Talk(worker.settings.listen) as talk, worker.direct(1) as master:
            await master.set(KEY, "master")
            replica = await stack.enter_async_context(
                redis.asyncio.Redis(host="127.0.0.1", port=replicated.replicas[1][0].port)
            )
            await replica.config_set("replica-read-only", "no")
            await replica.set(KEY, "replica")

            async def from_replica() -> bool:
                return await talk.ask("GET", KEY) == b"$7\r\nreplica\r\n"

            for ending in ((("MULTI",), ("EXEC",)), (("UNWATCH",),)):
                await until(from_replica)
                await talk.ask("WATCH", KEY)
                await talk.ask("READWRITE")
                await talk.ask("READONLY")
                assert await talk.ask("GET", KEY) == b"$6\r\nmaster\r\n"
                for words in ending:
                    await talk.ask(*words)
            await until(from_replica)
            for words in (("WATCH", KEY), ("READWRITE",), ("UNWATCH",)):
                await talk.ask(*words)
            assert await talk.ask("GET", KEY) == b"$6\r\nmaster\r\n"
