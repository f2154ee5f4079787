"""A key that moves in pieces: reads run at the source meanwhile, what may write waits, and then runs at the target."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest
import redis

from migrator.move import migrate
from migrator.pace import Pace
from migrator.progress import Progress
from slots import reserved
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import KEY, SLOT, migrate_key

StartWorker = Callable[..., Awaitable[WorkerHarness]]

OTHER = f"{{{KEY}}}small"


async def move_it(worker: WorkerHarness, slots: Iterable[int] = (SLOT,)) -> None:
    """What the migrator does in the state `migrating`."""
    await migrate(
        worker.servers[0].address,
        worker.servers[1].address,
        sorted(slots),
        key_slots=KeySlots("crc32", 1024),
        access=ServerAccess(),
        pace=Pace(),
        progress=Progress(),
        instance="0" * 32,
    )


async def fill(worker: WorkerHarness, count: int = 2000) -> None:
    async with worker.client() as client:
        await client.rpush(KEY, *range(count))
        await client.set(OTHER, "value")


async def test_reads_run_at_the_source_until_the_key_has_moved(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=LIMIT)
    await fill(worker)
    assert slot_of(OTHER) == SLOT
    await migrate_key(worker)
    async with (
        worker.client() as client,
        worker.direct(1) as source,
        worker.direct(2) as target,
        asyncio.timeout(LIMIT),
    ):
        # Nobody moves it yet.
        assert await client.llen(KEY) == 2000
        assert await client.lrange(KEY, 5, 6) == [b"5", b"6"]
        async with worker.client(protocol=3) as third:
            assert await third.execute_command("OBJECT", "ENCODING", KEY) is not None
            assert await third.lpos(KEY, "77") == 77
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            await client.get(KEY)
        assert await client.exists(KEY) == 1
        assert await target.exists(KEY) == 0
        assert await source.lrange(reserved.WANTED, 0, -1) == [b"0:" + KEY.encode()]

        writing = [asyncio.create_task(client.rpush(KEY, number)) for number in ("a", "b")]
        reading = [await client.llen(KEY) for _ in range(20)]
        assert set(reading) == {2000}
        assert not any(task.done() for task in writing)
        # Small ones of the slot do not wait.
        assert await client.get(OTHER) == b"value"

        await move_it(worker)
        assert sorted([await task for task in writing]) == [2001, 2002]
        assert await client.llen(KEY) == 2002
        assert await source.exists(KEY) == 0
        assert await target.lrange(KEY, 0, 3) == [b"0", b"1", b"2", b"3"]


async def test_a_pipeline_keeps_its_order_around_a_big_key(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=LIMIT)
    await fill(worker)
    await migrate_key(worker)
    async with worker.client() as client, asyncio.timeout(LIMIT):
        pipe = client.pipeline(transaction=False)
        pipe.get(OTHER).llen(KEY).rpush(KEY, "x").llen(KEY).set(OTHER, "new").get(OTHER).lindex(KEY, -1)
        running = asyncio.create_task(pipe.execute())
        async with worker.direct(1) as source:
            while not await source.exists(reserved.WANTED):
                await asyncio.sleep(0.005)
        await move_it(worker)
        assert await running == [b"value", 2000, 2001, 2001, True, b"new", b"x"]


async def test_a_write_waits_no_longer_than_it_may(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=0.3, move_seconds=0.2)
    await fill(worker)
    await migrate_key(worker)
    async with worker.client() as client, worker.direct(1) as source:
        with pytest.raises(redis.exceptions.ResponseError, match=r"could not be moved yet \(it goes in pieces\)"):
            await client.rpush(KEY, "x")
        assert await client.llen(KEY) == 2000
        assert await source.llen(KEY) == 2000
        await move_it(worker)
        assert await client.rpush(KEY, "x") == 2001


async def test_clients_that_read_and_write_while_it_moves_see_one_key(start_worker: StartWorker) -> None:
    worker = await start_worker(big_key_seconds=LIMIT)
    await fill(worker, 60_000)
    await migrate_key(worker)
    over = asyncio.Event()

    async def read() -> int:
        async with worker.client() as client:
            seen, last = 0, 0
            while not over.is_set():
                length = await client.llen(KEY)
                assert length >= last >= 0
                last, seen = length, seen + 1
            assert last >= 60_000
            return seen

    async def write(number: int) -> None:
        async with worker.client() as client:
            for _ in range(50):
                await client.rpush(KEY, number)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    async with asyncio.timeout(LIMIT):
        writers = [asyncio.create_task(write(number)) for number in range(4)]
        await move_it(worker)
        await asyncio.gather(*writers)
    over.set()
    assert all(await asyncio.gather(*readers))
    async with worker.client() as client:
        assert await client.llen(KEY) == 60_200


async def test_absent_first_a_claimed_key_counts_as_present_though_it_has_gone(start_worker: StartWorker) -> None:
    """given a key that expires while it is copied, no client can create it again before the copy is done."""
    worker = await start_worker(big_key_seconds=LIMIT)
    await fill(worker)
    await migrate_key(worker)
    async with worker.client() as client, worker.direct(1) as source, worker.direct(2) as target:
        assert await client.llen(KEY) == 2000
        await source.hset(reserved.STATE, f"claim:0:{KEY}", "who copies it")
        await source.delete(KEY)
        writing = asyncio.create_task(client.rpush(KEY, "anew"))
        async with worker.client() as other:
            for _ in range(20):
                assert await other.get(OTHER) == b"value"
        assert not writing.done()
        assert not await target.exists(KEY)
        await source.hdel(reserved.STATE, f"claim:0:{KEY}")
        async with asyncio.timeout(LIMIT):
            assert await writing == 1


async def test_slotferrys_own_keys_are_not_shown(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await fill(worker)
    await migrate_key(worker)
    async with worker.client() as client, worker.direct(1) as source:
        assert await client.get(OTHER) == b"value"
        assert await client.llen(KEY) == 2000
        assert await source.exists(*reserved.RESERVED_KEYS) == 2
        assert sorted(await client.keys("*")) == sorted([KEY.encode(), OTHER.encode()])
        assert sorted([key async for key in client.scan_iter()]) == sorted([KEY.encode(), OTHER.encode()])
        assert await client.dbsize() == 2
        assert await client.randomkey() in (KEY.encode(), OTHER.encode())
