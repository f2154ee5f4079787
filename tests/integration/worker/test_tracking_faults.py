"""Clients that cache keep nothing for ever that has changed, whatever becomes of the worker's connections."""

import asyncio

import pytest

from proxy.commands.tracking.servers import FLUSH_SECONDS
from proxy.engine.allowance import clock
from slots.group import Group
from slots.messages.channel import Allowance, Grant
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from tests.integration.caching import CachingClient, Load, kill_what_tells, plainly
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import INSTANCE, OTHER, WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually

KEYS = [b"key:%d" % number for number in range(60)]
ROUNDS = 3
PAUSE = 0.3
LONG = 600.0


async def test_lost_connections(worker: WorkerHarness) -> None:
    ports = [server.port for server in worker.servers]

    async def disturb() -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(PAUSE)
            assert await kill_what_tells(ports)
            for group in (1, 2):
                async with worker.direct(group) as server:
                    await server.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(PAUSE)

    load = Load([worker.settings.listen], KEYS)
    await load.run(disturb)
    assert all(client.flushes >= ROUNDS for client in load.clients)


@pytest.mark.long
async def test_a_server_that_hangs(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=0.5, backend_connect_seconds=0.5)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])

    async def disturb() -> None:
        for index in range(2):
            await asyncio.sleep(PAUSE)
            async with frozen(worker.servers[index]):
                await asyncio.sleep(2.0)
        await asyncio.sleep(PAUSE)

    load = Load([worker.settings.listen], KEYS)
    await load.run(disturb)
    assert all(client.flushes for client in load.clients)


@pytest.mark.long
async def test_slots_that_move_there_and_back(worker: WorkerHarness) -> None:
    slots = sorted({slot_of(key) for key in KEYS if slot_of(key) < 512})

    async def move(source: int, target: int) -> None:
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act(slots, state, source, target)
            await asyncio.sleep(PAUSE / 3)
        async with worker.client() as client:
            await client.mget(KEYS)  # every key is moved for this
        await worker.act(slots, SlotState.FINISHED, source, target)
        await worker.apply([Slot(slot, target) for slot in slots])

    async def disturb() -> None:
        for _ in range(ROUNDS):
            await move(1, 2)
            await move(2, 1)

    await Load([worker.settings.listen], KEYS).run(disturb)


@pytest.mark.long
async def test_a_slot_that_is_turned_round_to_a_source_with_older_data(worker: WorkerHarness) -> None:
    """given a key that was deleted at the target, and is at the source again since that was restarted."""
    key = next(key for key in KEYS if slot_of(key) < 512)
    slot, server = slot_of(key), worker.servers[0]
    async with worker.client() as plain, CachingClient(worker.settings.listen, plainly, ()) as caching:
        await plain.set(key, "older")
        async with worker.direct(1) as source:
            await source.save()
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([slot], state)
        await plain.delete(key)
        await server.kill()
        server.start()
        await server.ready()

        async def is_kept() -> bool:
            # While the worker is not told by the source, nothing is kept for long.
            await caching.get(key)
            await asyncio.sleep(2 * FLUSH_SECONDS)
            return key in caching.values

        await eventually(is_kept, "the worker to be told again of what changes")
        assert caching.values[key] is None
        await worker.apply([Slot(slot, 1, Action(SlotState.MIGRATING, 2, Course.TURNING))])
        await worker.apply([Slot(slot, 2, Action(SlotState.PREPARED, 1, Course.BACK))])
        await worker.apply([Slot(slot, 2, Action(SlotState.MIGRATING, 1, Course.BACK))])
        assert await plain.get(key) == b"older"

        async def is_current() -> bool:
            return bool(await caching.get(key) == b"older")

        await eventually(is_current, "the client to drop what it keeps")


async def test_another_master_with_other_data(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0)
    first, second, third = worker.addresses
    await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(1, (first,)), Group(2, (second,))])

    async def disturb() -> None:
        for master in (third, first, third):
            await asyncio.sleep(PAUSE)
            await worker.apply([], [Group(1, (master,))])
        await asyncio.sleep(PAUSE)

    load = Load([worker.settings.listen], KEYS)
    await load.run(disturb)
    assert all(client.flushes >= ROUNDS for client in load.clients)


@pytest.mark.long
async def test_a_proxy_that_is_fenced_or_stands_down(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, lock_hold_seconds=0.2)
    master, replica = worker.addresses
    await worker.apply([], [Group(1, (master, replica)), Group(2, ())])
    instance = INSTANCE

    def allow(seconds: float) -> None:
        worker.channel.send(Allowance(instance=instance, grant=Grant(all=clock() + seconds)))

    async def disturb() -> None:
        nonlocal instance
        for _ in range(ROUNDS):
            await asyncio.sleep(PAUSE)
            allow(-1.0)
            async with worker.direct(1) as server:
                # What another proxy may write meanwhile.
                await asyncio.sleep(PAUSE)
                await server.mset(dict.fromkeys(KEYS, "written elsewhere"))
            allow(LONG)
        instance = OTHER
        worker.take_identity()
        allow(LONG)
        await asyncio.sleep(PAUSE)

    load = Load([worker.settings.listen], KEYS)
    await load.run(disturb)
    assert all(client.flushes >= ROUNDS for client in load.clients)
