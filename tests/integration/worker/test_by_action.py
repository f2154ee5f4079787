"""**by-action**: what a worker has learned of a moving slot's keys counts for one action and one identity."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis.asyncio
import redis.exceptions

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.breaking_relay import BOTH_WAYS, BreakingRelay, Direction
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_slot_states import KEY, SLOT

OTHER = f"{{{KEY}}}other"


def migrating(epoch: int) -> Slot:
    return Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=epoch))


async def new_identity(worker: WorkerHarness) -> None:
    """It was fenced while the slot came to rest at group 1 and set out again; what it is told looks the same."""
    worker.take_identity()
    await worker.next(lambda message: message.type == "ack" and message.instance == "f" * 32)


async def another_action(worker: WorkerHarness) -> None:
    """The worker has not seen what was in between: the slot was back, or another server was a master for a while."""
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


async def test_nothing_is_read_at_a_source_that_is_another_process_by_now(start_worker: StartWorker) -> None:
    """given a key that goes in pieces, it is read at the source as long as the source is the process that the action
    began with."""
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
        # As topom has it after it has started again.
        worker.run_ids[source_server.address] = (await source.info("server"))["run_id"]
        await worker.apply([migrating(6)])
        assert await client.llen(KEY) == 2000


@asynccontextmanager
async def behind_a_relay(worker: WorkerHarness) -> AsyncIterator[BreakingRelay]:
    """The source has a relay before it."""
    async with BreakingRelay(worker.servers[0].port) as relay:
        worker.run_ids[relay.address] = worker.run_ids[worker.servers[0].address]
        await worker.apply([], [Group(1, (relay.address,))])
        yield relay


async def comes_back(worker: WorkerHarness) -> None:
    """The source is started from what it has saved."""
    await worker.servers[0].kill()
    worker.servers[0].start()
    await worker.servers[0].ready()


async def until_taken(send: Callable[[], Awaitable[object]]) -> object:
    """Send what may be refused for a while, until it is acknowledged."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await send()
            except redis.exceptions.ResponseError as error:
                if not str(error).endswith("nothing was run"):
                    raise


async def delete(client: redis.asyncio.Redis) -> object:
    return await client.delete(KEY)


async def delete_several(client: redis.asyncio.Redis) -> object:
    return await client.unlink(KEY, OTHER)


async def take(client: redis.asyncio.Redis) -> object:
    return await client.getdel(KEY)


async def let_expire(client: redis.asyncio.Redis) -> object:
    return await client.pexpireat(KEY, 1)


async def rename(client: redis.asyncio.Redis) -> object:
    return await client.rename(KEY, OTHER)


async def in_a_transaction(client: redis.asyncio.Redis) -> object:
    return await client.pipeline().get(KEY).delete(KEY).execute()


async def by_script(client: redis.asyncio.Redis) -> object:
    return await client.eval("return redis.call('DEL', KEYS[1])", 1, KEY)


@pytest.mark.long
@pytest.mark.parametrize("takes_away", [delete, delete_several, take, let_expire, rename, in_a_transaction, by_script])
async def test_absent_first_a_source_that_restarted_unheard_undoes_nothing(
    start_worker: StartWorker, takes_away: Callable[[redis.asyncio.Redis], Awaitable[object]]
) -> None:
    """given a source that is back with older data, and a worker whose connections to it have been silent since
    when a key that had left the source is written, then the write succeeds at once
    when such a key is taken away, then it is taken away at the source, too.
    """
    worker = await start_worker(move_seconds=1.0)
    async with behind_a_relay(worker) as relay, worker.client() as client, worker.direct(1) as source:
        await client.mset({KEY: "old", OTHER: "old"})
        await source.save()
        await worker.apply([migrating(5)])
        assert await until_taken(lambda: client.mget(KEY, OTHER)) == [b"old", b"old"]
        assert await source.exists(KEY, OTHER) == 0
        relay.hold(only_present=True)
        await comes_back(worker)
        assert await source.exists(KEY, OTHER) == 2
        await client.mset({KEY: "new", OTHER: "new"})
        assert await source.exists(KEY, OTHER) == 2, "of these, what the target has counts"
        await until_taken(lambda: takes_away(client))
        assert not await source.exists(KEY)
        assert not await client.exists(KEY)


@pytest.mark.long
async def test_absent_first_what_a_source_said_before_a_delete_came_does_not_count_for_it(
    start_worker: StartWorker,
) -> None:
    """given a look at the source whose answer is on its way when that restarts with older data
    when the key is deleted, the source is looked at again.
    """
    worker = await start_worker(move_seconds=LIMIT)
    async with (
        behind_a_relay(worker) as relay,
        worker.direct(1) as source,
        worker.client() as client,
        worker.client() as other,
    ):
        assert await other.mset({KEY: "old", OTHER: "old"})
        await source.save()
        await worker.apply([migrating(5)])
        assert await client.get(OTHER) == b"old"
        await source.delete(KEY)  # as if another mover had taken it, and somebody deleted it
        silent = relay.hold(directions=BOTH_WAYS - {Direction.TO_SERVER}, only_present=True)
        reading = asyncio.create_task(client.get(KEY))
        async with asyncio.timeout(LIMIT):
            while not silent.met:
                await asyncio.sleep(0.01)
        await comes_back(worker)
        assert await source.exists(KEY)
        deleting = asyncio.create_task(other.delete(KEY))
        worker.messages.clear()
        for _ in range(2):  # by the second, it has been read
            await worker.next(lambda message: message.type == "counters")
        assert not deleting.done()
        silent.mend()
        await asyncio.gather(reading, deleting)
        assert not await source.exists(KEY)
        assert not await client.exists(KEY)
