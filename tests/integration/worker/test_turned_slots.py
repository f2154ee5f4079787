"""A worker's part when a migration is cancelled: the slot is locked, turned round, and its keys go back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest
import redis.exceptions

from slots.slot import Action, Slot
from slots.states import Course, SlotState
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import frozen, waits

StartWorker = Callable[..., Awaitable[WorkerHarness]]
MOVED, LEFT, NEW = "{tag}moved", "{tag}left", "{tag}new"
"""Keys of one slot: one that has gone to the target, one still at the source, one that comes into being later."""
SLOT = slot_of(MOVED)

TURNING = Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, Course.TURNING))
LOCKED = Slot(SLOT, 2, Action(SlotState.PREPARED, 1, Course.BACK))
BACK = Slot(SLOT, 2, Action(SlotState.MIGRATING, 1, Course.BACK))


async def half_way(worker: WorkerHarness) -> None:
    """The slot migrates from group 1 to group 2; one of two keys has gone, and it was cancelled."""
    async with worker.client() as client:
        for key in (MOVED, LEFT):
            await client.set(key, "10")
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        assert await client.incr(MOVED) == 11
        await worker.apply([TURNING])


async def keys_at(worker: WorkerHarness, group: int) -> set[str]:
    return {key.decode() for key in await worker.keys(group)}


async def refuse_lock(worker: WorkerHarness, slots: Iterable[Slot] = (LOCKED,)) -> str:
    """Push the lock and have the worker's refusal; its reason."""
    verdict = await worker.verdict(worker.push(slots))
    assert verdict.type == "nack", verdict
    return str(verdict.reason)


async def test_commands_wait_for_the_turn_and_then_run_where_they_did_before_all(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await half_way(worker)
    async with worker.client() as client, worker.client() as second:
        await worker.apply([LOCKED])
        held = asyncio.create_task(client.incr(MOVED))
        also = asyncio.create_task(second.incr(NEW))
        async with worker.client() as bystander:
            for _ in range(20):
                assert await bystander.get("of another slot") is None
        assert [held.done(), also.done()] == [False, False]
        await worker.apply([BACK])
        assert (await held, await also) == (12, 1)
        assert await client.incr(LEFT) == 11
        assert await keys_at(worker, 1) == {MOVED, LEFT, NEW}
        assert await keys_at(worker, 2) == set()
        await worker.apply([Slot(SLOT, 2, Action(SlotState.FINISHED, 1, Course.BACK))])
        await worker.apply([Slot(SLOT, 1)])
        assert await client.mget(MOVED, LEFT, NEW) == [b"12", b"11", b"1"]


async def test_absent_first_a_refused_turn_leaves_the_slot_migrating(start_worker: StartWorker) -> None:
    """If the slot is unlocked, its commands may not go to either server as they are, because its keys are on both."""
    worker = await start_worker(lock_drain_seconds=1.0)
    await half_way(worker)
    async with worker.client(client_name="waits") as client, worker.client() as second:
        async with frozen(worker, 2):
            running = asyncio.create_task(client.incr(MOVED))
            await waits(worker, "owed")
            assert str(SLOT) in await refuse_lock(worker)
        assert await running == 12
        # No other table has come since.
        assert await second.incr(LEFT) == 11
        assert await keys_at(worker, 1) == set()
        assert await keys_at(worker, 2) == {MOVED, LEFT}
        await worker.apply([TURNING])
        await worker.apply([LOCKED])
        await worker.apply([BACK])
        assert await second.mget(MOVED, LEFT) == [b"12", b"11"]
        assert await keys_at(worker, 1) == {MOVED, LEFT}


async def test_drained_a_turn_waits_for_keys_on_their_way(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    await half_way(worker)
    async with worker.client(client_name="waits") as client:
        async with frozen(worker, 1):
            moving = asyncio.create_task(client.incr(LEFT))
            await waits(worker, "qbuf")
            epoch = worker.push([LOCKED])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
        assert (await worker.verdict(epoch)).type == "ack"
        assert not moving.done()
        await worker.apply([BACK])
        assert await moving == 11
        assert LEFT in await keys_at(worker, 1)


@pytest.mark.long
async def test_drained_a_turn_waits_until_a_lost_move_is_ended(start_worker: StartWorker) -> None:
    """A step that was given up may still be in its server's socket buffer."""
    worker = await start_worker(lock_drain_seconds=1.0, move_seconds=1.5)
    await half_way(worker)
    async with worker.client() as client, frozen(worker, 1):
        with pytest.raises(redis.exceptions.ResponseError, match="could not be moved yet"):
            await client.incr(LEFT)
        assert worker.servers[0].address in await refuse_lock(worker)
