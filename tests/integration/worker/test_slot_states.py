"""What a worker does in each state of a slot: one test or more for each invariant it upholds."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis.exceptions

from proxy.moving.batches import BATCH_KEYS
from slots.connections import end_connections, fence, fence_user, proxy_prefix
from slots.group import Group
from slots.messages.channel import Drain, Table
from slots.reserved import FENCED
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness, slot_of

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "some-key"
SLOT = slot_of(KEY)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = LIMIT) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.01)


async def migrate_key(worker: WorkerHarness) -> None:
    """Take the key's slot to `migrating` from group 1 to group 2 by way of the lock."""
    await worker.act([SLOT], SlotState.PREPARING)
    await worker.act([SLOT], SlotState.PREPARED)
    await worker.act([SLOT], SlotState.MIGRATING)


@asynccontextmanager
async def frozen(worker: WorkerHarness, group: int) -> AsyncIterator[None]:
    """A server whose socket takes commands in while it runs none, until the block ends."""
    os.kill(worker.servers[group - 1].pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.servers[group - 1].pid, signal.SIGCONT)


async def under_way(worker: WorkerHarness) -> None:
    """Return once a request is at a server."""
    await worker.under_way()


async def waits(worker: WorkerHarness, field: str) -> None:
    """Wait until the client of that name has something under way (``owed``), or waits with a request (``qbuf``)."""
    async with worker.client() as other, asyncio.timeout(60):
        while not any(entry["name"] == "waits" and entry[field] != "0" for entry in await other.client_list()):
            await asyncio.sleep(0.01)


async def test_locked_slot_holds_requests_in_order_and_others_go_on(start_worker: StartWorker) -> None:
    worker = await start_worker()
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client() as client, worker.client() as bystander:
        await client.set(KEY, "0")
        await worker.act([SLOT], SlotState.PREPARED)
        async with client.pipeline(transaction=False) as pipe:
            for _ in range(10):
                pipe.incr(KEY)
                pipe.get(KEY)
                pipe.set(other, "x")
            held = asyncio.create_task(pipe.execute())
            for _ in range(20):
                assert await bystander.set(other, "y")
            assert not held.done()
            async with worker.direct(1) as source:
                assert await source.get(KEY) == b"0"
            await worker.act([SLOT], SlotState.PREPARING)
            replies = await held
    expected: list[object] = []
    for number in range(1, 11):
        expected += [number, str(number).encode(), True]
    assert replies == expected


async def test_drained_a_lock_waits_for_what_is_under_way(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    async with worker.client() as client:
        await client.set(KEY, "0")
        async with frozen(worker, 1):
            running = asyncio.create_task(client.incr(KEY))
            await under_way(worker)
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            # A lock that is acknowledged now would let the target have the slot while INCR is yet to run.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
            assert not running.done()
        assert await running == 1
        assert (await worker.verdict(epoch)).type == "ack"


@pytest.mark.long
async def test_lock_that_does_not_drain_is_refused_and_given_up(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=1.0)
    async with worker.client() as client, worker.client() as second:
        await client.set(KEY, "0")
        async with frozen(worker, 1):
            running = asyncio.create_task(client.incr(KEY))
            await under_way(worker)
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            held = asyncio.create_task(second.incr(KEY))
            verdict = await worker.verdict(epoch)
            assert verdict.type == "nack"
            assert str(SLOT) in verdict.reason
        assert sorted([await running, await held]) == [1, 2]
        await worker.act([SLOT], SlotState.PREPARED)


async def test_acknowledged_lock_is_kept_and_its_waiting_bounded(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.3)
    async with worker.client() as client:
        await worker.act([SLOT], SlotState.PREPARED)
        for _ in range(2):
            with pytest.raises(redis.exceptions.ResponseError, match="is locked while it changes hands"):
                await client.set(KEY, "1")
        async with worker.direct(1) as source:
            assert await source.exists(KEY) == 0
        await worker.act([SLOT], SlotState.PREPARING)
        assert await client.set(KEY, "1")


@pytest.mark.long
async def test_a_lock_acknowledged_before_is_kept_when_a_later_one_is_refused(start_worker: StartWorker) -> None:
    """topom may be moving the first batch while the lock of the second does not come about."""
    worker = await start_worker(lock_drain_seconds=1.0, lock_hold_seconds=2.0)
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client(client_name="waits") as client, worker.client() as second, worker.direct(1) as source:
        await worker.act([SLOT], SlotState.PREPARED)
        async with frozen(worker, 1):
            running = asyncio.create_task(client.incr(other))

            async def under_way() -> bool:
                return any(entry["name"] == "waits" and entry["owed"] == "1" for entry in await second.client_list())

            await until(under_way)
            epoch = worker.push([Slot(slot_of(other), 1, Action(SlotState.PREPARED, 2))])
            assert (await worker.verdict(epoch)).type == "nack"
        assert await running == 1
        with pytest.raises(redis.exceptions.ResponseError, match=f"slot {SLOT} is locked"):
            await second.set(KEY, "1")
        assert await source.exists(KEY) == 0


@pytest.mark.long
async def test_drained_a_lost_connection_is_ended_first(start_worker: StartWorker) -> None:
    """The commands of a lost connection may still be in the server's socket buffer when a lock is asked for."""
    worker = await start_worker(backend_reply_seconds=1.0, lock_drain_seconds=1.0)
    async with worker.client() as client:
        await client.set(KEY, "0")
        async with frozen(worker, 1):
            with pytest.raises(redis.exceptions.ResponseError, match="did not reply within"):
                await client.incr(KEY)
            # Nothing is in flight any more as far as the worker's queues go; the INCR is still to run.
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            verdict = await worker.verdict(epoch)
            assert verdict.type == "nack"
            assert worker.servers[0].address in verdict.reason
        async with worker.direct(1) as source:
            await worker.act([SLOT], SlotState.PREPARING)

            async def locks() -> bool:
                epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
                return (await worker.verdict(epoch)).type == "ack"

            await until(locks)
            settled = await source.get(KEY)
            await asyncio.sleep(0.3)
            assert await source.get(KEY) == settled


async def test_absent_first_every_key_moves_before_its_command(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(1) as source, worker.direct(2) as target:
        await client.set(KEY, "before")
        await client.expire(KEY, 1000)
        await migrate_key(worker)
        assert await client.append(KEY, "-after") == len("before-after")
        assert await source.exists(KEY) == 0
        assert await target.get(KEY) == b"before-after"
        assert 900 < await target.ttl(KEY) <= 1000
        await client.delete(KEY)
        assert await client.get(KEY) is None
        await worker.act([SLOT], SlotState.FINISHED)
        assert await client.get(KEY) is None


async def test_absent_first_for_all_keys_of_a_command_and_of_split_parts(start_worker: StartWorker) -> None:
    worker = await start_worker()
    tagged = [f"{{{KEY}}}{number}" for number in range(10)]
    plain = [f"k{number}" for number in range(200)]
    async with worker.client() as client, worker.direct(1) as source:
        for key in (*tagged, *plain):
            await client.set(key, key)
        moving = {SLOT, *(slot_of(key) for key in plain[:100])}
        await worker.act(moving, SlotState.PREPARED)
        await worker.act(moving, SlotState.MIGRATING)
        assert await client.mget(tagged) == [key.encode() for key in tagged]
        assert await client.mget(plain) == [key.encode() for key in plain]
        assert await client.delete(*plain[50:150]) == 100
        assert await client.eval("return redis.call('MGET', unpack(KEYS))", 3, *tagged[:3]) == [
            key.encode() for key in tagged[:3]
        ]
        left = {key.decode() for key in await source.keys("*")}
        assert not left & {*tagged, *(key for key in plain if slot_of(key) in moving)}


async def test_a_key_once_absent_costs_the_source_nothing_more(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(1) as source:
        await client.set(KEY, "0")
        await migrate_key(worker)
        await client.incr(KEY)
        before = (await source.info("stats"))["total_commands_processed"]
        for _ in range(50):
            await client.incr(KEY)
        after = (await source.info("stats"))["total_commands_processed"]
        assert after - before < 10
        assert await client.get(KEY) == b"51"


async def test_one_way_what_was_absent_in_one_migration_is_looked_for_in_the_next(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(1) as first:
        await migrate_key(worker)
        assert await client.get(KEY) is None
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.apply([Slot(SLOT, 2)])
        await client.set(KEY, "written at group 2")
        await worker.act([SLOT], SlotState.PREPARED, 2, 1)
        await worker.act([SLOT], SlotState.MIGRATING, 2, 1)
        assert await client.get(KEY) == b"written at group 2"
        assert await first.get(KEY) == b"written at group 2"
        await worker.act([SLOT], SlotState.FINISHED, 2, 1)
        await worker.apply([Slot(SLOT, 1)])
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await client.get(KEY) == b"written at group 2"


async def test_a_stale_copy_at_the_target_gives_way(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client, worker.direct(2) as target:
        await client.set(KEY, "the truth")
        await target.set(KEY, "left over")
        await migrate_key(worker)
        assert await client.get(KEY) == b"the truth"


async def test_pipeline_and_many_sessions_on_a_moving_slot(start_worker: StartWorker) -> None:
    worker = await start_worker()
    keys = [f"k{number}" for number in range(300)]
    everything = range(1024)
    async with worker.client() as client:
        await client.mset(dict.fromkeys(keys, 0))

        async def count() -> list[list[int]]:
            results = []
            async with worker.client() as own:
                for _ in range(10):
                    async with own.pipeline(transaction=False) as pipe:
                        for key in keys:
                            pipe.incr(key)
                        results.append(await pipe.execute())
            return results

        counting = [asyncio.create_task(count()) for _ in range(4)]
        await worker.act(everything, SlotState.PREPARED)
        await worker.act(everything, SlotState.MIGRATING)
        results = [await task for task in counting]
        for index in range(len(keys)):
            seen = sorted(batch[index] for one in results for batch in one)
            assert seen == list(range(1, 41))
        assert await client.mget(keys) == [b"40"] * len(keys)


async def test_databases_move_each_for_itself(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client(db=0) as zero, worker.client(db=7) as seven, worker.direct(2, db=7) as target:
        await zero.set(KEY, "zero")
        await seven.set(KEY, "seven")
        await migrate_key(worker)
        assert await seven.get(KEY) == b"seven"
        assert await zero.get(KEY) == b"zero"
        assert await target.get(KEY) == b"seven"


async def test_a_key_that_cannot_move_gives_an_error_and_nothing_runs(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=0.5)
    async with worker.client() as client, worker.direct(1) as source:
        await client.set(KEY, "0")
        await migrate_key(worker)
        await worker.servers[1].kill()
        with pytest.raises(redis.exceptions.ResponseError, match="could not be moved yet"):
            await client.incr(KEY)
        assert await source.get(KEY) == b"0"
        worker.servers[1].start()
        await worker.servers[1].ready()

        async def works() -> bool:
            try:
                return await client.incr(KEY) == 1
            except redis.exceptions.ResponseError:
                return False

        await until(works)


async def test_epochs_an_older_table_is_ignored(start_worker: StartWorker) -> None:
    worker = await start_worker()
    old = worker.table
    async with worker.client() as client, worker.direct(2) as second:
        await worker.apply([Slot(SLOT, 2)])
        worker.channel.send(Table(table=old.to_wire()))
        await client.set(KEY, "1")
        assert await second.get(KEY) == b"1"


async def test_changes_against_another_epoch_are_asked_for_whole(start_worker: StartWorker) -> None:
    worker = await start_worker()
    worker.channel.send(Table(table={"since": 999, "epoch": 1000, "slots": [], "groups": [], "removed_groups": []}))
    await worker.next(lambda m: m.type == "resync")


async def test_changes_are_applied(start_worker: StartWorker) -> None:
    worker = await start_worker()
    newer = worker.table.changed(worker.table.epoch + 1, [Slot(SLOT, 2)])
    worker.channel.send(Table(table=newer.changes_since(worker.table)))
    assert (await worker.verdict(newer.epoch)).type == "ack"
    async with worker.client() as client, worker.direct(2) as second:
        await client.set(KEY, "1")
        assert await second.get(KEY) == b"1"


async def test_offline_slots_say_so(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await worker.apply([Slot(SLOT)])
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=f"slot {SLOT} is offline"):
            await client.get(KEY)
        with pytest.raises(redis.exceptions.ResponseError, match=f"slot {SLOT} is offline"):
            await client.mget(other, KEY)
        assert await client.set(other, "1")


async def test_a_new_master_is_followed_once_the_old_one_has_answered(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    async with worker.client() as client, worker.client() as second, worker.direct(2) as new:
        await client.set(KEY, "0")
        await new.set(KEY, "100")
        async with frozen(worker, 1):
            running = asyncio.create_task(client.incr(KEY))
            await under_way(worker)
            epoch = worker.push(groups=[Group(1, (worker.servers[1].address,))])
            later = asyncio.create_task(second.incr(KEY))
            await asyncio.sleep(0.1)
            assert not later.done()
        assert await running == 1
        assert await later == 101
        assert (await worker.verdict(epoch)).type == "ack"


async def test_a_server_without_acl_fences_as_well(start_worker: StartWorker) -> None:
    # What comes behind the first request that meets the fence is held so long.
    worker = await start_worker(extra=("--rename-command", "ACL", ""), lock_hold_seconds=0.2)
    async with worker.client() as client, worker.direct(1) as direct:
        await client.set(KEY, "0")
        assert await fence(direct, [INSTANCE])

        async def refused() -> bool:
            with pytest.raises(redis.exceptions.ResponseError) as raised:
                await client.incr(KEY)
            return "fenced" in str(raised.value)

        await until(refused)
        assert await direct.get(KEY) == b"0"


MARKS = {
    "both": [],
    "users": [("HDEL", FENCED, INSTANCE)],
    "data": [("ACL", "DELUSER", fence_user(INSTANCE))],
}
"""What a fence leaves at a server, and what takes the rest of it away: FLUSHALL, or a restart without an aclfile."""


@pytest.mark.parametrize("marks", MARKS)
async def test_a_fenced_worker_sends_nothing_and_a_new_identity_frees_it(start_worker: StartWorker, marks: str) -> None:
    worker = await start_worker(lock_hold_seconds=0.2)
    async with worker.client() as client, worker.direct(1) as direct:
        await client.set(KEY, "0")
        # In one step: the worker comes back as soon as it can.
        transaction = direct.pipeline(transaction=True)
        transaction.execute_command("HSET", FENCED, INSTANCE, "1")
        transaction.execute_command("ACL", "SETUSER", fence_user(INSTANCE), "reset", "off")
        for command in MARKS[marks]:
            transaction.execute_command(*command)
        await transaction.execute()
        assert await end_connections(direct, proxy_prefix(INSTANCE)) > 0

        async def refused() -> bool:
            try:
                await client.incr(KEY)
            except redis.exceptions.ResponseError as error:
                return "fenced" in str(error)
            return False

        await until(refused)
        assert await direct.get(KEY) == b"0"
        await worker.next(lambda m: m.type == "fenced")
        worker.take_identity()

        async def works() -> bool:
            try:
                return await client.incr(KEY) == 1
            except redis.exceptions.ResponseError:
                return False

        await until(works)
        names = [entry["name"] for entry in await direct.client_list()]
        assert not any(INSTANCE in name for name in names)


async def test_a_client_that_leaves_while_held_does_no_harm(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await worker.act([SLOT], SlotState.PREPARED)
    for _ in range(20):
        _, writer = await worker.connect()
        writer.write(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(KEY), KEY.encode()))
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()
    await worker.act([SLOT], SlotState.PREPARING)
    async with worker.client() as client:
        assert await client.set(KEY, "last")
        assert await client.get(KEY) == b"last"


async def test_absent_first_what_one_table_cleared_is_looked_for_again_by_the_next(start_worker: StartWorker) -> None:
    """Neither the request whose keys were moved under an older table nor the one behind it skips the look."""
    worker = await start_worker(lock_hold_seconds=0.5)
    behind = f"{{{KEY}}}behind"
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client() as client, worker.client(client_name="waits") as pipelined:
        await client.mset({KEY: "1", behind: "2", other: "3"})
        await migrate_key(worker)
        async with frozen(worker, 1):
            async with pipelined.pipeline(transaction=False) as pipe:
                pipe.mget(KEY, other)
                pipe.get(behind)
                running = asyncio.create_task(pipe.execute(raise_on_error=False))
                await waits(worker, "qbuf")
                # While the first key is on its way, the other key's slot is locked, for longer than is waited.
                await worker.act([slot_of(other)], SlotState.PREPARED)
                await asyncio.sleep(0.1)
            os.kill(worker.servers[0].pid, signal.SIGCONT)
            replies = await running
        assert "is locked while it changes hands" in str(replies[0])
        assert replies[1] == b"2"


@pytest.mark.long
async def test_a_move_that_is_given_up_lets_its_session_ask_for_another_connection(start_worker: StartWorker) -> None:
    """The time limits are still watched after a session opens a connection just as one of them runs out."""
    worker = await start_worker(move_seconds=0.3, lock_hold_seconds=0.3, backend_connect_seconds=1.0)
    async with worker.client() as client:
        await client.set(KEY, "0")
        await migrate_key(worker)
        async with frozen(worker, 1):
            async with client.pipeline(transaction=False) as pipe:
                pipe.get(KEY)
                pipe.execute_command("SELECT", 1)
                pipe.get(KEY)
                replies = await pipe.execute(raise_on_error=False)
            assert "could not be moved yet" in str(replies[0])
            assert "could not be moved yet" in str(replies[2])
        await worker.apply([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
        async with asyncio.timeout(LIMIT):
            with pytest.raises(redis.exceptions.ResponseError, match="is locked while it changes hands"):
                await client.get(KEY)


@pytest.mark.long
async def test_moves_that_stand_behind_slow_ones_are_given_up_in_time(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=2.0)
    keys = [f"{{{KEY}}}{number}" for number in range(12 * BATCH_KEYS)]
    batches = [keys[first : first + BATCH_KEYS] for first in range(0, len(keys), BATCH_KEYS)]
    async with worker.client() as client:
        await client.mset(dict.fromkeys(keys, "1"))
        await migrate_key(worker)
        # Two batches at a time, they would take 12 s and more.
        async with frozen(worker, 2), asyncio.timeout(10):
            for reply in await asyncio.gather(*map(client.mget, batches), return_exceptions=True):
                assert "could not be moved yet" in str(reply)
        assert await client.mget(keys) == [b"1"] * len(keys)


async def test_a_move_whose_migration_is_over_is_not_tried_again(start_worker: StartWorker) -> None:
    worker = await start_worker(move_seconds=3 * LIMIT)
    async with worker.client(client_name="waits") as client:
        await client.set(KEY, "0")
        await migrate_key(worker)
        await worker.servers[1].kill()
        waiting = asyncio.create_task(client.get(KEY))
        await waits(worker, "qbuf")
        worker.push([Slot(SLOT, 1, Action(SlotState.FINISHED, 2))])
        worker.push([Slot(SLOT, 2)])
        # It goes to the slot's owner, which is down.
        with pytest.raises(redis.exceptions.ResponseError, match=r"cannot be connected to|closed the connection"):
            async with asyncio.timeout(LIMIT):
                await waiting
        worker.servers[1].start()
        await worker.servers[1].ready()
    async with worker.direct(1) as source:
        assert await source.get(KEY) == b"0", "moved to a server that was not asked for it any more"


@pytest.mark.long
async def test_an_acknowledged_lock_is_kept_at_a_new_master(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0, lock_hold_seconds=2.0)
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client() as client, worker.client() as second, worker.direct(3) as promoted:
        await client.set(other, "0")
        await worker.act([SLOT], SlotState.PREPARED)
        async with frozen(worker, 1):
            running = asyncio.create_task(client.incr(other))
            await under_way(worker)
            epoch = worker.push(
                [Slot(slot_of(other), 1, Action(SlotState.PREPARED, 2))], [Group(1, (worker.servers[2].address,))]
            )
            assert (await worker.verdict(epoch)).type == "nack"
        assert await running == 1
        with pytest.raises(redis.exceptions.ResponseError, match=f"slot {SLOT} is locked"):
            await second.set(KEY, "1")
        assert await promoted.exists(KEY) == 0


async def test_the_time_of_a_held_request_runs_whatever_tables_come(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.5)
    async with worker.client() as client:
        await worker.act([SLOT], SlotState.PREPARED)
        held = asyncio.create_task(client.set(KEY, "1"))
        async with asyncio.timeout(LIMIT):
            while not held.done():
                await worker.apply()
                await asyncio.sleep(0.1)
        with pytest.raises(redis.exceptions.ResponseError, match="is locked while it changes hands"):
            await held


async def test_one_owner_a_new_identity_sends_nothing_by_the_old_table(start_worker: StartWorker) -> None:
    """Not even for a session that goes on because its move was given up with the old connections."""
    worker = await start_worker(servers=3, move_seconds=0.3)
    other = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
    async with worker.client() as client, worker.direct(1) as old, worker.direct(3) as new:
        await client.set(KEY, "0")
        await migrate_key(worker)
        async with frozen(worker, 1):
            async with client.pipeline(transaction=False) as pipe:
                pipe.get(KEY)
                pipe.incr(other)
                running = asyncio.create_task(pipe.execute(raise_on_error=False))
                # Past the time for the move, and before its connection is given up.
                await asyncio.sleep(0.8)
            worker.table = worker.table.changed(worker.table.epoch + 1, [Slot(slot_of(other), 3)])
            worker.take_identity()
            replies = await running
        assert "could not be moved yet" in str(replies[0])
        assert replies[1] == 1
        assert await new.get(other) == b"1"
        assert await old.get(other) is None


@pytest.mark.long
async def test_a_server_that_has_left_the_table_holds_nothing_up(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0, lock_drain_seconds=1.0)
    async with worker.client() as client:
        await client.set(KEY, "0")
        async with frozen(worker, 1):
            with pytest.raises(redis.exceptions.ResponseError, match="did not reply within"):
                await client.set(KEY, "1")
            await worker.apply(groups=[Group(1, (worker.servers[1].address,))])
            await worker.act([SLOT], SlotState.PREPARED, 1, 2)
            worker.channel.send(Drain())
            assert await worker.process.wait(20) == 0
