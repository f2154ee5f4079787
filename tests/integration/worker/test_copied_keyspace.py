"""Commands about all keys while slots move by a copy (**hidden**): what they say is true of the owner alone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from slots.reserved import HIDDEN
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.copied import COPY, act_by_copy, switch
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_keyspace import answered
from tests.integration.worker.test_slot_states import frozen

StartWorker = Callable[..., Awaitable[WorkerHarness]]

STAYS, DELETED = "{moving}stays", "{moving}deleted"
SLOT = slot_of(STAYS)
LISTS = [("KEYS", "*"), ("SCAN", "0"), ("RANDOMKEY",)]
IN_PYTHON = ("SCAN", "0", "COUNT", "1000")
"""The engine leaves it to plain Python."""
ONLY_STAYS = {
    "KEYS": b"*1\r\n$13\r\n{moving}stays\r\n",
    "SCAN": b"*1\r\n$13\r\n{moving}stays\r\n",
    "RANDOMKEY": b"$13\r\n{moving}stays\r\n",
}
IN_COPY = (SlotState.COPYING, SlotState.PREPARING)


async def copy(worker: WorkerHarness) -> None:
    """Both servers have both keys; the first server owns them."""
    async with worker.client() as client, worker.direct(2) as target:
        for one in (client, target):
            await one.mset({STAYS: "1", DELETED: "1"})


async def lists(talk: Talk, words: tuple[str, ...]) -> bytes:
    """A command's reply, without a cursor that says that more may follow."""
    reply = await talk.ask(*words)
    if words[0] != "SCAN":
        return reply
    _, _, cursor, rest = reply.split(b"\r\n", 3)
    found = []
    while True:
        found += rest.split(b"\r\n")[2::2]
        if cursor == b"0":
            return b"*%d\r\n" % len(found) + b"".join(b"$%d\r\n%b\r\n" % (len(key), key) for key in found)
        _, _, cursor, rest = (await talk.ask("SCAN", cursor)).split(b"\r\n", 3)


@asynccontextmanager
async def waiting(awaited: Coroutine[Any, Any, bytes]) -> AsyncIterator["asyncio.Task[bytes]"]:
    """A task that has not come to its end yet, and is ended with the block."""
    task = asyncio.create_task(awaited)
    try:
        await asyncio.sleep(0.2)
        assert not task.done(), task.result()
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.mark.parametrize("words", LISTS)
async def test_a_copy_is_not_seen_before_the_switch_and_the_source_is_not_after_it(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    worker = await start_worker()
    await copy(worker)
    async with Talk(worker.settings.listen) as talk, worker.direct(1) as source, worker.direct(2) as target:
        await source.delete(DELETED)
        for state in IN_COPY:
            await act_by_copy(worker, [SLOT], state)
            assert await lists(talk, words) == ONLY_STAYS[words[0]]
        await source.set(DELETED, "1")
        await target.delete(DELETED)
        await act_by_copy(worker, [SLOT], SlotState.PREPARED, SlotState.FINISHED)
        assert await lists(talk, words) == ONLY_STAYS[words[0]]
        await worker.apply([Slot(SLOT, 2)])
        assert await lists(talk, words) == ONLY_STAYS[words[0]]


@pytest.mark.parametrize("words", LISTS)
@pytest.mark.parametrize("switches", [True, False], ids=["switched", "given up"])
async def test_while_such_a_slot_is_locked_they_wait(
    start_worker: StartWorker, words: tuple[str, ...], switches: bool
) -> None:
    """The worker hears of the switch late: by then a key was deleted at the target."""
    worker = await start_worker()
    await copy(worker)
    await act_by_copy(worker, [SLOT], *IN_COPY, SlotState.PREPARED)
    async with (
        Talk(worker.settings.listen) as talk,
        worker.direct(2 if switches else 1) as owner,
        waiting(lists(talk, words)) as reply,
    ):
        await owner.delete(DELETED)
        if switches:
            await switch(worker, [SLOT])
        else:
            await act_by_copy(worker, [SLOT], SlotState.PREPARING)
        assert await reply == ONLY_STAYS[words[0]]


@pytest.mark.parametrize("words", [*LISTS, IN_PYTHON], ids=" ".join)
async def test_an_answer_from_before_the_lock_that_comes_after_it_does_not_count(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    worker = await start_worker()
    await copy(worker)
    async with Talk(worker.settings.listen) as talk, worker.direct(2) as target:
        await act_by_copy(worker, [SLOT], *IN_COPY)
        # The worker has its connections, and RANDOMKEY knows how many keys there are.
        await lists(talk, words)
        async with AsyncExitStack() as stack:
            async with frozen(worker, 1):
                reply = await stack.enter_async_context(waiting(lists(talk, words)))
                await act_by_copy(worker, [SLOT], SlotState.PREPARED)
                await target.delete(DELETED)
                await switch(worker, [SLOT])
            assert await reply == ONLY_STAYS[words[0]]


async def test_a_few_keys_among_many_copies_are_found_by_randomkey(start_worker: StartWorker) -> None:
    worker = await start_worker()
    copies = [f"{{moving}}{number}" for number in range(30_000)]
    own = [name for name in (f"own-{number}" for number in range(100)) if slot_of(name) != SLOT][:2]
    await worker.apply([Slot(slot, 2) for slot in range(1024) if slot != SLOT])
    await act_by_copy(worker, [SLOT], *IN_COPY)
    async with worker.client() as client, worker.direct(2) as target:
        await target.mset(dict.fromkeys(copies, "1"))
        # Where the copy has been counted, and where the count is too small.
        for hidden in (len(copies), 0):
            await target.hset(HIDDEN, "0", hidden)
            assert await client.randomkey() is None
            assert await client.dbsize() == len(copies) - hidden
            await client.mset(dict.fromkeys(own, "1"))
            found = set[bytes]()
            asked = 0
            while len(found) < len(own) and asked < 2_000:  # by how the server keeps them, one may come rarely
                found.add(await client.randomkey())
                asked += 1
            assert found == {name.encode() for name in own}
            await client.delete(*own)
        # Too large: a switch was given up at its last moment.
        async with worker.direct(1) as source:
            await source.hset(HIDDEN, "0", 7)
            await client.set(STAYS, "1")
            assert await client.randomkey() == STAYS.encode()


@pytest.mark.parametrize("words", [*LISTS, ("DBSIZE",)])
async def test_bounded_they_wait_as_long_as_a_request_for_the_slot(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    worker = await start_worker(lock_hold_seconds=0.3)
    await copy(worker)
    await act_by_copy(worker, [SLOT], *IN_COPY, SlotState.PREPARED)
    async with Talk(worker.settings.listen) as talk:
        locked = b"-TRYAGAIN slot %d is locked while it changes hands, for more than 0.3 s; nothing was run\r\n" % SLOT
        assert await talk.ask(*words) == locked
        assert await answered(worker, 2, words[0].lower()) == 0
        assert await talk.ask("PING") == b"+PONG\r\n"


async def test_what_waits_goes_with_its_client(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await copy(worker)
    await act_by_copy(worker, [SLOT], *IN_COPY, SlotState.PREPARED)
    for words in LISTS:
        async with Talk(worker.settings.listen) as talk:
            talk.send(*words)
            await talk.writer.drain()
            await asyncio.sleep(0.05)
    await switch(worker, [SLOT])
    async with worker.client() as client:
        assert sorted(await client.keys("*")) == [DELETED.encode(), STAYS.encode()]


@pytest.mark.long
@pytest.mark.parametrize("words", [("KEYS", "*"), IN_PYTHON], ids=" ".join)
async def test_a_lock_that_the_worker_has_refused_keeps_nobody_waiting(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    """Nothing is switched without its lock, so the source is still the owner, until the lock is taken again."""
    worker = await start_worker(lock_drain_seconds=0.2)
    await copy(worker)
    both = b"*2\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(key), key.encode()) for key in (DELETED, STAYS))
    async with Talk(worker.settings.listen) as talk, worker.direct(2) as target, AsyncExitStack() as stack:
        await act_by_copy(worker, [SLOT], *IN_COPY)
        await target.delete(DELETED)
        async with frozen(worker, 1), Talk(worker.settings.listen) as slow:
            slow.send("GET", STAYS)
            await slow.writer.drain()
            await worker.under_way()
            refused = await worker.verdict(worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2, copy=COPY))]))
            assert "had no reply" in refused.reason
        # Redis lists them in an order of its own.
        assert len(await lists(talk, words)) == len(both)
        async with frozen(worker, 1):
            reply = await stack.enter_async_context(waiting(lists(talk, words)))
            await act_by_copy(worker, [SLOT], SlotState.PREPARED)
            await switch(worker, [SLOT])
        assert await reply == ONLY_STAYS[words[0]]
