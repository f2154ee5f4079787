"""FLUSHDB and FLUSHALL leave nothing that was there when they came, and Slotferry's own marks where they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis.exceptions

from slots import connections, reserved
from slots.flushes import UNDER_WAY
from slots.group import Group
from slots.moving import PLACE
from slots.reserved import LEADER, STATE
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.breaking_relay import BreakingRelay, Direction, Fault
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness
from tests.integration.worker.test_slot_states import KEY, SLOT, frozen, migrate_key, until

FLUSHES = [("FLUSHALL",), ("FLUSHALL", "ASYNC"), ("FLUSHDB",)]


@asynccontextmanager
async def target_behind_relay(worker: WorkerHarness) -> AsyncIterator[BreakingRelay]:
    """Have the worker and the source reach the target through a relay."""
    async with BreakingRelay(worker.servers[1].port) as relay:
        worker.run_ids[relay.address] = worker.run_ids[worker.servers[1].address]
        await worker.apply([Slot(index, 2) for index in range(512) if index != SLOT], [Group(2, (relay.address,))])
        yield relay


@asynccontextmanager
async def flush_held_at_target(
    worker: WorkerHarness, relay: BreakingRelay
) -> AsyncIterator[tuple[Fault, "asyncio.Task[bool]"]]:
    """A flush that is done at the source and has yet to arrive at the target, over a connection of its own."""
    async with worker.client(db=3) as flushing, worker.direct(1) as source:
        fault = relay.hold(directions=frozenset({Direction.TO_SERVER}), containing=b"FLUSHALL")
        flush = asyncio.create_task(flushing.flushall())

        async def held() -> bool:
            return fault.met > 0 and not await source.exists(KEY)

        await until(held)
        yield fault, flush
        fault.mend()
        await asyncio.gather(flush, return_exceptions=True)


async def looks_at(worker: WorkerHarness, group: int) -> int:
    """How often fields of flushes were listed at a server."""
    async with worker.direct(group) as server:
        stats: dict[str, dict[str, int]] = await server.info("commandstats")
        return stats.get("cmdstat_hkeys", {"calls": 0})["calls"]


async def test_what_is_written_after_a_flush_is_not_taken_away(start_worker: StartWorker) -> None:
    """The key is gone at the source, and a client could create it again at the target, which is not flushed yet."""
    worker = await start_worker(backend_reply_seconds=LIMIT)
    async with target_behind_relay(worker) as relay, worker.client() as client:
        await client.set(KEY, "old")
        await migrate_key(worker)

        async def write() -> None:
            assert await client.get(KEY) is None
            await client.set(KEY, "new")

        async with flush_held_at_target(worker, relay) as (fault, flush):
            looks = await looks_at(worker, 2)
            writing = asyncio.create_task(write())

            async def written_or_waiting() -> bool:
                return writing.done() or await looks_at(worker, 2) > looks

            await until(written_or_waiting)
            fault.mend()
            assert await flush
            await writing
        assert await client.get(KEY) == b"new"
        async with worker.direct(1) as source, worker.direct(2) as target:
            for server in (source, target):
                assert not any(field.startswith(b"flush:") for field in await server.hkeys(STATE))


async def test_drained_no_slot_begins_to_move_while_the_servers_are_flushed(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=LIMIT, lock_drain_seconds=LIMIT)
    async with target_behind_relay(worker) as relay:
        await migrate_key(worker)
        async with flush_held_at_target(worker, relay) as (fault, flush):
            other = next(slot.id for slot in worker.table.slots if slot.action is None and slot.group_id == 1)
            epoch = worker.push([Slot(other, 1, Action(SlotState.PREPARED, 2))])
            await worker.next(lambda message: message.type == "counters")
            worker.messages[:] = [message for message in worker.messages if message.type != "counters"]
            await worker.next(lambda message: message.type == "counters")
            assert not any(message.type in ("ack", "nack") for message in worker.messages)
            fault.mend()
            assert await flush
            assert (await worker.verdict(epoch)).type == "ack"


async def test_a_flush_that_was_taken_over_is_not_done_at_the_target(start_worker: StartWorker) -> None:
    """A process that waited for it has written there since."""
    worker = await start_worker(backend_reply_seconds=LIMIT)
    async with target_behind_relay(worker) as relay, worker.direct(1) as source, worker.direct(2) as target:
        await migrate_key(worker)
        async with flush_held_at_target(worker, relay) as (fault, flush):
            for server in (target, source):
                fields = await server.execute_command("EVAL", UNDER_WAY.text, 1, STATE)
                assert len(fields) == 1
                assert await server.execute_command("EVAL", UNDER_WAY.text, 1, STATE, *fields) == []
            async with worker.client() as client:
                assert await client.get(KEY) is None
                await client.set(KEY, "new")
                fault.mend()
                with pytest.raises(redis.exceptions.TryAgainError, match="keys move again"):
                    await flush
                assert await client.get(KEY) == b"new"


@pytest.mark.parametrize("words", FLUSHES)
async def test_nothing_comes_back_from_the_way_to_the_target(start_worker: StartWorker, words: tuple[str, ...]) -> None:
    """A key that was taken at the source is on its way when everything is flushed."""
    worker = await start_worker()
    async with target_behind_relay(worker) as relay, worker.client() as client, worker.direct(1) as source:
        await client.set(KEY, "old")
        await migrate_key(worker)
        fault = relay.hold(directions=frozenset({Direction.TO_SERVER}), containing=PLACE.digest.encode())
        asked = asyncio.create_task(client.get(KEY))

        async def met() -> bool:
            return fault.met > 0

        await until(met)
        relay.restrict_to_caught(fault)
        assert await source.hexists(STATE, f"claim:0:{KEY}")
        async with worker.client() as flushing:
            await flushing.execute_command(*words)
        fault.mend()
        assert await asked is None
        assert await worker.keys(1) == await worker.keys(2) == []
        # Nothing hinders the next mover.
        await client.set(KEY, "new")
        assert await client.get(KEY) == b"new"


async def test_a_flush_of_another_database_takes_the_permit_too(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client(db=3) as client, worker.direct(1) as source:
        await client.mset({KEY: "1", f"{{{KEY}}}2": "2"})
        await migrate_key(worker)
        assert await client.get(KEY) == b"1"
        assert await source.hexists(STATE, "permit")
        await client.flushdb()
        assert not await source.hexists(STATE, "permit")
        assert await worker.keys(1, 3) == await worker.keys(2, 3) == []


@pytest.mark.parametrize("words", FLUSHES)
async def test_marks_outlast_a_flush(worker: WorkerHarness, words: tuple[str, ...]) -> None:
    async with worker.client() as client, worker.direct(1) as direct:
        await connections.fence(direct, ["another"])
        await direct.hset(LEADER, "term", "7")
        await client.mset({f"key-{number}": "1" for number in range(50)})
        fenced = await direct.hgetall(reserved.FENCED)
        await client.execute_command(*words)
        assert await worker.keys(1) == await worker.keys(2) == []
        assert await direct.hgetall(reserved.FENCED) == fenced
        assert await direct.hget(LEADER, "term") == b"7"
        assert not await direct.hexists(reserved.FENCED, INSTANCE)


async def test_a_flush_that_cannot_be_whole_says_so(start_worker: StartWorker) -> None:
    """The target cannot be told that keys are not to move."""
    worker = await start_worker(backend_reply_seconds=1.0)
    async with worker.client() as client, Talk(worker.settings.listen) as talk, worker.direct(1) as source:
        await client.set(KEY, "old")
        await migrate_key(worker)
        async with frozen(worker, 2):
            reply = await talk.ask("FLUSHALL")
            assert reply.startswith(b"-ERR server " + worker.servers[1].address.encode()), reply
            assert await source.get(KEY) == b"old", "nothing was flushed anywhere"
        async with asyncio.timeout(LIMIT):
            while await talk.ask("FLUSHALL") != b"+OK\r\n":
                await asyncio.sleep(0.01)
        await worker.act([SLOT], SlotState.FINISHED)


async def test_a_flush_reaches_keys_of_slots_that_are_offline(worker: WorkerHarness) -> None:
    """Also at a group that has no slot any more."""
    async with worker.client() as client, worker.direct(2) as direct:
        await client.mset({f"key-{number}": "1" for number in range(50)})
        await worker.apply([Slot(index) for index in range(512, 1024)])
        assert await worker.keys(2)
        await client.flushall()
        assert await worker.keys(1) == await worker.keys(2) == []
        await direct.set("not-through-the-proxy", "1")
        await client.flushdb()
        assert await worker.keys(2) == []
