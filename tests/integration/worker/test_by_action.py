"""**by-action**: what a worker has learned of a moving slot's keys counts for one action and one identity."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.exceptions

from slots.states import SlotState
from slots.table import Action, Slot
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_slot_states import KEY, SLOT

OTHER = f"{{{KEY}}}other"


def migrating(epoch: int) -> Slot:
    return Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=epoch))


async def new_identity(worker: WorkerHarness) -> None:
    """It was fenced while the slot came to rest at group 1 and set out again; what it is told looks the same."""
    worker.channel.send({"type": "identity", "instance": "f" * 32, "incarnation": 1, "table": worker.table.to_wire()})
    await worker.next(lambda message: message["type"] == "ack" and message["instance"] == "f" * 32)


async def another_action(worker: WorkerHarness) -> None:
    """Whatever was in between it has not seen: the slot was back, or a master was another one for a while."""
    await worker.apply([migrating(7)])


@pytest.mark.parametrize("follows", [new_identity, another_action])
async def test_what_was_absent_before_is_looked_for_again(
    start_worker: StartWorker, follows: Callable[[WorkerHarness], Awaitable[None]]
) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(1) as source:
        await worker.apply([migrating(5)])
        assert await client.get(KEY) is None
        await worker.apply([])
        await source.set(KEY, "written while the slot was at rest here")
        assert await client.get(KEY) is None, "within one action nothing is looked for twice"
        await follows(worker)
        assert await client.get(KEY) == b"written while the slot was at rest here"


async def test_what_a_source_brings_back_is_looked_for(start_worker: StartWorker) -> None:
    """given a source that comes back with older data, what was absent before may be there again."""
    worker = await start_worker()
    source_server = worker.servers[0]
    async with worker.client() as client, worker.direct(1) as source, worker.direct(2) as target:
        for key in (KEY, OTHER):
            await client.set(key, "old")
        await source.save()
        await worker.apply([migrating(5)])
        assert await client.get(OTHER) == b"old"
        await client.set(OTHER, "new")
        await client.delete(KEY)
        await source_server.kill()
        source_server.start()
        await source_server.ready()
        async with asyncio.timeout(LIMIT):
            # A single server brings back what was deleted since it was saved, too.
            while await client.get(KEY) != b"old":
                await asyncio.sleep(0.01)
        assert await client.get(OTHER) == b"new", "of this one, the target's copy counts"
        assert await source.exists(KEY, OTHER) == 0
        assert await target.exists(KEY, OTHER) == 2


async def test_nothing_is_read_at_a_source_that_is_another_process_by_now(start_worker: StartWorker) -> None:
    """given a key that goes in pieces, it is read at the source as long as that is what the action began with."""
    worker = await start_worker(big_key_seconds=0.5, move_seconds=0.2)
    source_server = worker.servers[0]
    async with worker.client() as client, worker.direct(1) as source:
        await client.rpush(KEY, *range(2000))
        await worker.apply([migrating(5)])
        assert await client.llen(KEY) == 2000
        await source.save()
        await source_server.kill()
        source_server.start()
        await source_server.ready()
        assert await source.llen(KEY) == 2000
        with pytest.raises(redis.exceptions.ResponseError, match=r"it goes in pieces.*nothing was run"):
            await client.llen(KEY)
        # As topom has it once it has begun anew.
        worker.run_ids[source_server.address] = (await source.info("server"))["run_id"]
        await worker.apply([migrating(6)])
        assert await client.llen(KEY) == 2000
