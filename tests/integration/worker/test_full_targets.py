"""A target at its maxmemory takes no keys: reads and deletes of those at the source go on there, writes are refused."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions

from slots.flushes import RELEASE, WITHHOLD
from slots.group import Group
from slots.moving import DELETE
from slots.reserved import IN_PIECES, STATE, WANTED
from slots.states import SlotState
from tests.integration.breaking_relay import BreakingRelay, Direction, proxies
from tests.integration.faults.ways import felt
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import KEY, SLOT, migrate_key

OTHERS = [f"{{{KEY}}}{number}" for number in range(100)]
ELSEWHERE = [key for key in (f"elsewhere{number}" for number in range(40)) if slot_of(key) != SLOT][:20]


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    return await start_worker()


@asynccontextmanager
async def full(worker: WorkerHarness, moved: Iterable[str] = (), **options: Any) -> AsyncIterator[redis.asyncio.Redis]:
    """A client, while the slot of the keys moves and the target takes no more of them. The keys in ``moved`` move
    before."""
    async with worker.client(**options) as client, worker.direct(2) as target:
        await client.mset(dict.fromkeys([KEY, *OTHERS], "0"))
        await migrate_key(worker)
        for key in moved:
            await client.set(key, "moved")
        await target.config_set("maxmemory", "1")
        yield client
        # Now nothing stands in the way of the moves, nor of the lock.
        await target.config_set("maxmemory", "0")
        for key in await worker.keys(1):
            assert await client.set(key, "1")
        assert [key for key in await worker.keys(1) if slot_of(key.decode()) == SLOT] == []
        await worker.act([SLOT], SlotState.FINISHED)


async def test_reads_run_at_the_source_and_writes_are_refused_at_once(worker: WorkerHarness) -> None:
    async with full(worker) as client:
        async with asyncio.timeout(LIMIT):
            assert await client.get(KEY) == b"0"
            assert await client.mget(OTHERS) == [b"0"] * len(OTHERS)
            assert await client.exists(KEY, OTHERS[0]) == 2
            assert await client.get(f"{{{KEY}}}nothing") is None
            with pytest.raises(redis.exceptions.ResponseError, match=r"OOM .*; nothing was run$"):
                await client.set(KEY, "1")
            with pytest.raises(redis.exceptions.ResponseError, match="OOM"):
                await client.incr(KEY)
            with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
                await client.llen(KEY)
        assert await worker.keys(2) == []
        assert len(await worker.keys(1)) == len(OTHERS) + 1


async def test_many_at_once_get_each_what_is_theirs(worker: WorkerHarness) -> None:
    """One key that cannot be moved does no harm to absent keys that are asked for together with it."""
    missing = [f"{{{KEY}}}missing{number}" for number in range(50)]
    async with full(worker), worker.client(max_connections=1000) as client:
        async with asyncio.timeout(LIMIT):
            found = await asyncio.gather(
                *(client.get(key) for key in (*OTHERS, *missing)),
                *(client.delete(key) for key in missing),
                *(client.incr(key) for key in missing),
                return_exceptions=True,
            )
        assert found[: len(OTHERS)] == [b"0"] * len(OTHERS)
        assert found[len(OTHERS) : len(OTHERS) + len(missing)] == [None] * len(missing)
        assert found[len(OTHERS) + len(missing) : -len(missing)] == [0] * len(missing)
        # In the target's own words: these ran there.
        assert all(str(error).startswith("command not allowed when used memory") for error in found[-len(missing) :])


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
async def test_deletes_run_at_the_source(worker: WorkerHarness, command: str) -> None:
    async with full(worker) as client:
        assert await client.execute_command(command, KEY) == 1
        assert await client.execute_command(command, KEY) == 0
        assert await client.execute_command(command, *OTHERS[:50], KEY) == 50
        assert await client.get(OTHERS[0]) is None
        assert await client.exists(*OTHERS[50:]) == 50
        assert len(await worker.keys(1)) == 50
        assert await worker.keys(2) == []


async def test_a_key_with_a_copy_at_the_target_is_not_deleted(worker: WorkerHarness) -> None:
    """The copy is left from an attempt of unknown outcome, and would be alive once the key is gone."""
    async with worker.direct(2) as target:
        await target.set(OTHERS[0], "stale")
        async with full(worker) as client:
            with pytest.raises(redis.exceptions.ResponseError, match="OOM"):
                await client.delete(KEY, OTHERS[0], OTHERS[1])
            assert await client.exists(KEY, *OTHERS[:2]) == 3
            assert await client.delete(KEY, OTHERS[1], KEY) == 2


async def test_what_is_deleted_at_the_source_is_not_deleted_at_the_target_as_well(worker: WorkerHarness) -> None:
    """Another client may find the key gone and write it again before the client that deletes it has its reply."""
    async with full(worker) as client, worker.direct(2) as target:
        assert await client.delete(KEY, *OTHERS[:3], KEY) == 4
        assert "cmdstat_del" not in await target.info("commandstats")
        assert await client.delete(KEY) == 0


async def test_one_way_a_key_that_somebody_carries_is_not_deleted_under_his_hands(worker: WorkerHarness) -> None:
    """Nor without the permit: something may be on its way."""
    async with full(worker) as client, worker.direct(1) as source:
        assert await client.delete(OTHERS[0]) == 1
        await source.hset(STATE, f"claim:0:{KEY}", "pieces somebody")
        permit = await source.hget(STATE, "permit")
        task = asyncio.create_task(client.delete(KEY))
        async with asyncio.timeout(LIMIT):
            while not await source.llen("__slotferry:wanted"):
                await asyncio.sleep(0.01)
        assert await source.exists(KEY)
        await source.hdel(STATE, f"claim:0:{KEY}")
        assert await task == 1
        # Taken away, and granted again by a mover that needs it.
        await source.hset(STATE, "permit", "another")
        assert await client.delete(OTHERS[1]) == 1
        assert await source.hget(STATE, "permit") not in (permit, b"another")


async def test_one_way_nothing_is_deleted_without_the_permit_of_this_process(worker: WorkerHarness) -> None:
    """A mover that believes that it holds the permit may be late, or the server may have restarted with older data."""
    async with worker.direct(1) as source:
        await source.set(KEY, "0")
        mine = f"{(await source.info('server'))['run_id']} somebody random"
        former = f"{'0' * 40} somebody random"
        for stored, believed in ((mine, former), (mine, ""), ("", ""), (former, former)):
            await source.hset(STATE, "permit", stored)
            with pytest.raises(redis.exceptions.ResponseError, match="NOTPERMITTED"):
                await source.eval(DELETE.text, 2, STATE, KEY, believed, 0)  # type: ignore[misc]
        await source.hset(STATE, "permit", mine)
        assert await source.eval(DELETE.text, 2, STATE, KEY, mine, 0) == [1]  # type: ignore[misc]


async def elsewhere(worker: WorkerHarness, client: redis.asyncio.Redis) -> None:
    """Keys of many slots: some at rest, some on their way."""
    await client.mset({key: key for key in ELSEWHERE})
    moving = [slot_of(key) for key in ELSEWHERE[:10]]
    for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
        await worker.act(moving, state)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_keys_of_several_slots_are_read_where_each_is(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client() as writer:
        await elsewhere(worker, writer)
    async with full(worker, moved=OTHERS[:30], protocol=protocol) as client, asyncio.timeout(LIMIT):
        assert await client.get(ELSEWHERE[0]) == ELSEWHERE[0].encode()
        keys = [*OTHERS[20:40], *ELSEWHERE, f"{{{KEY}}}nothing", OTHERS[0], OTHERS[0], OTHERS[99], OTHERS[99]]
        found = await client.mget(keys)
        assert found == [
            *[b"moved"] * 10,
            *[b"0"] * 10,
            *(key.encode() for key in ELSEWHERE),
            None,
            *[b"moved"] * 2,
            *[b"0"] * 2,
        ]
        assert await client.exists(*keys) == len(keys) - 1
        assert await client.touch(*keys) == len(keys) - 1
        assert len(await worker.keys(1)) == 71 + len(ELSEWHERE)


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
async def test_keys_of_several_slots_are_deleted_where_each_is(worker: WorkerHarness, command: str) -> None:
    async with worker.client() as writer:
        await elsewhere(worker, writer)
    async with full(worker, moved=OTHERS[:30]) as client, asyncio.timeout(LIMIT):
        keys = [*OTHERS[20:40], *ELSEWHERE, f"{{{KEY}}}nothing", OTHERS[0], OTHERS[0], OTHERS[99], OTHERS[99]]
        assert await client.execute_command(command, *keys) == 42
        assert await client.execute_command(command, *keys) == 0
        assert await client.mget(keys) == [None] * len(keys)
        assert len(await worker.keys(1)) == 101 - 30 - 11
        assert len(await worker.keys(2)) == 30 - 11


async def test_some_keys_moved_and_some_not(worker: WorkerHarness) -> None:
    async with full(worker, moved=OTHERS[:50]) as client, asyncio.timeout(LIMIT):
        assert await client.mget(OTHERS) == [*[b"moved"] * 50, *[b"0"] * 50]
        # More than are looked for at once.
        assert await client.mget(OTHERS * 5) == [*[b"moved"] * 50, *[b"0"] * 50] * 5
        # What needs all its keys at one server cannot be made of parts.
        with pytest.raises(redis.exceptions.ResponseError, match=r"OOM .*; nothing was run$"):
            await client.execute_command("LCS", OTHERS[0], OTHERS[99])
        assert await client.execute_command("LCS", OTHERS[98], OTHERS[99]) == b"0"
        assert await client.execute_command("LCS", OTHERS[0], OTHERS[1]) == b"moved"
        assert await client.delete(*OTHERS[40:60]) == 20
        assert await client.exists(*OTHERS) == 80


async def test_a_big_key_is_deleted_at_the_source_unless_somebody_carries_it(worker: WorkerHarness) -> None:
    bigs = [f"{{{KEY}}}big{number}" for number in range(3)]
    async with worker.client() as client, worker.direct(1) as source:
        await client.mset(dict.fromkeys(bigs, b"x" * 200_000))
        async with full(worker, moved=OTHERS[:1]) as client, asyncio.timeout(LIMIT):
            assert await client.delete(bigs[0]) == 1
            assert await client.unlink(bigs[1], *OTHERS[:2], *ELSEWHERE) == 3
            await source.hset(STATE, f"claim:0:{bigs[2]}", "pieces somebody")
            before = (await source.info("commandstats"))["cmdstat_eval"]["calls"]
            deleting = asyncio.create_task(client.delete(*bigs, *OTHERS[2:4]))
            while (await source.info("commandstats"))["cmdstat_eval"]["calls"] < before + 5:
                await asyncio.sleep(0.01)
            assert await client.strlen(bigs[2]) == 200_000
            await source.hdel(STATE, f"claim:0:{bigs[2]}")
            assert await deleting == 3
            assert await client.exists(*bigs) == 0


async def test_bounded_a_delete_does_not_wait_longer_because_a_flush_stands(start_worker: StartWorker) -> None:
    """given a key that goes in pieces, and a process that died during a flush."""
    worker = await start_worker(big_key_seconds=1.0, move_seconds=0.5)
    async with worker.client() as client, worker.direct(1) as source:
        await client.set(KEY, "0")
        await source.hset(STATE, f"claim:0:{KEY}", f"{IN_PIECES}a mover")
        await migrate_key(worker)
        deleting = asyncio.create_task(client.delete(KEY))
        async with asyncio.timeout(LIMIT):
            while not await source.exists(WANTED):
                await asyncio.sleep(0.005)
        await source.execute_command("EVAL", WITHHOLD.text, 1, STATE, "flush:dead")
        async with asyncio.timeout(3.0):
            with pytest.raises(redis.exceptions.ResponseError, match=r"in pieces.*; nothing was run$"):
                await deleting
        assert await source.get(KEY) == b"0"
        await source.execute_command("EVAL", RELEASE.text, 1, STATE, "flush:dead")
        assert await client.delete(KEY) == 1
        await worker.act([SLOT], SlotState.FINISHED)


async def test_run_id_no_delete_is_acknowledged_if_the_target_came_back_with_older_data(worker: WorkerHarness) -> None:
    """given a target that has said that it lacks a key, and that is back, when the source deletes the key, with data
    from when it had the key itself
    then the client has an error, for the target's old key is what there is now.
    """
    async with (
        BreakingRelay(worker.servers[0].port) as relay,
        worker.client() as client,
        worker.direct(1) as source,
        worker.direct(2) as target,
    ):
        await target.set(KEY, "of an earlier time")
        await target.save()
        # As the sweep before the move does.
        await target.delete(KEY)
        worker.run_ids[relay.address] = worker.run_ids[worker.servers[0].address]
        await worker.apply([], [Group(1, (relay.address,))])
        assert await client.set(KEY, "0")
        await migrate_key(worker)
        await target.config_set("maxmemory", "1")
        fault = relay.hold(proxies, frozenset({Direction.TO_SERVER}), containing=b"the target has a copy")
        deleting = asyncio.create_task(client.delete(KEY))
        await felt(fault)
        await worker.servers[1].kill()
        worker.servers[1].start()
        await worker.servers[1].ready()
        assert await source.get(KEY) == b"0"
        fault.mend()
        with pytest.raises(redis.exceptions.ResponseError, match="some keys may be deleted"):
            await deleting
        assert await source.exists(KEY) == 0
        assert await client.get(KEY) == b"of an earlier time"
        # Now the target decides, and the delete is like any other.
        assert await client.delete(KEY) == 1
        assert await client.get(KEY) is None
