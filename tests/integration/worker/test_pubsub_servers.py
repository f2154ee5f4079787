"""Pub/sub while slots move, and while servers come and go: nothing is lost, nothing comes twice or out of order."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import redis.asyncio
import redis.exceptions

from slots.group import Group
from slots.messages.channel import Table
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import INSTANCE, WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
CHANNEL = "channel"
SLOT = slot_of(CHANNEL)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


async def messages(pubsub: redis.asyncio.client.PubSub, count: int) -> list[bytes]:
    """What the next so many messages say."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            message = await pubsub.get_message(timeout=60, ignore_subscribe_messages=True)
            if message is not None:
                found.append(message["data"])
    return found


async def confirmed(pubsub: redis.asyncio.client.PubSub) -> None:
    message = await pubsub.get_message(timeout=60)
    assert message is not None
    assert message["type"] == "subscribe"


async def listeners(worker: WorkerHarness, group: int, channel: str = CHANNEL) -> int:
    """Connections that are subscribed to the channel at a group's server."""
    async with worker.direct(group) as direct:
        return int((await direct.pubsub_numsub(channel))[0][1])


async def subscribed_at(worker: WorkerHarness, *groups: int) -> None:
    for group in groups:

        async def there(group: int = group) -> bool:
            return await listeners(worker, group) == 1

        await until(there)


@asynccontextmanager
async def frozen(worker: WorkerHarness, group: int) -> AsyncIterator[None]:
    """A server that accepts connections and says nothing, until the block ends."""
    os.kill(worker.servers[group - 1].pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.servers[group - 1].pid, signal.SIGCONT)


@contextmanager
def sleeping(worker: WorkerHarness) -> Iterator[None]:
    """The worker does nothing until the block ends; then everything that came meanwhile is there at once."""
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)


MANY = 6000


async def publish_much(direct: redis.asyncio.Redis) -> None:
    """Numbers, padded to a kilobyte each."""
    async with direct.pipeline(transaction=False) as pipe:
        for number in range(MANY):
            pipe.publish(CHANNEL, b"%08d" % number + b"." * 1000)
        assert set(await pipe.execute()) == {1}


async def move(worker: WorkerHarness, source: int, target: int) -> None:
    """The channel's slot from one group to another, through all its states."""
    for state in (SlotState.PENDING, SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED):
        await worker.act([SLOT], state, source, target)
    await worker.apply([Slot(SLOT, target)])


# -- slots that move ---------------------------------------------------------------------------------------


async def test_numbers_published_in_sequence_all_arrive_once_and_in_order_while_the_slot_moves(
    start_worker: StartWorker,
) -> None:
    worker = await start_worker(servers=3)
    async with worker.client() as publisher, worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        published = 0
        over = False

        async def publish() -> None:
            nonlocal published
            while not over:
                assert await publisher.publish(CHANNEL, published + 1) == 1
                published += 1

        publishing = asyncio.create_task(publish())
        for source, target in ((1, 2), (2, 3), (3, 1), (1, 2), (2, 1)) * 3:
            before = published
            await move(worker, source, target)

            async def some_more(before: int = before) -> bool:
                return published > before + 20

            await until(some_more)
        over = True
        await publishing
        assert await messages(pubsub, published) == [b"%d" % number for number in range(1, published + 1)]


async def test_a_slot_is_not_handed_to_a_master_before_the_worker_is_subscribed_there(
    start_worker: StartWorker,
) -> None:
    worker = await start_worker(servers=3, backend_connect_seconds=30, lock_drain_seconds=0.5)
    third = worker.table.groups[3]
    await worker.apply(groups=[Group(3)])
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        async with frozen(worker, 3):
            # The group gets its server and the slot at once, as for a worker that missed a table between.
            refused = await worker.verdict(
                worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 3))], [Group(3, third.servers)])
            )
            assert refused.type == "nack"
            await worker.act([SLOT], SlotState.PREPARING, 1, 3)
        await worker.act([SLOT], SlotState.PREPARED, 1, 3)
        assert await listeners(worker, 3) == 1
        await worker.act([SLOT], SlotState.MIGRATING, 1, 3)
        assert await client.publish(CHANNEL, "there") == 1
        assert await messages(pubsub, 1) == [b"there"]


async def test_a_lock_does_not_wait_for_a_target_that_is_down(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        await worker.servers[2].stop()
        for _ in range(20):
            await worker.act([SLOT], SlotState.PREPARING, 1, 3)
            verdict = await worker.verdict(worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 3))]))
            if verdict.type == "ack":
                break
        assert verdict.type == "ack"
        await worker.apply([Slot(SLOT, 1)])
        assert await client.publish(CHANNEL, "still here") == 1
        assert await messages(pubsub, 1) == [b"still here"]


async def test_a_group_that_joins_is_subscribed_at_before_it_has_slots(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    third = worker.table.groups[3]
    await worker.apply(groups=[Group(3)])
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        assert await listeners(worker, 3) == 0
        await worker.apply(groups=[third])
        await subscribed_at(worker, 3)


async def test_a_group_that_leaves_is_left_and_what_it_had_sent_arrives(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    await worker.apply([Slot(SLOT, 3)])
    async with worker.client() as client, client.pubsub() as pubsub, worker.direct(3) as direct:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        await worker.apply([Slot(SLOT, 1)])
        worker.table = worker.table.changed(worker.table.epoch + 1, removed_groups=[3])
        with sleeping(worker):
            # So much that the worker sees the table before it has read all of it.
            await publish_much(direct)
            worker.channel.send(Table(table=worker.table.to_wire()))
        assert (await worker.verdict(worker.table.epoch)).type == "ack"
        assert [int(data[:8]) for data in await messages(pubsub, MANY)] == list(range(MANY))

        async def left() -> bool:
            return await listeners(worker, 3) == 0

        await until(left)
        assert [await listeners(worker, group) for group in (1, 2)] == [1, 1]


async def test_what_was_published_before_unsubscribing_arrives_before_the_confirmation(
    start_worker: StartWorker,
) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen, 3) as wire, worker.direct(1) as direct:
        await wire.say("SUBSCRIBE", CHANNEL)
        with sleeping(worker):
            await publish_much(direct)
            wire.send("UNSUBSCRIBE", CHANNEL)
        heard = await wire.heard()
        assert heard.count(b"$7\r\nmessage\r\n") == MANY
        assert heard.endswith(b">3\r\n$11\r\nunsubscribe\r\n$7\r\nchannel\r\n:0\r\n")


async def test_messages_between_replies_are_of_the_protocol_of_the_replies(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await worker.apply([Slot(slot_of("key"), 2)])
    async with Wire(worker.settings.listen, 3) as wire, worker.direct(1) as direct:
        await wire.say("SUBSCRIBE", CHANNEL)
        await wire.say("GET", "key")
        async with frozen(worker, 2):
            wire.send("GET", "key")
            wire.send("HELLO", 2)
            await direct.publish(CHANNEL, "x")
            message = b">3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$1\r\nx\r\n"
            assert await wire.read(len(message)) == message
        assert await wire.read(8) == b"_\r\n*14\r\n"
        await wire.heard()
        await direct.publish(CHANNEL, "x")
        assert await wire.read(len(message)) == b"*" + message[1:]


# -- servers that fail -------------------------------------------------------------------------------------


async def test_subscribers_outlive_their_master_and_hear_its_successor(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    successor = worker.servers[2].address
    await worker.apply(groups=[Group(3)])
    async with worker.client() as client, client.pubsub() as pubsub, client.pubsub() as patterns:
        await pubsub.subscribe(CHANNEL)
        await patterns.psubscribe("*")
        await confirmed(pubsub)
        await client.publish(CHANNEL, "before")
        assert await messages(pubsub, 1) == [b"before"]
        await worker.servers[0].kill()
        await worker.apply(groups=[Group(1, (successor,))])
        await subscribed_at(worker, 3)
        async with worker.direct(3) as direct:

            async def with_patterns() -> bool:
                return bool(await direct.pubsub_numpat() == 1)

            # Else a message may reach the one and not the other, and be given twice.
            await until(with_patterns)

        async def heard() -> bool:
            with contextlib.suppress(redis.exceptions.ResponseError):
                return bool(await client.publish(CHANNEL, "after") == 2)
            return False

        await until(heard)
        assert await messages(pubsub, 1) == [b"after"]
        assert await messages(patterns, 2) == [b"before", b"after"]
        # Nothing is left of the old master, and the new one has one connection.
        assert await pubsub.get_message(timeout=0) is None
        await client.publish(CHANNEL, "last")
        assert await messages(pubsub, 1) == [b"last"]


@pytest.mark.long
async def test_a_replica_that_is_promoted_gives_no_message_twice(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    old, new = worker.servers[0], worker.servers[2]
    await worker.apply(groups=[Group(1, (old.address, new.address)), Group(3)])
    async with worker.direct(1) as first, worker.direct(3) as third, worker.client() as client:
        await third.replicaof("127.0.0.1", old.port)

        async def replicates() -> bool:
            return bool((await third.info("replication"))["master_link_status"] == "up")

        await until(replicates)
        async with client.pubsub() as pubsub, worker.client() as publisher:
            await pubsub.subscribe(CHANNEL)
            await confirmed(pubsub)
            published = 0
            over = False

            async def publish() -> None:
                nonlocal published
                while not over:
                    await publisher.publish(CHANNEL, published + 1)
                    published += 1

            publishing = asyncio.create_task(publish())
            await third.replicaof("NO", "ONE")
            await worker.apply(groups=[Group(1, (new.address, old.address))])
            await first.replicaof("127.0.0.1", new.port)
            await subscribed_at(worker, 3)

            async def left() -> bool:
                return await listeners(worker, 1) == 0

            await until(left)
            over = True
            await publishing
            await publisher.publish(CHANNEL, published + 1)
            heard: list[int] = []
            while not heard or heard[-1] <= published:
                heard += map(int, await messages(pubsub, 1))
            assert heard == sorted(set(heard))
            assert await pubsub.get_message(timeout=0) is None


async def test_a_former_master_is_left_before_its_successor_is_subscribed_at(start_worker: StartWorker) -> None:
    """Else what the one replicates to the other is heard twice."""
    worker = await start_worker(servers=3)
    old, new = worker.servers[0], worker.servers[2]
    await worker.apply(groups=[Group(3)])
    async with worker.client() as client, Wire(old.address) as first, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        async with frozen(worker, 1):
            first.send("PUBLISH", CHANNEL, "again")
            await worker.apply(groups=[Group(1, (new.address, old.address))])
            await subscribed_at(worker, 3)
        assert await first.heard() == b":1\r\n"
        await client.publish(CHANNEL, "last")
        assert await messages(pubsub, 1) == [b"last"]
        assert await pubsub.get_message(timeout=0) is None


async def test_a_server_that_comes_back_is_subscribed_at_again(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        await pubsub.execute_command("SSUBSCRIBE", CHANNEL)
        await worker.servers[0].kill()
        await pubsub.psubscribe("while-it-is-down*")
        worker.servers[0].start()
        await worker.servers[0].ready()
        await subscribed_at(worker, 1)
        assert await client.publish(CHANNEL, "back") == 1
        assert await messages(pubsub, 1) == [b"back"]
        async with worker.direct(1) as direct:
            assert await direct.publish("while-it-is-down-1", "too") == 1
            assert await messages(pubsub, 1) == [b"too"]
            assert await direct.execute_command("PUBSUB", "SHARDCHANNELS") == [CHANNEL.encode()]


async def test_subscribing_while_a_server_is_down(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    await worker.servers[1].kill()
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        assert [await listeners(worker, group) for group in (1, 3)] == [1, 1]
        worker.servers[1].start()
        await worker.servers[1].ready()
        await subscribed_at(worker, 2)
        assert await client.publish(CHANNEL, "x") == 1
        assert await messages(pubsub, 1) == [b"x"]


@pytest.mark.long
async def test_subscribing_and_leaving_wait_for_a_silent_server_for_a_limited_time(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, backend_connect_seconds=1.0, backend_reply_seconds=1.0)
    async with Wire(worker.settings.listen) as wire:
        async with frozen(worker, 2):
            assert (await wire.say("SUBSCRIBE", "new")).startswith(b"*3\r\n$9\r\nsubscribe")
        await wire.say("SUBSCRIBE", CHANNEL)
        await subscribed_at(worker, 1, 2, 3)
        async with frozen(worker, 3):
            assert (await wire.say("SUBSCRIBE", "newer")).startswith(b"*3\r\n$9\r\nsubscribe")
            assert (await wire.say("UNSUBSCRIBE", "new")).startswith(b"*3\r\n$11\r\nunsubscribe")
        await subscribed_at(worker, 1, 2, 3)
        async with worker.direct(3) as direct:

            async def as_wanted() -> bool:
                return sorted(await direct.pubsub_channels()) == [CHANNEL.encode(), b"newer"]

            await until(as_wanted)


@pytest.mark.long
async def test_a_silent_loss_is_noticed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, backend_reply_seconds=1.0, backend_connect_seconds=1.0)
    async with worker.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        async with worker.direct(1) as direct:
            (own,) = [one for one in await direct.client_list() if one["sub"] == "1"]
            async with frozen(worker, 1):

                async def has_noticed() -> bool:
                    return worker.process.logged("subscriptions_lost")

                await until(has_noticed)
            await subscribed_at(worker, 1)
            (other,) = [one for one in await direct.client_list() if one["sub"] == "1"]
            assert own["id"] != other["id"]


async def test_a_server_that_refuses_is_tried_again(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2)
    async with worker.direct(1) as direct, worker.client() as client, client.pubsub() as pubsub:
        await direct.execute_command("ACL", "SETUSER", "default", "-subscribe")
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        assert await listeners(worker, 2) == 1
        await direct.execute_command("ACL", "SETUSER", "default", "+subscribe")
        await subscribed_at(worker, 1)
        assert await client.publish(CHANNEL, "x") == 1
        assert await messages(pubsub, 1) == [b"x"]


async def test_a_new_identity_has_new_connections(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with worker.client() as client, client.pubsub() as pubsub, worker.direct(1) as direct:
        await pubsub.subscribe(CHANNEL)
        await confirmed(pubsub)
        worker.take_identity()

        async def renamed() -> bool:
            (listener,) = [one["name"] for one in await direct.client_list() if one["sub"] == "1"] or [""]
            return "f" * 32 in listener

        await until(renamed)
        assert not any(INSTANCE in one["name"] for one in await direct.client_list())
        assert await client.publish(CHANNEL, "x") == 1
        assert await messages(pubsub, 1) == [b"x"]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_many_channels_are_subscribed_to_again(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(servers=1)
    async with worker.client(protocol=protocol) as client, client.pubsub() as pubsub, worker.direct(1) as direct:
        names = [f"channel-{number}" for number in range(20_000)]
        for start in range(0, len(names), 2000):
            await pubsub.subscribe(*names[start : start + 2000])
        for _ in names:
            await confirmed(pubsub)
        assert len(await direct.pubsub_channels()) == len(names)
        await direct.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        async def again() -> bool:
            return len(await direct.pubsub_channels()) == len(names)

        await until(again)
        for name in (names[0], names[-1]):
            assert await client.publish(name, "x") == 1
        assert await messages(pubsub, 2) == [b"x", b"x"]
