"""A slot whose keys the migrator carries: the source sends none, whoever writes a key has it carried first."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis

from slots import moving
from slots.states import SlotState
from slots.table import Action, Slot
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_big_keys import OTHER, move_it
from tests.integration.worker.test_slot_states import KEY, SLOT

StartWorker = Callable[..., Awaitable[WorkerHarness]]


async def fill(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.set(KEY, "0")
        await client.set(OTHER, "value")


async def begin(worker: WorkerHarness) -> None:
    """The slot migrates from group 1 to group 2, and its keys are carried."""
    for state in (SlotState.PREPARED, SlotState.MIGRATING):
        await worker.apply([Slot(SLOT, 1, Action(state, 2, carried=True))])


async def test_small_keys_wait_for_the_migrator(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=LIMIT)
    await fill(worker)
    await begin(worker)
    async with worker.client() as client, worker.direct(1) as source, asyncio.timeout(LIMIT):
        # Who reads is served at once, at the source.
        assert await client.get(KEY) == b"0"
        assert await client.mget(KEY, OTHER) == [b"0", b"value"]
        # What is at neither server is there for the taking.
        assert await client.set(f"{{{KEY}}}new", "value") is True
        writing = [asyncio.create_task(client.incr(KEY)) for _ in range(5)]
        transaction = client.pipeline(transaction=True)
        transaction.append(OTHER, "!").incr(KEY)
        both = asyncio.create_task(transaction.execute())
        while not {b"0:" + KEY.encode(), b"0:" + OTHER.encode()} <= set(await source.lrange(moving.WANTED, 0, -1)):
            await asyncio.sleep(0.005)
        assert not any(task.done() for task in [*writing, both])
        assert await source.exists(KEY, OTHER) == 2

        await move_it(worker, carried=True)
        await asyncio.gather(*writing)
        assert (await both)[0] == 6
        assert await client.get(KEY) == b"6"
        assert await source.exists(KEY, OTHER) == 0
        assert "cmdstat_migrate" not in await source.info("commandstats")


async def test_a_write_waits_no_longer_than_it_may(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=0.3, move_seconds=0.2)
    await fill(worker)
    await begin(worker)
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=r"could not be moved yet .topom carries it.;"):
            await client.incr(KEY)
        assert await client.get(KEY) == b"0"


async def test_clients_that_count_while_keys_are_carried_lose_nothing(start_worker: StartWorker) -> None:
    """given clients at all keys all the time, each key counts all of its increments, and reads never go back."""
    worker = await start_worker(big_key_seconds=LIMIT)
    keys = [f"{{{KEY}}}{number}" for number in range(300)]
    async with worker.client() as client:
        await client.mset(dict.fromkeys(keys, 0))
    await begin(worker)
    over = asyncio.Event()
    counted = 0

    async def count(offset: int) -> None:
        nonlocal counted
        async with worker.client() as client:
            while not over.is_set():
                for key in keys[offset:] + keys[:offset]:
                    before = int(await client.get(key))
                    assert await client.incr(key) > before
                    counted += 1

    clients = [asyncio.create_task(count(offset)) for offset in range(0, 300, 60)]
    async with asyncio.timeout(LIMIT):
        await move_it(worker, carried=True)
    over.set()
    await asyncio.gather(*clients)
    async with worker.client() as client, worker.direct(1) as source:
        assert sum(map(int, await client.mget(keys))) == counted
        assert await source.exists(*keys) == 0
