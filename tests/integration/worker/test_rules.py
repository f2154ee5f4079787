"""Slot rules at a worker: keys that a rule names are at the server of the rule's slot, also while that slot moves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.exceptions

from slots.keyslots import KeySlots
from slots.messages.channel import Counters
from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_pubsub_servers import frozen

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
            await other.msetnx({"a": 1, "b": 2, "c": 3})
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
            await client.smove("celery-a", "celery-b", "x")


# -- channels ----------------------------------------------------------------------------------------------

WITHOUT_RULES = KeySlots("crc32", 1024)


def group_of(slot: int) -> int:
    return 1 + slot // 512


CHANNEL = next(
    channel
    for channel in (b"celery-%d" % number for number in range(1000))
    if group_of(WITHOUT_RULES.slot_of(0, channel)) != group_of(KEY_SLOTS.slot_of(0, channel))
    and group_of(WITHOUT_RULES.slot_of(0, channel)) != group_of(KEY_SLOTS.slot_of(5, channel))
)
"""A name that both rules would send to another server."""
AT = WITHOUT_RULES.slot_of(0, CHANNEL)


async def test_channels_go_by_no_rule(start_worker: StartWorker) -> None:
    """So a change of rules takes no channel to another server: there is no lock in which its messages could be told
    apart. No database has channels of its own, either."""
    worker = await with_rules(start_worker)
    async with (
        worker.direct(group_of(AT)) as direct,
        worker.direct(3 - group_of(AT)) as elsewhere,
        direct.pubsub() as heard,
        elsewhere.pubsub() as unheard,
    ):
        for pubsub in (heard, unheard):
            await pubsub.subscribe(CHANNEL)
            await pubsub.execute_command("SSUBSCRIBE", CHANNEL)
            for _ in range(2):
                assert await pubsub.get_message(timeout=60) is not None
        ways = 0
        for rules in (RULES, ()):
            worker.table = worker.table.ruled(worker.table.epoch + 1, rules)
            await worker.apply()
            for database in (0, 5):
                async with Talk(worker.settings.listen, 3) as talk:
                    assert await talk.ask("SELECT", str(database)) == b"+OK\r\n"
                    assert await talk.ask("PUBLISH", CHANNEL.decode(), "m") == b":1\r\n"
                    assert await talk.ask("SPUBLISH", CHANNEL.decode(), "m") == b":1\r\n"
                    # A transaction without keys.
                    assert await talk.ask("MULTI") == b"+OK\r\n"
                    assert await talk.ask("PUBLISH", CHANNEL.decode(), "m") == b"+QUEUED\r\n"
                    assert await talk.ask("EXEC") == b"*1\r\n:1\r\n"
                    # By plain Python: the session is about to hear a confirmation.
                    talk.send("SUBSCRIBE", "another")
                    talk.send("PUBLISH", CHANNEL.decode(), "m")
                    assert (await talk.reply()).startswith(b">3\r\n$9\r\nsubscribe\r\n")
                    assert await talk.reply() == b":1\r\n"
                    ways += 4
        for _ in range(ways):
            message = await heard.get_message(timeout=60)
            assert message is not None
            assert message["data"] == b"m"
        await elsewhere.publish(CHANNEL, "end")
        message = await unheard.get_message(timeout=60)
        assert message is not None
        assert message["data"] == b"end"


async def test_a_channel_waits_for_the_lock_of_its_own_slot_and_for_no_key(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    source = group_of(AT)
    other = KEY_SLOTS.slot_of(0, CHANNEL)
    async with worker.client() as client, worker.direct(3 - source) as target:
        for state in (SlotState.PREPARING, SlotState.PREPARED):
            await worker.act([other], state, group_of(other), 3 - group_of(other))
        assert await client.publish(CHANNEL, "the slot of a key of that name is locked") == 0
        for state in (SlotState.PREPARING, SlotState.PREPARED):
            await worker.act([AT], state, source, 3 - source)
        async with Talk(worker.settings.listen, 2) as talk, target.pubsub() as heard:
            await heard.subscribe(CHANNEL)
            assert await heard.get_message(timeout=60) is not None
            talk.send("PUBLISH", CHANNEL.decode(), "held")
            talk.send("MULTI")
            talk.send("PUBLISH", CHANNEL.decode(), "held, too")
            talk.send("EXEC")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await talk.reply()
            await worker.act([AT], SlotState.MIGRATING, source, 3 - source)
            assert await talk.reply() == b":1\r\n"
            assert [await talk.reply() for _ in range(3)] == [b"+OK\r\n", b"+QUEUED\r\n", b"*1\r\n:1\r\n"]
            for text in (b"held", b"held, too"):
                message = await heard.get_message(timeout=60)
                assert message is not None
                assert message["data"] == text


async def test_in_order_messages_of_a_moving_slot_wait_for_its_source_whatever_the_rules_say(
    start_worker: StartWorker,
) -> None:
    worker = await with_rules(start_worker)
    source = group_of(AT)
    async with worker.client(db=5) as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        assert await pubsub.get_message(timeout=60) is not None
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([AT], state, source, 3 - source)
        async with frozen(worker, source):
            assert await client.publish(CHANNEL, "at the target") == 1
            # Messages that were published at the source may be on their way.
            assert await pubsub.get_message(timeout=0.3) is None
        message = await pubsub.get_message(timeout=60)
        assert message is not None
        assert message["data"] == b"at the target"


# -- other databases


async def test_a_transaction_goes_by_the_rules_of_the_database_that_its_keys_are_in(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    home = KEY_SLOTS.slot_of(5, b"any") // 512
    key = next(key for key in (b"k%d" % number for number in range(100)) if KEY_SLOTS.slot_of(0, key) // 512 != home)
    async with worker.client(single_connection_client=True) as client, worker.client(db=5) as there:
        for command in (("MULTI",), ("SELECT", 5), ("SET", key, "new")):
            await client.execute_command(*command)
        assert await client.execute_command("EXEC") == [b"OK", b"OK"]
        assert await there.get(key) == b"new"
        # The slot that it has there is locked, and then moves.
        slot = KEY_SLOTS.slot_of(5, key)
        for state in (SlotState.PREPARING, SlotState.PREPARED):
            await worker.act([slot], state, home + 1, 2 - home)
        for command in (("SELECT", 0), ("MULTI",), ("SELECT", 5), ("SET", key, "newer")):
            await client.execute_command(*command)
        running = asyncio.create_task(client.execute_command("EXEC"))
        await worker.next(lambda message: isinstance(message, Counters) and message.counters["held"] > 0)
        await worker.act([slot], SlotState.MIGRATING, home + 1, 2 - home)
        with pytest.raises(redis.exceptions.TryAgainError, match="in another database"):
            await running


async def test_a_key_comes_to_no_database_in_which_its_slot_is_another_one(start_worker: StartWorker) -> None:
    worker = await with_rules(start_worker)
    there = KEY_SLOTS.slot_of(5, b"any")
    keys = [b"k%d" % number for number in range(100)]
    apart = next(key for key in keys if KEY_SLOTS.slot_of(0, key) // 512 != there // 512)
    async with worker.client() as client, worker.client(db=5) as in_five, worker.client(db=4) as in_four:
        await client.set(apart, "old")
        for command in (("MOVE", apart, 5), ("COPY", apart, apart, "DB", 5)):
            with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
                await client.execute_command(*command)
        assert await client.get(apart) == b"old"
        # What has one slot in both is moved.
        assert await client.execute_command("MOVE", apart, 4) == 1
        assert await in_four.get(apart) == b"old"
        assert await client.set("{queues}:1", "x")
        assert await client.execute_command("COPY", "{queues}:1", "{queues}:2", "DB", 5) == 1
        assert await in_five.get("{queues}:2") == b"x"
