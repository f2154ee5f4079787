"""A group has another master because its own hangs: requests go to the new one, and those under way do not wait."""

import asyncio

import pytest
import redis.exceptions

from slots.states import SlotState
from slots.table import Action, Group, Slot
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_slot_states import KEY, SLOT

SECONDS = 10
"""Less than the limits after which requests would get their errors anyway."""


async def test_what_is_under_way_at_a_master_that_hangs_is_given_up(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=0.2, backend_reply_seconds=60)
    hung, new = worker.servers[0].address, worker.servers[2].address
    async with worker.client(socket_timeout=60) as client, worker.client() as other, asyncio.timeout(SECONDS):
        await client.set(KEY, "0")
        async with frozen(worker.servers[0]):
            running = asyncio.create_task(client.incr(KEY))
            while not any(entry["owed"] == "1" for entry in await other.client_list()):
                await asyncio.sleep(0.01)
            verdict = await worker.verdict(worker.push([], [Group(1, (new, hung))]))
            assert verdict["type"] == "ack"
            with pytest.raises(redis.exceptions.ResponseError, match=f"{hung} is not its group's master any more"):
                await running
            assert await client.incr(KEY) == 1
    async with worker.direct(3) as promoted:
        assert await promoted.get(KEY) == b"1"


async def test_a_key_that_is_waited_for_comes_from_the_new_source(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=0.2, backend_reply_seconds=60, move_seconds=60)
    hung, target, new = (server.address for server in worker.servers)
    async with worker.client(socket_timeout=60) as client, worker.direct(3) as promoted, asyncio.timeout(SECONDS):
        await client.set(KEY, "at the hung one")
        await promoted.set(KEY, "replicated")
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        # The connection over which keys are moved is there already.
        await client.get(f"{{{KEY}}}")
        async with frozen(worker.servers[0]):
            waiting = asyncio.create_task(client.get(KEY))
            await worker.next(lambda message: message["type"] == "counters" and message["counters"]["moving"] > 0)
            moving = Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=9, target_run_id=worker.run_ids[target]))
            await worker.apply([moving], [Group(1, (new, hung))])
            assert await waiting == b"replicated"
            assert await promoted.exists(KEY) == 0


async def test_of_a_key_that_is_back_at_a_new_source_the_targets_copy_counts(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=0.2)
    former, target, new = (server.address for server in worker.servers)
    async with worker.client() as client, worker.direct(3) as promoted:
        await client.set(KEY, "old")
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        await client.set(KEY, "new")
        # The replica has not heard that the key has left.
        await promoted.set(KEY, "old")
        moving = Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=9, target_run_id=worker.run_ids[target]))
        await worker.apply([moving], [Group(1, (new, former))])
        # absent-first: what was known of the former source does not count.
        assert await client.get(KEY) == b"new"
        assert await promoted.exists(KEY) == 0
