"""A worker while slot rules change: no client uses a key whose slot will change, and what was under way is over first.

In all of these tests group 1 has the first half of the slots, and group 2 the second.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio
import redis.exceptions

from slots.keyslots import KeySlots
from slots.messages.channel import Ack, Counters
from slots.messages.questions import Unblock
from slots.rules import SlotRule
from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]
RULES = (SlotRule("bull:(*):*"),)
BEFORE, AFTER = (KeySlots("crc32", 1024, rules) for rules in ((), RULES))
CHANGING = "slot rules are being changed"


def of_half(before: int, after: int) -> bytes:
    """A key that the rules take from one half of the slots to one half; halves are 0 and 1."""
    names = (b"bull:%d:%d" % (queue, number) for queue in range(20) for number in range(50))
    return next(
        key
        for key in names
        if (BEFORE.slot_of(0, key) // 512, AFTER.slot_of(0, key) // 512) == (before, after)
        and BEFORE.slot_of(0, key) != AFTER.slot_of(0, key)
    )


MOVES, COMES, STAYS = of_half(0, 1), of_half(1, 0), of_half(1, 1)


async def halves(start_worker: StartWorker) -> WorkerHarness:
    worker = await start_worker()
    await worker.apply([Slot(index, 1 + index // 512) for index in range(1024)])
    return worker


def push(worker: WorkerHarness, rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> int:
    """Send a table with these rules, and with these to come."""
    worker.table = worker.table.ruled(worker.table.epoch + 1, rules, coming)
    return worker.push()


async def rule(worker: WorkerHarness, rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> None:
    assert isinstance(await worker.verdict(push(worker, rules, coming)), Ack)


async def refused(client: redis.asyncio.Redis, *command: bytes | str | int) -> None:
    with pytest.raises(redis.exceptions.TryAgainError, match=CHANGING):
        await client.execute_command(*command)


async def test_keys_whose_slot_will_change_are_used_by_nobody(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    async with worker.client() as client:
        await client.set("plain", "1")
        await client.mset(dict.fromkeys((MOVES, COMES, STAYS), "old"))
        await rule(worker, (), RULES)
        for key in (MOVES, COMES, STAYS):
            await refused(client, "GET", key)
            await refused(client, "SET", key, "new")
        # Also beside others, in scripts, in pops, and split over servers.
        await refused(client, "MGET", "plain", MOVES)
        await refused(client, "SINTER", "plain", MOVES)
        await refused(client, "EVAL", "return redis.call('SET', KEYS[1], 'new')", 1, MOVES)
        await refused(client, "DEL", "plain", COMES, STAYS)
        await refused(client, "BLPOP", MOVES, 1)
        await refused(client, "WATCH", MOVES)
        assert await client.incr("plain") == 2
        # They are there, so lists of keys show them.
        assert sorted(await client.keys("*")) == sorted([MOVES, COMES, STAYS, b"plain"])
        assert {key async for key in client.scan_iter()} == {MOVES, COMES, STAYS, b"plain"}
        assert await client.randomkey() in {MOVES, COMES, STAYS, b"plain"}
        # The change is taken back, and they are as they were.
        await rule(worker, ())
        assert await client.mget(MOVES, COMES, STAYS) == [b"old"] * 3


async def test_new_rules_hold_at_once(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    await rule(worker, (), RULES)
    await rule(worker, RULES)
    async with worker.client() as client, worker.direct(2) as server:
        await client.set(MOVES, "new")
        assert await server.get(MOVES) == b"new"


@pytest.mark.long
async def test_all_slots_are_locked_until_the_servers_have_answered(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    async with worker.client() as client, worker.client() as other, worker.direct(2) as server:
        assert await client.get(COMES) is await other.get("plain") is None
        # A command is under way that makes a key of a slot that will change.
        await server.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        writing = asyncio.create_task(client.set(COMES, "old"))
        await worker.under_way()
        epoch = push(worker, (), RULES)
        await worker.asked(Unblock(number=0, error=False))  # by now the worker has the table
        held = asyncio.create_task(other.incr("plain"))
        seen: Counters = await worker.next(
            lambda message: isinstance(message, Counters) and message.counters["held"] > 0
        )
        # drained: the table is not acknowledged while that command may still run.
        assert seen.counters["in_flight"] > 0
        assert not any(isinstance(message, Ack) and message.epoch == epoch for message in worker.messages)
        await server.execute_command("CLIENT", "UNPAUSE")
        assert isinstance(await worker.verdict(epoch), Ack)
        assert await writing
        # bounded: nobody has to say anything more for that, for topom may be gone.
        assert await held == 1
        await refused(other, "GET", COMES)
        assert await server.get(COMES) == b"old"


@pytest.mark.long
async def test_a_change_that_is_taken_back_and_begun_anew_locks_anew(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    names = [b"%d" % number for number in range(50)]
    # Of group 1, and of group 2, where a write is under way.
    free, busy = (next(key for key in names if BEFORE.slot_of(0, key) // 512 == half) for half in (0, 1))
    others = (SlotRule(busy.decode(), tag="others"),)

    async def held() -> None:
        await worker.next(lambda message: isinstance(message, Counters) and message.counters["held"] == 1)

    async with worker.client() as client, worker.client() as other, worker.direct(2) as server:
        await client.set(free, "1")
        await server.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        writing = asyncio.create_task(client.set(COMES, "old"))
        await worker.under_way()
        for _ in range(2):
            push(worker, (), RULES)
            await worker.asked(Unblock(number=0, error=False))  # by now the worker has the table
            reading = asyncio.create_task(other.get(free))
            await held()
            epoch = push(worker, ())
            # The write is still under way.
            assert await reading == b"1"
            assert isinstance(await worker.verdict(epoch), Ack)
        epoch = push(worker, (), RULES)
        await server.execute_command("CLIENT", "UNPAUSE")
        assert isinstance(await worker.verdict(epoch), Ack)
        assert await writing
        # For the same keys nothing more has to be waited for.
        await server.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        writing = asyncio.create_task(client.set(busy, "1"))
        await worker.under_way()
        await rule(worker, (), RULES)
        assert await other.get(free) == b"1"
        await refused(other, "GET", COMES)
        # For others it has, and for the same ones once clients could use them again.
        await rule(worker, ())
        push(worker, (), RULES)
        await worker.asked(Unblock(number=0, error=False))
        reading = asyncio.create_task(other.get(free))
        await held()
        epoch = push(worker, (), others)
        await worker.asked(Unblock(number=0, error=False))
        assert not reading.done()
        await server.execute_command("CLIENT", "UNPAUSE")
        assert isinstance(await worker.verdict(epoch), Ack)
        assert await writing
        assert await reading == b"1"
        assert await other.get(COMES) == b"old"
        await refused(other, "GET", busy)


@pytest.mark.parametrize("watched", [False, True])
async def test_a_transaction_from_before_does_not_run_by_old_slots(start_worker: StartWorker, watched: bool) -> None:
    worker = await halves(start_worker)
    async with worker.client() as client, worker.direct(1) as before, worker.direct(2) as after:
        connection = await client.connection_pool.get_connection()
        for command in [*([("WATCH", MOVES)] if watched else []), ("MULTI",), ("SET", MOVES, "new")]:
            await connection.send_command(*command)
            await connection.read_response()
        await rule(worker, (), RULES)
        await rule(worker, RULES)
        await connection.send_command("EXEC")
        reply = await connection.read_response()
        await client.connection_pool.release(connection)
        assert reply == (None if watched else [b"OK"])
        assert await before.get(MOVES) is None
        assert await after.get(MOVES) == (None if watched else b"new")


async def test_an_odd_transaction_from_before_is_aborted(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    async with worker.client() as client, worker.direct(1) as before, worker.direct(2) as after:
        connection = await client.connection_pool.get_connection()
        # A script is not queued by the engine.
        for command in (("MULTI",), ("EVAL", "return redis.call('SET', KEYS[1], 'new')", 1, MOVES)):
            await connection.send_command(*command)
            await connection.read_response()
        await rule(worker, (), RULES)
        await rule(worker, RULES)
        await connection.send_command("EXEC")
        with pytest.raises(redis.exceptions.ExecAbortError, match="slot rules have changed"):
            await connection.read_response()
        await client.connection_pool.release(connection)
        assert await before.get(MOVES) is await after.get(MOVES) is None


@pytest.mark.long
async def test_a_pop_that_waits_goes_by_the_new_rules(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    async with worker.client() as client, worker.client() as other, worker.direct(2) as server:
        waiting = asyncio.create_task(client.blmove(MOVES, MOVES + b":done", 60))
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await waiting
        waiting = asyncio.create_task(client.blpop([MOVES], 60))
        await worker.under_way()
        await rule(worker, (), RULES)
        with pytest.raises(redis.exceptions.TryAgainError, match=CHANGING):
            await waiting
        waiting = asyncio.create_task(client.blpop([b"plain"], 60))
        await worker.under_way()
        await rule(worker, RULES)
        await other.lpush(b"plain", "x")
        assert await waiting == (b"plain", b"x")
        await other.lpush(MOVES, "y")
        assert await server.llen(MOVES) == 1


async def test_nothing_comes_to_a_database_whose_slots_will_change(start_worker: StartWorker) -> None:
    worker = await halves(start_worker)
    five = (SlotRule("*", 5, "five"),)
    worker.table = worker.table.ruled(worker.table.epoch + 1, (), five)
    assert isinstance(await worker.verdict(worker.push()), Ack)
    async with worker.client(single_connection_client=True) as client:
        await client.set("plain", "1")
        await refused(client, "MOVE", "plain", 5)
        await refused(client, "COPY", "plain", "plain", "DB", 5)
        for command in (("MULTI",), ("SELECT", 5), ("SET", "plain", "2")):
            await client.execute_command(*command)
        await refused(client, "EXEC")
        assert await client.get("plain") == b"1"
    assert await worker.keys(1, 5) == await worker.keys(2, 5) == []


async def test_a_watch_from_before_the_change_does_not_hold(start_worker: StartWorker) -> None:
    """Also if this proxy has not seen the lock, because it was away: the key may have been written to elsewhere."""
    worker = await halves(start_worker)
    beside = b"{%b}" % MOVES
    assert AFTER.slot_of(0, beside) == BEFORE.slot_of(0, MOVES)
    async with worker.client(single_connection_client=True) as client, worker.client() as other:
        await client.execute_command("WATCH", MOVES)
        await rule(worker, RULES)
        await other.set(MOVES, "new")
        for command in (("MULTI",), ("SET", beside, "1")):
            await client.execute_command(*command)
        assert await client.execute_command("EXEC") is None
        assert await other.get(beside) is None


async def test_events_of_keys_whose_slot_will_change_are_still_heard(start_worker: StartWorker) -> None:
    worker = await start_worker(extra=["--notify-keyspace-events", "KEA"])
    await worker.apply([Slot(index, 1 + index // 512) for index in range(1024)])
    async with worker.client() as client, worker.direct(1) as owner, worker.direct(2) as other:
        await owner.set(MOVES, "old")
        await rule(worker, (), RULES)
        async with client.pubsub() as heard:
            await heard.subscribe(b"__keyspace@0__:" + MOVES, "end")
            for _ in range(2):
                await heard.get_message(timeout=60)
            # hidden: a key of this name that is not at its owner has no events.
            await other.set(MOVES, "foreign")
            await owner.expire(MOVES, 600)
            await client.publish("end", "end")
            messages = [await heard.get_message(timeout=60) for _ in range(2)]
        assert {message["data"] for message in messages if message is not None} == {b"expire", b"end"}
