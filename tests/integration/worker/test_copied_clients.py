"""Transactions, commands that wait, and subscriptions over the switch of a slot whose keys were copied."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio

from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.blocked import Blocked, blocked_at
from tests.integration.worker.conversations import Talk
from tests.integration.worker.copied import act_by_copy, switch
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import frozen
from tests.integration.worker.test_watch import CHANGED, KEY, SLOT, watching

StartWorker = Callable[..., Awaitable[WorkerHarness]]

BEFORE = (SlotState.COPYING, SlotState.PREPARING)


@pytest.mark.parametrize("state", BEFORE)
async def test_a_transaction_runs_at_the_source_before_the_lock(start_worker: StartWorker, state: SlotState) -> None:
    worker = await start_worker()
    async with watching(worker) as talk:
        await act_by_copy(worker, [SLOT], state)
        assert await talk.ask("EXEC") == b"*1\r\n+OK\r\n"
    assert (await worker.keys(1), await worker.keys(2)) == ([KEY.encode()], [])


@pytest.mark.parametrize("written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("at_rest", [True, False], ids=["at rest", "finished"])
async def test_a_transaction_watched_before_the_switch_is_nil_after_it(
    start_worker: StartWorker, written: bool, at_rest: bool
) -> None:
    """Nothing runs at the source, where the watch is, nor at the target, which knows nothing of it."""
    worker = await start_worker()
    async with watching(worker) as talk, worker.client() as client, worker.direct(1) as source:
        await act_by_copy(worker, [SLOT], *BEFORE, SlotState.PREPARED)
        await switch(worker, [SLOT])
        if at_rest:
            await worker.apply([Slot(SLOT, 2)])
        if written:
            await client.set(KEY, "theirs")
        assert await talk.ask("EXEC") == CHANGED
        assert await source.get(KEY) is None
        assert await client.get(KEY) == (b"theirs" if written else None)


async def test_what_waits_goes_on_at_the_target(start_worker: StartWorker) -> None:
    worker = await start_worker()
    stream = "{t}stream"
    async with Blocked(worker) as blocked, worker.direct(1) as source, worker.direct(2) as target:
        await source.xadd(stream, {"field": "old"}, id="1-0")
        for server in (source, target):
            await server.xgroup_create(stream, "group", id="$", mkstream=True)
        waiting = [
            ("BLPOP", "{t}list", 0),
            ("BZPOPMIN", "{t}zset", 50),
            ("XREAD", "BLOCK", 0, "STREAMS", stream, "$"),
            ("XREADGROUP", "GROUP", "group", "consumer", "BLOCK", 0, "STREAMS", stream, ">"),
        ]
        for words in waiting:
            await blocked.add(*words)
        await blocked_at(worker.servers[0], len(waiting))
        await act_by_copy(worker, [SLOT], *BEFORE)
        await blocked_at(worker.servers[0], len(waiting))
        await act_by_copy(worker, [SLOT], SlotState.PREPARED)
        await blocked_at(worker.servers[0], 0)
        # A client of a proxy that has heard of the switch adds an entry: "$" was the source's last one.
        await target.xadd(stream, {"field": "new"}, id="2-0")
        await switch(worker, [SLOT])
        assert b"$3\r\nnew\r\n" in await blocked.wires[2].heard()
        assert b"$3\r\nnew\r\n" in await blocked.wires[3].heard()
        await blocked_at(worker.servers[1], 2)
        await worker.apply([Slot(SLOT, 2)])
        async with worker.client() as client:
            await client.rpush("{t}list", "pushed")
            await client.zadd("{t}zset", {"added": 1})
        assert (await blocked.wires[0].heard()).endswith(b"pushed\r\n")
        assert b"$5\r\nadded\r\n" in await blocked.wires[1].heard()


async def heard_until(pubsub: "redis.asyncio.client.PubSub", servers: list[redis.asyncio.Redis]) -> list[str]:
    """The events that have come by now, as "key event"."""
    for server in servers:
        await server.publish("over", "1")
    found, over = [], 0
    while over < len(servers):
        message = await pubsub.get_message(timeout=LIMIT, ignore_subscribe_messages=True)
        assert message is not None
        if message["channel"] == "over":
            over += 1
        else:
            found.append(f"{message['channel'].partition(':')[2]} {message['data']}")
    return found


async def test_events_are_the_owners_alone(start_worker: StartWorker) -> None:
    worker = await start_worker(extra=["--notify-keyspace-events", "KA"])
    moving = "{moving}key"
    slot = slot_of(moving)
    async with (
        worker.client(decode_responses=True) as client,
        client.pubsub() as pubsub,
        worker.direct(1) as source,
        worker.direct(2) as target,
    ):
        both = [source, target]
        await pubsub.psubscribe("__keyspace@0__:*", "over")
        for _ in range(2):
            assert (await pubsub.get_message(timeout=LIMIT) or {})["type"] == "psubscribe"
        for state in BEFORE:
            await act_by_copy(worker, [slot], state)
            await client.set(moving, "1")
            await target.set(moving, "1")
            await target.pexpireat(moving, 2**42)
            assert await heard_until(pubsub, both) == [f"{moving} set"]
        await act_by_copy(worker, [slot], SlotState.PREPARED)
        # The worker cannot tell yet whether these are clients' of the new owner.
        await target.set(moving, "2")
        await switch(worker, [slot])
        # **in-order**: it may be held for a moment behind what the former owner has sent, and what is not of its
        # channel passes it.
        async with asyncio.timeout(LIMIT):
            while not (found := await heard_until(pubsub, both)):
                pass
        assert found == [f"{moving} set"]
        await worker.apply([Slot(slot, 2)])
        # The sweep, and a client.
        await source.unlink(moving)
        await client.append(moving, "3")
        assert await heard_until(pubsub, both) == [f"{moving} append"]


async def test_a_sources_last_event_is_not_lost_by_the_switch(start_worker: StartWorker) -> None:
    """It is on its way when the worker hears that the target is the owner."""
    worker = await start_worker(extra=["--notify-keyspace-events", "KA"])
    moving = "{moving}key"
    slot = slot_of(moving)
    async with (
        worker.client(decode_responses=True) as client,
        client.pubsub() as pubsub,
        worker.direct(1) as source,
        worker.direct(2) as target,
        Talk(worker.servers[0].address) as late,
    ):
        await pubsub.psubscribe("__keyspace@0__:*", "over")
        for _ in range(2):
            assert (await pubsub.get_message(timeout=LIMIT) or {})["type"] == "psubscribe"
        await act_by_copy(worker, [slot], *BEFORE, SlotState.PREPARED)
        async with frozen(worker, 1):
            late.send("SET", moving, "1")
            await late.writer.drain()
            await switch(worker, [slot])
        await late.reply()
        assert await heard_until(pubsub, [source, target]) == [f"{moving} set"]
