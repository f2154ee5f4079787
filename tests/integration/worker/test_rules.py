"""Slot rules at a worker: keys that a rule names are at the server of the rule's slot, also while that slot moves."""

from collections.abc import Awaitable, Callable

import pytest
import redis.exceptions

from slots.keyslots import KeySlots
from slots.rules import SlotRule
from slots.states import SlotState
from slots.table import Slot
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]
RULES = (SlotRule("bull:(*):*"), SlotRule("celery*"), SlotRule("unacked*", tag="celery"), SlotRule("*", 5, "queues"))
KEY_SLOTS = KeySlots("crc32", 1024, RULES)
QUEUE = [b"bull:mail:wait", b"bull:mail:active", b"bull:mail:1", b"bull:mail:id"]


async def with_rules(start_worker: StartWorker) -> WorkerHarness:
    """A worker with these rules. The second half of the slots is at group 2."""
    worker = await start_worker()
    worker.table = worker.table.ruled(worker.table.epoch + 1, RULES)
    await worker.apply([Slot(index, 1 + index // 512) for index in range(1024)])
    return worker


async def test_keys_of_a_rule_are_one_slot_for_every_kind_of_command(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    wait, active, job, number = QUEUE
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await client.rpoplpush("plain", "another")
        await client.lpush(wait, "a", "b")
        assert await client.lmove(wait, active) == b"b"
        assert await client.blmove(wait, active, 1) == b"a"
        assert await client.eval("return redis.call('LLEN', KEYS[1]) + redis.call('INCR', KEYS[2])", 2, active, number)
        async with client.pipeline(transaction=True) as pipe:
            await pipe.watch(job, active)
            pipe.multi()
            pipe.hset(job, "state", "done").ltrim(active, 1, 0).sunionstore("bull:mail:all", "bull:mail:none")
            assert (await pipe.execute())[0] == 1
        await client.mset({"celery": "1", "celery-task-meta-1": "2", "unacked_index": "3"})
        assert await client.sinter("celery-a", "unacked_mutex") == set()
        assert sorted(await client.keys("*"))[:2] == [job, number]
    of_queue, of_celery = KEY_SLOTS.slot_of(0, wait), KEY_SLOTS.slot_of(0, b"celery")
    for group in (1, 2):
        async with worker.direct(group) as server:
            assert await server.exists(job, number) == (2 if of_queue // 512 + 1 == group else 0)
            assert await server.exists("celery", "celery-task-meta-1", "unacked_index") == (
                3 if of_celery // 512 + 1 == group else 0
            )


async def test_a_database_that_is_one_slot_needs_no_tags(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    async with worker.client(db=5) as client, worker.client(db=4) as other:
        assert await client.msetnx({f"k{number}": number for number in range(50)})
        assert await client.sinter("a", "b", "c") == set()
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await other.sinter("a", "b", "c")
    group = KEY_SLOTS.slot_of(5, b"k0") // 512 + 1
    async with worker.direct(group, db=5) as server:
        assert await server.dbsize() == 50


async def test_a_slot_that_a_rule_names_moves(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    slot = KEY_SLOTS.slot_of(0, QUEUE[0])
    source = slot // 512 + 1
    target = 3 - source
    async with worker.client() as client:
        await client.mset(dict.fromkeys(QUEUE, "old"))
        await client.set("plain", "stays")
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([slot], state, source, target)
        assert await client.append(QUEUE[0], "er") == 5
        assert await client.mget(QUEUE) == [b"older", b"old", b"old", b"old"]
        assert await client.get("plain") == b"stays"
    async with worker.direct(target) as server:
        assert await server.exists(*QUEUE) == len(QUEUE)
    async with worker.direct(source) as server:
        assert await server.exists(*QUEUE) == 0


async def test_other_rules_hold_from_their_table_on(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    async with worker.client() as client:
        assert await client.sinter("celery-a", "celery-b") == set()
        worker.table = worker.table.ruled(worker.table.epoch + 1, ())
        await worker.apply()
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await client.sinter("celery-a", "celery-b")
