"""DBSIZE, KEYS, RANDOMKEY, FLUSHDB and FLUSHALL over several servers, as over one."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from migrator.errors import MigrationError
from slots.group import Group
from slots.reserved import RESERVED
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_scan import carry, move_keys
from tests.integration.worker.test_slot_states import frozen

StartWorker = Callable[..., Awaitable[WorkerHarness]]

NAMES = [f"key-{number}" for number in range(200)]


async def fill(worker: WorkerHarness, database: int = 0) -> None:
    async with worker.client(db=database) as client:
        await client.mset(dict.fromkeys(NAMES, "value"))


async def sizes(worker: WorkerHarness, database: int = 0) -> list[int]:
    """The number of keys at each server, without Slotferry's own."""
    found = []
    for group in range(1, len(worker.servers) + 1):
        async with worker.direct(group, db=database) as direct:
            found.append(len([key for key in await direct.keys("*") if not key.startswith(RESERVED)]))
    return found


async def answered(worker: WorkerHarness, group: int, command: str) -> int:
    """How often a server has run a command."""
    async with worker.direct(group) as direct:
        return int((await direct.info("commandstats")).get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_sizes_are_summed_and_keys_put_together(worker: WorkerHarness) -> None:
    await fill(worker)
    await fill(worker, database=3)
    async with worker.client() as client, worker.client(db=3, protocol=3) as third, worker.client(db=5) as empty:
        assert min(await sizes(worker)) > 50
        assert await client.dbsize() == len(NAMES)
        assert sorted(await client.keys("*")) == sorted(name.encode() for name in NAMES)
        assert sorted(await third.keys("key-1?")) == [b"key-%d" % number for number in range(10, 20)]
        assert await client.keys("nothing*") == []
        assert await empty.keys("*") == []
        assert await empty.dbsize() == 0


async def test_what_a_session_has_sent_before_is_there(worker: WorkerHarness) -> None:
    """A whole pipeline at once: no server is asked before it has run what was sent to it."""
    async with worker.client() as client, client.pipeline(transaction=False) as pipe:
        for name in NAMES:
            pipe.set(name, "value")
        pipe.dbsize()
        pipe.flushall()
        pipe.dbsize()
        pipe.set("one", "1")
        pipe.keys("*")
        assert (await pipe.execute())[len(NAMES) :] == [len(NAMES), True, 0, True, [b"one"]]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_are_those_of_one_server(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=3)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    requests: list[tuple[bytes | str | int, ...]] = [
        ("DBSIZE",),
        ("DBSIZE", "x"),
        ("KEYS",),
        ("KEYS", "*"),
        ("RANDOMKEY",),
        ("RANDOMKEY", "x"),
        ("SET", "only", "1"),
        ("RANDOMKEY",),
        ("KEYS", "[on]*"),
        ("DBSIZE",),
        ("FLUSHDB", "LATER"),
        ("FLUSHDB", "ASYNC", "SYNC"),
        ("FLUSHALL", "x"),
        ("FLUSHDB", "async"),
        ("DBSIZE",),
        ("FLUSHDB", "SYNC"),
        ("FLUSHALL", "SYNC"),
        ("FLUSHALL", "ASYNC"),
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("SWAPDB", "0"),
    ]
    # The third server has no slots, and is the one Redis to compare with.
    assert await converse(worker.settings.listen, requests, protocol) == await converse(
        worker.servers[2].address, requests, protocol
    )


@pytest.mark.long
async def test_the_oldest_save_is_the_last_of_all(worker: WorkerHarness) -> None:
    async with worker.direct(1) as first, worker.direct(2) as second, Talk(worker.settings.listen) as talk:
        for saved, other in ((first, second), (second, first)):
            before = await other.lastsave()
            async with asyncio.timeout(LIMIT):
                # It is told in seconds.
                while await saved.lastsave() <= before:
                    await saved.save()
            assert await talk.ask("LASTSAVE") == b":%d\r\n" % before.timestamp()


async def test_databases_are_flushed_each_or_all(worker: WorkerHarness) -> None:
    for database in (0, 1, 2):
        await fill(worker, database)
    async with worker.client(db=1) as client:
        assert await client.flushdb()
        assert await sizes(worker, 0) != [0, 0]
        assert await sizes(worker, 1) == [0, 0]
        assert await client.flushall(asynchronous=True)
        assert await sizes(worker, 0) == await sizes(worker, 2) == [0, 0]


@pytest.mark.parametrize("how", [(), ("SYNC",), ("ASYNC",)])
async def test_in_order_what_was_sent_in_other_databases_is_flushed_too(
    worker: WorkerHarness, how: tuple[str, ...]
) -> None:
    """Also over connections that are only made for it."""
    # The connections of database 0 are up, those of the others are not.
    await fill(worker)
    requests: list[Request] = []
    for database in (1, 2):
        requests += [("SELECT", database), *(("SET", name, "value") for name in NAMES[:8])]
    requests += [("SELECT", 0), ("FLUSHALL", *how), ("SET", "after", "1"), ("SELECT", 2), ("SET", "after", "1")]
    assert await converse_at_once(worker.settings.listen, requests) == [b"+OK\r\n"] * len(requests)
    assert [sum(await sizes(worker, database)) for database in (0, 1, 2)] == [1, 0, 1]


async def test_every_key_may_be_the_random_one(worker: WorkerHarness) -> None:
    low = [name for name in NAMES if slot_of(name) < 512][:3]
    high = next(name for name in NAMES if slot_of(name) >= 512)
    async with worker.client() as client:
        assert await client.randomkey() is None
        await client.mset(dict.fromkeys([*low, high], "1"))
        found = [await client.randomkey() for _ in range(200)]
        assert set(found) == {name.encode() for name in (*low, high)}
        # By the numbers of keys, not of servers: the mean is 50.
        assert 15 <= found.count(high.encode()) <= 95


async def test_a_key_that_has_expired_is_not_the_random_one_and_another_is(worker: WorkerHarness) -> None:
    low = next(name for name in NAMES if slot_of(name) < 512)
    high = next(name for name in NAMES if slot_of(name) >= 512)
    async with worker.client() as client, worker.direct(1) as first:
        # It stays in the count until somebody looks for it.
        await first.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
        await client.set(high, "1")
        await client.set(low, "1", px=1)
        await asyncio.sleep(0.01)
        assert await client.dbsize() == 2
        for _ in range(10):
            assert await client.randomkey() == high.encode()
        await client.delete(high)
        await client.set(low, "1", px=1)
        await asyncio.sleep(0.01)
        assert await client.randomkey() is None


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """Two groups of servers that can be told not to expire keys by themselves."""
    harness = await start_worker(extra=["--enable-debug-command", "local"])
    await harness.apply([Slot(index, 2) for index in range(512, 1024)])
    return harness


async def test_the_first_error_speaks_for_all(worker: WorkerHarness) -> None:
    await fill(worker)
    await worker.servers[1].stop()
    async with Talk(worker.settings.listen) as talk:
        for request in (["DBSIZE"], ["KEYS", "*"], ["RANDOMKEY"], ["FLUSHALL"], ["SCAN", "0", "COUNT", "1000"]):
            reply = await talk.ask(*request)
            assert reply.startswith(b"-ERR server " + worker.servers[1].address.encode()), request
        assert await talk.ask("PING") == b"+PONG\r\n"


async def test_a_servers_own_error_is_passed_on(worker: WorkerHarness) -> None:
    async with worker.direct(2) as second, Talk(worker.settings.listen) as talk:
        await second.execute_command("CONFIG", "SET", "min-replicas-to-write", 1)
        assert await talk.ask("FLUSHALL") == b"-NOREPLICAS Not enough good replicas to write.\r\n"


async def test_bounded_replies_beyond_the_sessions_limit_are_not_put_together(start_worker: StartWorker) -> None:
    worker = await start_worker(session_output_limit_bytes=2000, session_output_pause_bytes=1000)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    await fill(worker)
    async with Talk(worker.settings.listen) as talk:
        assert (await talk.ask("KEYS", "key-1?")).startswith(b"*10\r\n")
        assert b"session_output_limit_bytes" in await talk.ask("KEYS", "*")
        assert await talk.ask("PING") == b"+PONG\r\n"


async def test_without_a_server_it_is_said(worker: WorkerHarness) -> None:
    await worker.apply([Slot(index) for index in range(1024)])
    async with Talk(worker.settings.listen) as talk:
        for request in (["DBSIZE"], ["KEYS", "*"], ["RANDOMKEY"], ["SCAN", "0"], ["SCAN", "77"]):
            assert (await talk.ask(*request)).startswith(b"-ERR no group has a server yet"), request


# -- while slots move --------------------------------------------------------------------------------------

LOW = [name for name in NAMES if slot_of(name) < 512]
LOW_SLOTS = {slot_of(name) for name in LOW}


async def begin_to_move(worker: WorkerHarness, source: int = 1, target: int = 2) -> None:
    await worker.act(LOW_SLOTS, SlotState.PREPARED, source, target)
    await worker.act(LOW_SLOTS, SlotState.MIGRATING, source, target)


async def test_a_flush_that_meets_a_mover_at_a_source_that_hangs_leaves_nothing(worker: WorkerHarness) -> None:
    await fill(worker)
    await begin_to_move(worker)
    async with Talk(worker.settings.listen) as talk:
        async with frozen(worker, 1):
            moving = asyncio.create_task(move_keys(worker, sorted(LOW_SLOTS), 1, 2))
            await asyncio.sleep(0)
            talk.send("FLUSHALL")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await talk.reader.read(1)
            assert await answered(worker, 2, "flushall") == 0
        assert await talk.reply() == b"+OK\r\n"
        # Whether it goes on or is broken off, it brings nothing back.
        with suppress(MigrationError):
            await asyncio.wait_for(moving, LIMIT)
    assert await sizes(worker) == [0, 0]


@pytest.mark.parametrize("command", ["DBSIZE", "KEYS *"])
async def test_targets_are_asked_after_their_sources_have_answered(worker: WorkerHarness, command: str) -> None:
    """The source runs nothing for a while, and then either moves all keys first or answers first."""
    await fill(worker)
    await begin_to_move(worker)
    name = command.split()[0].lower()
    async with Talk(worker.settings.listen) as talk, Talk(worker.servers[0].address) as mover:
        async with frozen(worker, 1):
            mover.send("MIGRATE", "127.0.0.1", worker.servers[1].port, "", 0, 5000, "KEYS", *LOW)
            await mover.writer.drain()
            talk.send(*command.split())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await talk.reader.read(1)
            assert await answered(worker, 2, name) == 0
        reply = await talk.reply()
        moved = await mover.reply()
    match name:
        case "dbsize":
            # What has moved after the source was asked counts twice.
            assert len(NAMES) <= int(reply[1:]) <= len(NAMES) + len(LOW)
            assert moved == b"+OK\r\n"
        case "keys":
            assert reply.startswith(b"*200\r\n")
            assert moved == b"+OK\r\n"


async def test_a_flush_of_moves_both_ways_is_done_once(worker: WorkerHarness) -> None:
    await fill(worker)
    high_slots = {slot_of(name) for name in NAMES} - LOW_SLOTS
    both = [Slot(index, 1, Action(SlotState.PREPARED, 2)) for index in LOW_SLOTS]
    both += [Slot(index, 2, Action(SlotState.PREPARED, 1)) for index in high_slots]
    await worker.apply(both)
    before = [await answered(worker, group, "flushdb") for group in (1, 2)]
    async with worker.client() as client:
        await client.flushdb()
    assert [await answered(worker, group, "flushdb") for group in (1, 2)] == [count + 1 for count in before]
    assert await sizes(worker) == [0, 0]


async def test_a_flush_at_rest_is_done_once(worker: WorkerHarness) -> None:
    await fill(worker)
    async with worker.client() as client:
        await client.flushdb()
    assert [await answered(worker, group, "flushdb") for group in (1, 2)] == [1, 1]


async def test_what_is_known_to_be_absent_stays_so_after_a_flush(worker: WorkerHarness) -> None:
    await fill(worker)
    await begin_to_move(worker)
    async with worker.client() as client:
        assert await client.get(LOW[0]) == b"value"
        await client.flushall()
        assert await client.mget(LOW) == [None] * len(LOW)
        await client.mset(dict.fromkeys(LOW, "new"))
        assert await sizes(worker) == [0, len(LOW)]
        assert await client.mget(LOW) == [b"new"] * len(LOW)
    await worker.act(LOW_SLOTS, SlotState.FINISHED)


async def test_a_key_that_is_at_both_ends_of_a_move_is_told_of_once(worker: WorkerHarness) -> None:
    await fill(worker)
    await begin_to_move(worker)
    async with worker.client() as client, worker.client(protocol=3) as other, worker.direct(1) as source:
        await source.migrate("127.0.0.1", worker.servers[1].port, LOW[:20], 0, 5000)
        await source.migrate("127.0.0.1", worker.servers[1].port, LOW[20:40], 0, 5000, copy=True)
        assert sorted(await client.keys("*")) == sorted(name.encode() for name in NAMES)
        assert sorted(await other.keys("*")) == sorted(name.encode() for name in NAMES)


async def test_all_are_asked_again_when_a_slot_begins_to_move_meanwhile(worker: WorkerHarness) -> None:
    """The target has answered before the source is asked; then the keys move, and neither of them would report the
    keys."""
    await fill(worker)
    async with worker.client() as client:
        async with frozen(worker, 1):
            counted = asyncio.create_task(client.dbsize())
            async with asyncio.timeout(60):
                while not await answered(worker, 2, "dbsize"):
                    await asyncio.sleep(0.01)
            await worker.apply([Slot(index, 1, Action(SlotState.PREPARED, 2)) for index in LOW_SLOTS])
        assert await counted == len(NAMES)
        assert await answered(worker, 2, "dbsize") == 2


async def test_a_group_that_only_takes_part_in_a_move_is_asked(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    await fill(worker)
    await worker.act(range(1024), SlotState.PREPARED, 1, 3)
    await worker.act(range(1024), SlotState.MIGRATING, 1, 3)
    async with worker.client() as client:
        # The router sends nothing to group 1 any more.
        assert await client.dbsize() == len(NAMES)
        await client.flushall()
        assert await sizes(worker) == [0, 0, 0]


async def test_a_new_master_is_asked(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    async with worker.direct(3) as promoted, worker.client() as client:
        await promoted.mset(dict.fromkeys(NAMES, "value"))
        assert await client.dbsize() == 0
        await worker.apply(groups=[Group(1, (worker.servers[2].address,)), Group(3, ())])
        assert await client.dbsize() == len(NAMES)


@pytest.mark.parametrize("words", [("FLUSHALL", "ASYNC"), ("FLUSHDB",)])
async def test_nothing_survives_a_flush_or_comes_back_while_slots_go_to_and_fro(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    worker = await start_worker()
    moving = sorted({slot_of(name) for name in NAMES})
    flushed = (0, 3) if words[0] == "FLUSHALL" else (0,)
    over = asyncio.Event()

    async def move() -> None:
        there, back = (1, 2), (2, 1)
        while not over.is_set():
            await carry(worker, moving, *there)
            there, back = back, there

    async def read() -> None:
        async with worker.client() as client:
            # Each has its key moved at once.
            while not over.is_set():
                await client.get(random.choice(NAMES))

    others = [asyncio.create_task(move()), *(asyncio.create_task(read()) for _ in range(4))]
    async with worker.client(single_connection_client=True) as client:
        for _ in range(10):
            for database in flushed:
                await fill(worker, database)
            begun = worker.table.epoch
            assert await client.execute_command(*words) in (b"OK", True)
            # Through as many states as may bring something back.
            async with asyncio.timeout(LIMIT):
                while worker.table.epoch < begun + 3:
                    assert [await sizes(worker, database) for database in flushed] == [[0, 0]] * len(flushed)
    over.set()
    await asyncio.gather(*others)
