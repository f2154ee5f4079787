"""Pub/sub through a worker: what clients send and get, compared with a Redis server byte for byte."""

import asyncio
import queue
from collections.abc import Awaitable, Callable

import pytest
import redis
import redis.asyncio
import redis.exceptions

from slotferry.redis_server import RedisServer
from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
Step = tuple[bytes | str | int, ...]


@pytest.fixture
async def three(start_worker: StartWorker) -> WorkerHarness:
    """A worker with three servers, the slots spread over them by turns."""
    harness = await start_worker(servers=3)
    await harness.apply([Slot(index, index % 3 + 1) for index in range(1024)])
    return harness


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


def channel_of(group: int, groups: int = 3) -> str:
    """A channel whose slot is at this group, where the slots are spread by turns."""
    return next(f"channel-{number}" for number in range(999) if slot_of(f"channel-{number}") % groups + 1 == group)


# -- conversations -----------------------------------------------------------------------------------------

SUBSCRIBING: list[Step] = [
    ("SUBSCRIBE", "a"),
    ("SUBSCRIBE", "a", "b", "a", "c", "b"),
    ("subscribe", b"\x00\r\n\xff*", ""),
    ("SSUBSCRIBE", "s1", "s2", "s1", "a"),
    ("PSUBSCRIBE", "p*", "a", "p*"),
    ("PING",),
    ("PING", "x"),
    ("PING", "x", "y"),
    ("SUBSCRIBE",),
    ("UNSUBSCRIBE", "a", "nowhere", "a"),
    ("PUNSUBSCRIBE", "nowhere"),
    ("SUNSUBSCRIBE", "a"),
    ("SUNSUBSCRIBE", "s1", "s2"),
    ("SUNSUBSCRIBE",),
    ("UNSUBSCRIBE", "b", "c", ""),
    ("UNSUBSCRIBE",),
    ("UNSUBSCRIBE",),
    ("PUNSUBSCRIBE", "a"),
    ("PUNSUBSCRIBE",),
    ("PUNSUBSCRIBE",),
    ("GET", "a"),
    ("SUBSCRIBE", "a"),
    ("RESET",),
    ("UNSUBSCRIBE",),
    ("GET", "a"),
    ("PUBSUB", "NUMSUB", "a", "b"),
    ("PUBSUB", "NUMSUB"),
    ("PUBSUB", "CHANNELS"),
    ("PUBSUB", "CHANNELS", "a", "b"),
    ("PUBSUB", "NUMPAT"),
    ("PUBSUB", "SHARDCHANNELS"),
    ("PUBSUB", "SHARDNUMSUB", "a"),
    ("PUBSUB", "NUMPAT", "x"),
    ("PUBSUB",),
    ("PUBLISH", "a"),
    ("PUBLISH", "a", "b"),
    ("SPUBLISH", "a", "b"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_confirmations_are_those_of_redis(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    async with Wire(worker.settings.listen, protocol) as ours, Wire(plain.address, protocol) as theirs:
        for step in SUBSCRIBING:
            assert await ours.say(*step) == await theirs.say(*step), step


async def test_a_resp2_session_with_subscriptions_is_limited_as_by_redis(
    worker: WorkerHarness, plain: RedisServer
) -> None:
    refused: list[Step] = [
        ("GET", "a"),
        ("mget", "a", "b"),
        ("HELLO", "3"),
        ("MULTI",),
        ("PUBLISH", "a", "b"),
        ("PUBSUB", "NUMPAT"),
        ("CLIENT", "ID"),
        ("GET",),
        ("NOTHING",),
    ]
    for kind in ("", "P", "S"):
        async with Wire(worker.settings.listen) as ours, Wire(plain.address) as theirs:
            for step in [(f"{kind}SUBSCRIBE", "x"), *refused, (f"{kind}UNSUBSCRIBE", "x"), ("GET", "a")]:
                assert await ours.say(*step) == await theirs.say(*step), step


async def test_switching_to_resp2_and_back_while_subscribed(worker: WorkerHarness, plain: RedisServer) -> None:
    steps: list[Step] = [
        ("SUBSCRIBE", "x"),
        ("GET", "a"),
        ("HELLO", 2, "WHAT"),
        ("GET", "a"),
    ]
    async with Wire(worker.settings.listen, 3) as ours, Wire(plain.address, 3) as theirs:
        for step in steps:
            assert await ours.say(*step) == await theirs.say(*step), step
        for wire in (ours, theirs):
            assert (await wire.say("HELLO", 2)).startswith(b"*14\r\n")
        for step in [("GET", "a"), ("PING",), ("HELLO", 3)]:
            assert await ours.say(*step) == await theirs.say(*step), step
        for address, wire in ((worker.settings.listen, ours), (plain.address, theirs)):
            async with Wire(address) as publisher:
                assert await publisher.say("PUBLISH", "x", "hello") == b":1\r\n"
            message = b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n"
            assert await wire.read(len(message)) == message
        assert await ours.say("UNSUBSCRIBE", "x") == await theirs.say("UNSUBSCRIBE", "x")
        assert (await ours.say("HELLO", 3)).startswith(b"%7\r\n")


async def test_client_reply_off_does_not_keep_confirmations_back(worker: WorkerHarness, plain: RedisServer) -> None:
    async with Wire(worker.settings.listen, 3) as ours, Wire(plain.address, 3) as theirs:
        for wire in (ours, theirs):
            wire.send("CLIENT", "REPLY", "OFF")
            for words in (("SUBSCRIBE", "x"), ("SUBSCRIBE", "x"), ("UNSUBSCRIBE", "x"), ("UNSUBSCRIBE",)):
                wire.send("GET", "a")
                wire.send(*words)
            wire.send("CLIENT", "REPLY", "ON")
            wire.send("CLIENT", "REPLY", "SKIP")
            wire.send("SUBSCRIBE", "y")
        assert await ours.heard() == await theirs.heard()


async def test_order_with_other_replies_in_one_pipeline(three: WorkerHarness, plain: RedisServer) -> None:
    async with Wire(three.settings.listen, 3) as ours, Wire(plain.address, 3) as theirs:
        for wire in (ours, theirs):
            for number in range(30):
                wire.send("SET", f"key-{number}", number)
                wire.send("SUBSCRIBE", f"channel-{number}", f"channel-{number % 7}")
                wire.send("GET", f"key-{number}")
                wire.send("SSUBSCRIBE", f"channel-{number}")
                wire.send("UNSUBSCRIBE", f"channel-{number // 2}")
                wire.send("ECHO", number)
                wire.send("PSUBSCRIBE", f"pattern-{number}")
        assert await ours.heard() == await theirs.heard()


# -- messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_messages_are_those_of_redis(three: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    published: list[tuple[str, bytes | str, bytes]] = [
        ("PUBLISH", "news", b"hello"),
        ("PUBLISH", "news", b""),
        ("PUBLISH", "other", b"not subscribed to by name"),
        ("PUBLISH", b"\x00\r\n\xff", b"\r\n$5\r\n\x00\xfe"),
        ("PUBLISH", "", b"no name"),
        ("SPUBLISH", "news", b"shard"),
        ("SPUBLISH", "shard", b"s" * 300_000),
        ("PUBLISH", "shard", b"to nobody"),
        ("PUBLISH", "n", b"x" * 1_000_000),
    ]
    both = ((three.settings.listen, "proxy"), (plain.address, "plain"))
    heard: dict[str, list[bytes]] = {}
    for address, name in reversed(both):
        heard[name] = []
        async with Wire(address, protocol) as listener, Wire(address, protocol) as publisher:
            await listener.say("SUBSCRIBE", "news", b"\x00\r\n\xff", "", "n")
            await listener.say("PSUBSCRIBE", "*o*")
            await listener.say("SSUBSCRIBE", "shard", "news")
            for number, words in enumerate(published):
                await publisher.say(*words)
                # One after the other: messages of different servers are in no order.
                expected = heard["plain"][number] if name == "proxy" else None
                heard[name].append(await listener.heard() if expected is None else await listener.read(len(expected)))
            assert b"message" not in await listener.say("UNSUBSCRIBE")
    assert heard["proxy"] == heard["plain"]


async def test_what_was_published_before_is_not_delivered_and_what_comes_after_is(three: WorkerHarness) -> None:
    async with Wire(three.settings.listen, 3) as wire, Wire(three.settings.listen) as publisher:
        for number in range(60):
            channel = f"channel-{number}"
            before = await publisher.say("PUBLISH", channel, "before")
            assert before == b":0\r\n"
            confirmed = await wire.say("SUBSCRIBE", channel)
            assert confirmed.startswith(b">3\r\n$9\r\nsubscribe")
            assert await publisher.say("PUBLISH", channel, "after") == b":1\r\n"
            message = b">3\r\n$7\r\nmessage\r\n$%d\r\n%b\r\n$5\r\nafter\r\n" % (len(channel), channel.encode())
            assert await wire.read(len(message)) == message


async def test_an_own_message_published_right_behind_the_subscription_arrives(three: WorkerHarness) -> None:
    async with Wire(three.settings.listen, 3) as wire:
        for number in range(60):
            channel = f"channel-{number}"
            # In one go, and a second session's subscription is not waited for: the channel is new to the worker.
            wire.send("SUBSCRIBE", channel)
            wire.send("PUBLISH", channel, "own")
            wire.send("UNSUBSCRIBE", channel)
            size = len(channel)
            name = b"$%d\r\n%b\r\n" % (size, channel.encode())
            head = b">3\r\n$9\r\nsubscribe\r\n%b:1\r\n" % name
            assert await wire.read(len(head)) == head
            rest = {b":1\r\n", b">3\r\n$7\r\nmessage\r\n%b$3\r\nown\r\n" % name}
            got = await wire.read(sum(map(len, rest)))
            assert all(part in got for part in rest)
            tail = b">3\r\n$11\r\nunsubscribe\r\n%b:0\r\n" % name
            assert await wire.read(len(tail)) == tail


async def test_nothing_published_before_comes_with_a_channel_that_others_have(three: WorkerHarness) -> None:
    async with Wire(three.settings.listen) as first, Wire(three.settings.listen, 3) as wire:
        await first.say("SUBSCRIBE", "channel")
        for _ in range(50):
            wire.send("PUBLISH", "channel", "before")
            wire.send("SUBSCRIBE", "channel")
            wire.send("UNSUBSCRIBE", "channel")
            assert b"message" not in await wire.heard()


async def test_each_message_is_delivered_once_over_three_groups(three: WorkerHarness) -> None:
    channels = {slot_of(f"c{number}"): f"c{number}" for number in range(20_000)}
    assert len(channels) == 1024
    async with (
        three.client(protocol=3) as client,
        three.client(protocol=2) as other,
        client.pubsub() as by_name,
        other.pubsub() as by_pattern,
        client.pubsub() as by_shard,
    ):
        await by_name.subscribe(*channels.values())
        await by_pattern.psubscribe("c*", "*")
        await by_shard.execute_command("SSUBSCRIBE", *channels.values())
        async with client.pipeline(transaction=False) as pipe:
            for slot, channel in channels.items():
                pipe.publish(channel, slot)
                pipe.execute_command("SPUBLISH", channel, -slot)
            counts = await pipe.execute()
        assert counts == [3, 1] * 1024

        expected = sorted((channel.encode(), str(slot).encode()) for slot, channel in channels.items())
        assert sorted(await gather(by_name, "message", 1024)) == expected
        twice = sorted(await gather(by_pattern, "pmessage", 2048))
        assert twice == sorted([*expected, *expected])
        for pubsub in (by_name, by_pattern):
            assert await pubsub.get_message(timeout=0) is None


async def gather(pubsub: redis.asyncio.client.PubSub, kind: str, count: int) -> list[tuple[bytes, bytes]]:
    """So many messages of a kind."""
    found: list[tuple[bytes, bytes]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            message = await pubsub.get_message(timeout=60)
            if message is not None and message["type"] == kind:
                found.append((message["channel"], message["data"]))
    return found


async def test_a_channel_and_patterns_that_match_it_give_a_message_each(three: WorkerHarness) -> None:
    for group in (1, 2, 3):
        channel = channel_of(group)
        async with Wire(three.settings.listen, 3) as wire, Wire(three.settings.listen) as publisher:
            await wire.say("SUBSCRIBE", channel)
            await wire.say("PSUBSCRIBE", "chan*", "*", "nothing*")
            await publisher.say("PUBLISH", channel, "x")
            name = b"$%d\r\n%b\r\n$1\r\nx\r\n" % (len(channel), channel.encode())
            parts = [
                b">3\r\n$7\r\nmessage\r\n" + name,
                b">4\r\n$8\r\npmessage\r\n$5\r\nchan*\r\n" + name,
                b">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n" + name,
            ]
            got = await wire.read(sum(map(len, parts)))
            assert all(got.count(part) == 1 for part in parts)
            assert await wire.heard() == b""


async def test_messages_of_scripts_transactions_and_keyspace_events_arrive(three: WorkerHarness) -> None:
    for group in (1, 2, 3):
        async with three.direct(group) as direct:
            await direct.config_set("notify-keyspace-events", "KEA")
    async with three.client() as client, client.pubsub() as pubsub:
        await pubsub.subscribe("__keyevent@0__:set", "of-a-script")
        for group in (1, 2, 3):
            key = channel_of(group)
            await client.set(key, "x")
            assert await gather(pubsub, "message", 1) == [(b"__keyevent@0__:set", key.encode())]
            # At the server where the script's key is, wherever the channel's slot may be.
            async with three.direct(group) as direct:
                await direct.eval("return redis.call('publish', 'of-a-script', KEYS[1])", 1, key)
                assert await gather(pubsub, "message", 1) == [(b"of-a-script", key.encode())]
                async with direct.pipeline(transaction=True) as pipe:
                    pipe.publish("of-a-script", "exec")
                    await pipe.execute()
                assert await gather(pubsub, "message", 1) == [(b"of-a-script", b"exec")]


# -- clients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py_asyncio(three: WorkerHarness, protocol: int) -> None:
    async with three.client(protocol=protocol, decode_responses=True) as client, client.pubsub() as pubsub:
        handled: list[str] = []
        await pubsub.subscribe("one", two=lambda message: handled.append(message["data"]))
        await pubsub.psubscribe("t*")
        confirmations = [await pubsub.get_message(timeout=60) for _ in range(3)]
        assert [(found["type"], found["channel"], found["data"]) for found in confirmations if found] == [
            ("subscribe", "one", 1),
            ("subscribe", "two", 2),
            ("psubscribe", "t*", 3),
        ]
        assert await client.publish("one", "1") == 1
        message = await pubsub.get_message(timeout=60)
        assert message == {"type": "message", "pattern": None, "channel": "one", "data": "1"}
        assert await client.publish("two", "2") == 2
        found = [await pubsub.get_message(timeout=60) for _ in range(2)]
        assert handled == ["2"]
        assert {"type": "pmessage", "pattern": "t*", "channel": "two", "data": "2"} in found
        if protocol == 2:
            await pubsub.ping()
            assert (await pubsub.get_message(timeout=60) or {})["type"] == "pong"
        await pubsub.unsubscribe()
        await pubsub.punsubscribe()
        for _ in range(3):
            assert await pubsub.get_message(timeout=60) is not None
        assert not pubsub.subscribed
        assert await client.pubsub_channels() == []


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py(three: WorkerHarness, protocol: int) -> None:
    host, port = three.settings.listen.split(":")

    def converse() -> list[object]:
        client = redis.Redis(host=host, port=int(port), protocol=protocol)
        with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe("one")
            pubsub.psubscribe("t*")
            pubsub.get_message(timeout=60)
            pubsub.get_message(timeout=60)
            client.publish("one", "1")
            client.publish("two", "2")
            found: list[object] = [pubsub.get_message(timeout=60), pubsub.get_message(timeout=20)]
        with client.pubsub() as pubsub:
            arrived = queue.Queue[object]()
            pubsub.subscribe(three=arrived.put)
            pubsub.get_message(timeout=60)
            thread = pubsub.run_in_thread(sleep_time=0.01)
            client.publish("three", "3")
            found.append(arrived.get(timeout=20))
            thread.stop()
            thread.join()
        client.close()
        return found

    found = await asyncio.to_thread(converse)
    assert {"type": "message", "pattern": None, "channel": b"one", "data": b"1"} in found
    assert {"type": "pmessage", "pattern": b"t*", "channel": b"two", "data": b"2"} in found
    assert found[-1] == {"type": "message", "pattern": None, "channel": b"three", "data": b"3"}


# -- PUBSUB ------------------------------------------------------------------------------------------------


async def test_pubsub_numbers_count_clients_and_not_workers(three: WorkerHarness) -> None:
    async with three.client() as client:
        listeners = [client.pubsub() for _ in range(5)]
        for number, listener in enumerate(listeners):
            await listener.subscribe("all", f"own-{number}", b"\xff")
            await listener.psubscribe("pattern", f"pattern-{number}")
            await listener.execute_command("SSUBSCRIBE", "all")
            await gather_confirmations(listener, 6)
        assert await client.pubsub_numsub("all", "own-1", "none", b"\xff") == [
            (b"all", 5),
            (b"own-1", 1),
            (b"none", 0),
            (b"\xff", 5),
        ]
        assert await client.execute_command("PUBSUB", "SHARDNUMSUB", "all", "own-1") == [b"all", 5, b"own-1", 0]
        assert await client.pubsub_numpat() == 6
        assert sorted(await client.pubsub_channels("own-*")) == [f"own-{number}".encode() for number in range(5)]
        assert await client.execute_command("PUBSUB", "SHARDCHANNELS") == [b"all"]
        channels = [b"all", b"\xff", *(b"own-%d" % number for number in range(5))]
        assert sorted(await client.pubsub_channels()) == sorted(channels)
        many = [b"all", b"own-2"] * 300
        assert await client.pubsub_numsub(*many) == [(b"all", 5), (b"own-2", 1)] * 300
        for word in ("SUBSCRIBE", "SSUBSCRIBE", "PUBLISH"):
            async with Wire(three.settings.listen) as own:
                refused = await own.say(word, "__slotferry:more:0:x", *["m"] * (word == "PUBLISH"))
                assert refused.startswith(b"-ERR keys whose names begin with __slotferry:")
        # Somebody who listens at a server directly, or by way of another proxy, is counted too.
        async with Wire(three.servers[0].address) as stranger:
            await stranger.say("SUBSCRIBE", "none")
            assert sum(number for _, number in [*await client.pubsub_numsub("none")]) in (0, 1)
        for listener in listeners:
            await listener.aclose()

        async def all_gone() -> bool:
            return await client.pubsub_channels() == [] and await client.pubsub_numpat() == 0

        await until(all_gone)


async def gather_confirmations(pubsub: redis.asyncio.client.PubSub, count: int) -> None:
    for _ in range(count):
        assert await pubsub.get_message(timeout=60) is not None


async def test_client_list_tells_who_is_subscribed(worker: WorkerHarness) -> None:
    async with worker.client() as client, Wire(worker.settings.listen, 3) as three, Wire(worker.settings.listen) as two:
        await three.say("SUBSCRIBE", "a", "b")
        await three.say("PSUBSCRIBE", "a")
        await two.say("SSUBSCRIBE", "a", "b", "c")
        found = [
            (one["flags"], one["sub"], one["psub"], one["ssub"], one["resp"]) for one in await client.client_list()
        ]
        assert sorted(found) == [("N", "0", "0", "0", "3"), ("P", "0", "0", "3", "2"), ("P", "2", "1", "0", "3")]
        assert len(await client.client_list(_type="pubsub")) == 2
        assert [one["flags"] for one in await client.client_list(_type="normal")] == ["N"]


# -- leaving -----------------------------------------------------------------------------------------------


async def test_what_a_closed_session_was_subscribed_to_is_left_at_the_servers(three: WorkerHarness) -> None:
    async with Wire(three.settings.listen) as stays:
        await stays.say("SUBSCRIBE", "shared")
        for how in ("close", "RESET", "QUIT"):
            async with Wire(three.settings.listen, 3) as leaves:
                await leaves.say("SUBSCRIBE", "own", "shared")
                await leaves.say("PSUBSCRIBE", "own*")
                await leaves.say("SSUBSCRIBE", "own")
                if how == "RESET":
                    await leaves.say("RESET")
                    await subscribed_only_to_shared(three)
                elif how == "QUIT":
                    leaves.send("QUIT")
                    assert await leaves.ended() == b"+OK\r\n"
            await subscribed_only_to_shared(three)


async def subscribed_only_to_shared(worker: WorkerHarness) -> None:
    for group in range(1, len(worker.servers) + 1):
        async with worker.direct(group) as direct:

            async def seen(direct: redis.asyncio.Redis = direct) -> bool:
                channels = await direct.pubsub_channels()
                shards = await direct.execute_command("PUBSUB", "SHARDCHANNELS")
                return channels == [b"shared"] and shards == [] and await direct.pubsub_numpat() == 0

            await until(seen)


async def test_subscribing_again_while_the_last_one_leaves(three: WorkerHarness) -> None:
    async with three.client() as client, client.pubsub() as stays, Wire(three.settings.listen) as publisher:
        for number in range(50):
            channel = f"channel-{number}"
            async with Wire(three.settings.listen, 3) as leaves:
                await leaves.say("SUBSCRIBE", channel)
                leaves.send("UNSUBSCRIBE", channel)
                await stays.subscribe(channel)
                await gather_confirmations(stays, 1)
                assert await publisher.say("PUBLISH", channel, number) == b":1\r\n"
                assert await gather(stays, "message", 1) == [(channel.encode(), b"%d" % number)]
                await stays.unsubscribe(channel)
                await gather_confirmations(stays, 1)


# -- limits ------------------------------------------------------------------------------------------------


async def test_a_thousand_subscribers_of_one_channel(three: WorkerHarness) -> None:
    wires = [Wire(three.settings.listen, 2 + number % 2) for number in range(1000)]
    await asyncio.gather(*(wire.__aenter__() for wire in wires))
    confirmations = await asyncio.gather(*(wire.say("SUBSCRIBE", "crowd") for wire in wires))
    assert all(found.endswith(b"$9\r\nsubscribe\r\n$5\r\ncrowd\r\n:1\r\n") for found in confirmations)
    async with three.client() as client:
        assert await client.pubsub_numsub("crowd") == [(b"crowd", 1000)]
        for number in range(10):
            await client.publish("crowd", number)
    for wire in wires:
        kind = b">" if wire.protocol == 3 else b"*"
        expected = b"".join(
            b"%b3\r\n$7\r\nmessage\r\n$5\r\ncrowd\r\n$1\r\n%d\r\n" % (kind, number) for number in range(10)
        )
        assert await wire.read(len(expected)) == expected
        wire.writer.close()


async def test_a_subscriber_that_does_not_read_is_closed_and_the_others_go_on(start_worker: StartWorker) -> None:
    worker = await start_worker(session_output_pause_bytes=1_000_000, session_output_limit_bytes=4_000_000)
    async with Wire(worker.settings.listen) as idle, worker.client() as client, client.pubsub() as reads:
        await idle.say("SUBSCRIBE", "channel")
        # The test's own side takes nothing more from the socket.
        idle.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await reads.subscribe("channel")
        await gather_confirmations(reads, 1)
        block = b"x" * 100_000
        sent = 0

        async def closed() -> bool:
            nonlocal sent
            await client.publish("channel", block)
            sent += 1
            await gather(reads, "message", 1)
            return await client.pubsub_numsub("channel") == [(b"channel", 1)]

        await until(closed)
        # What the kernel took, and the limit.
        assert 40 <= sent < 400
        assert await client.ping()


async def test_limits_of_subscriptions(start_worker: StartWorker) -> None:
    worker = await start_worker(session_max_subscriptions=5, max_subscriptions=8)
    of_session = b"-ERR max number of subscriptions reached: 5 for a session (setting session_max_subscriptions)\r\n"
    of_worker = b"-ERR max number of subscriptions reached: 8 for a worker of the proxy (setting max_subscriptions)\r\n"
    async with Wire(worker.settings.listen) as one, Wire(worker.settings.listen) as two:
        await one.say("SUBSCRIBE", "1", "2", "3")
        assert await one.say("PSUBSCRIBE", "4", "5", "6") == of_session
        assert await one.say("SSUBSCRIBE", b"x" * 2048) == of_session
        await one.say("PSUBSCRIBE", "4", "5")
        assert (await one.say("SUBSCRIBE", "1", "2")).startswith(b"*3\r\n$9\r\nsubscribe\r\n$1\r\n1\r\n:5\r\n")
        assert await two.say("SUBSCRIBE", "a", "b", "c", "d") == of_worker
        await two.say("SUBSCRIBE", "a", "b", "c")
        await one.say("UNSUBSCRIBE", "1", "2")
        assert b"$1\r\nd\r\n:4\r\n" in await two.say("SUBSCRIBE", "d")
    async with Wire(worker.settings.listen) as three:

        async def room() -> bool:
            return (await three.say("SUBSCRIBE", "1", "2", "3", "4", "5")).startswith(b"*3\r\n$9\r\nsubscribe")

        await until(room)


async def test_a_subscriber_is_not_idle(start_worker: StartWorker) -> None:
    worker = await start_worker(session_idle_seconds=0.5)
    async with (
        Wire(worker.settings.listen) as two,
        Wire(worker.settings.listen, 3) as three,
        Wire(worker.settings.listen) as idle,
    ):
        await two.say("SUBSCRIBE", "x")
        await three.say("PSUBSCRIBE", "x")
        await idle.say("GET", "x")
        # Until the worker has closed a session that only waits.
        assert await idle.ended() == b""
        assert await two.heard() == await three.heard() == b""
