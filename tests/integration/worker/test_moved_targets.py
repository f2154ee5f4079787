"""Keys on their way to a server that is no longer the target."""

from collections.abc import Awaitable, Callable

from slots.group import Group
from slots.messages.questions import WorkerCounters
from slots.states import SlotState
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually

StartWorker = Callable[..., Awaitable[WorkerHarness]]
FIRST, SECOND, THIRD = KEYS = ["{t}first", "{t}second", "{t}third"]
SLOT = slot_of(FIRST)


async def moving(worker: WorkerHarness) -> int:
    """The number of keys on their way; the worker has read all that was sent to it before."""
    return int((await worker.asked(WorkerCounters()))["moving"])


async def until_moving(worker: WorkerHarness, count: int) -> None:
    async def met() -> bool:
        return await moving(worker) == count

    await eventually(met, f"{count} keys on their way")


async def migrating(start_worker: StartWorker) -> WorkerHarness:
    """A worker with keys at group 1 whose slot moves to group 2; group 3 is for another master."""
    worker = await start_worker(servers=3, move_seconds=60.0)
    async with worker.direct(1) as source, Talk(worker.settings.listen) as talk:
        for key in KEYS:
            await source.set(key, key)
        await worker.act([SLOT], SlotState.PREPARING)
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        # The connection that moves keys is there.
        assert await talk.ask("GET", THIRD) == b"$8\r\n{t}third\r\n"
    return worker


async def found(worker: WorkerHarness, key: str) -> list[str | None]:
    """The value of a key at each server."""
    values = []
    for group in (1, 2, 3):
        async with worker.direct(group, decode_responses=True) as direct:
            values.append(await direct.get(key))
    return values


async def test_one_owner_a_key_that_waits_for_its_turn_goes_to_the_master_of_then(start_worker: StartWorker) -> None:
    worker = await migrating(start_worker)
    async with Talk(worker.settings.listen) as one, Talk(worker.settings.listen) as two:
        async with frozen(worker.servers[0]):
            one.send("GET", FIRST)
            await until_moving(worker, 1)
            two.send("GET", SECOND)
            await until_moving(worker, 2)
            # Both are under way already when the target gets another master.
            epoch = worker.push(groups=[Group(2, (worker.servers[2].address,))])
            assert await moving(worker) == 2
        assert await two.reply() == b"$9\r\n{t}second\r\n"
        assert (await worker.verdict(epoch)).type == "ack"
        assert await one.reply() == b"$8\r\n{t}first\r\n"
    assert await found(worker, SECOND) == [None, None, SECOND]
    assert await found(worker, FIRST) == [None, None, FIRST]
