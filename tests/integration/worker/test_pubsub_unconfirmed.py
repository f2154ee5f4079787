"""Pub/sub by clients that do not wait for the confirmation of SUBSCRIBE: what they hear, and in which order.

A server that says nothing keeps confirmations back, for as long as a test wants.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio

from proxy.engine.backend import command
from slotferry.redis_server import RedisServer
from slots.reserved import RESERVED
from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_pubsub_servers import frozen, sleeping, until
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
OLD = "old"
"""A channel with an old subscription, which shows what has arrived."""


def bulks(*words: str) -> bytes:
    return b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


def confirmation(protocol: int, word: str, name: str, count: int) -> bytes:
    return b"%b3\r\n%b:%d\r\n" % (b">" if protocol == 3 else b"*", bulks(word, name), count)


def message(protocol: int, *words: str) -> bytes:
    return b"%b%d\r\n%b" % (b">" if protocol == 3 else b"*", len(words), bulks(*words))


@pytest.fixture
async def two(start_worker: StartWorker) -> WorkerHarness:
    """A worker with two servers. All slots are at the first, and what the second says is waited for."""
    return await start_worker(servers=2, backend_reply_seconds=60)


async def published(worker: WorkerHarness, listener: Wire, *requests: tuple[str, ...]) -> None:
    """Publish at the first server; the worker has all of it when this returns."""
    async with worker.direct(1) as direct:
        for words in requests:
            assert await direct.execute_command(*words) == 1
        await direct.publish(OLD, "done")
    done = message(listener.protocol, "message", OLD, "done")
    assert await listener.read(len(done)) == done


KINDS = [
    ("SUBSCRIBE", ("PUBLISH", "new", "x"), ("message", "new", "x")),
    ("PSUBSCRIBE", ("PUBLISH", "new", "x"), ("pmessage", "new", "new", "x")),
    ("SSUBSCRIBE", ("SPUBLISH", "new", "x"), ("smessage", "new", "x")),
]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(("word", "request_", "heard"), KINDS)
async def test_what_is_published_before_the_confirmation_comes_right_behind_it(
    two: WorkerHarness, word: str, request_: tuple[str, ...], heard: tuple[str, ...], protocol: int, shared: bool
) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, protocol) as wire:
        await old.say("SUBSCRIBE", OLD)
        if shared:
            async with Wire(two.settings.listen, 3) as other:
                await other.say(word, "new")
                await expect_behind(two, old, wire, word, request_, heard, confirmed_at_first=False)
        else:
            await expect_behind(two, old, wire, word, request_, heard, confirmed_at_first=True)


async def expect_behind(
    two: WorkerHarness,
    old: Wire,
    wire: Wire,
    word: str,
    request_: tuple[str, ...],
    heard: tuple[str, ...],
    confirmed_at_first: bool,
) -> None:
    async with frozen(two, 2):
        wire.send(word, "new")
        await taken(two, wire)
        if confirmed_at_first:
            await until(lambda: has(two, word, "new"))
        await published(two, old, request_, request_)
    expected = confirmation(wire.protocol, word.lower(), "new", 1) + message(wire.protocol, *heard) * 2
    assert await wire.read(len(expected)) == expected
    await published(two, old, request_)
    once = message(wire.protocol, *heard)
    assert await wire.read(len(once)) == once
    assert await wire.heard() == b""


async def has(worker: WorkerHarness, word: str, name: str) -> bool:
    """Whether the worker is subscribed at the first server."""
    async with worker.direct(1) as direct:
        if word == "PSUBSCRIBE":
            return int(await direct.pubsub_numpat()) == 1
        kind = "SHARDNUMSUB" if word == "SSUBSCRIBE" else "NUMSUB"
        return bool((await direct.execute_command("PUBSUB", kind, name))[1] == 1)


async def has_not(worker: WorkerHarness, word: str, name: str) -> bool:
    return not await has(worker, word, name)


async def taken(worker: WorkerHarness, *wires: Wire) -> None:
    """The worker has read all that was sent to it."""
    for wire in wires:
        await wire.writer.drain()
    async with Wire(worker.settings.listen) as later:
        # Its sockets are read in the order in which they became ready, and a server's answer is needed in between.
        for _ in range(3):
            await later.say("SET", "key", "value")


async def test_what_is_sent_in_one_go_is_at_the_servers_before_any_of_it_is_confirmed(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as wire, two.direct(1) as direct:
        await wire.say("SUBSCRIBE", "gone")
        async with frozen(two, 2):
            for number in range(20):
                wire.send("SUBSCRIBE", f"channel-{number}")
            wire.send("UNSUBSCRIBE", "gone")
            wire.send("PSUBSCRIBE", "p*")
            wire.send("SSUBSCRIBE", "shard")
            wire.send("SUBSCRIBE", "channel-3")

            async def all_there() -> bool:
                channels = {name for name in await direct.pubsub_channels() if not name.startswith(RESERVED)}
                shards = await direct.execute_command("PUBSUB", "SHARDCHANNELS")
                patterns = await direct.pubsub_numpat()
                return (len(channels), b"gone" in channels, shards, patterns) == (20, False, [b"shard"], 1)

            await until(all_there)
        expected = [confirmation(3, "subscribe", f"channel-{number}", number + 2) for number in range(20)]
        expected += [
            confirmation(3, "unsubscribe", "gone", 20),
            confirmation(3, "psubscribe", "p*", 21),
            confirmation(3, "ssubscribe", "shard", 1),
            confirmation(3, "subscribe", "channel-3", 21),
        ]
        assert await wire.heard() == b"".join(expected)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_joining_and_leaving_in_one_go(two: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    said: list[tuple[str, ...]] = [
        ("SUBSCRIBE", "new"),
        ("UNSUBSCRIBE", "new"),
        ("SUBSCRIBE", "new", "newer", "new"),
        ("UNSUBSCRIBE", "newer"),
        ("UNSUBSCRIBE",),
        ("PSUBSCRIBE", "n*"),
        ("SUBSCRIBE", "new"),
        ("PUNSUBSCRIBE", "none"),
        ("PUNSUBSCRIBE",),
        ("UNSUBSCRIBE", "newer", "new"),
    ]
    async with Wire(two.settings.listen, protocol) as ours, Wire(plain.address, protocol) as theirs:
        for _ in range(30):
            for wire in (ours, theirs):
                # In one piece.
                wire.writer.write(b"".join(command(words) for words in said))
            assert await ours.heard() == await theirs.heard()
        for words in said:
            assert await ours.say(*words) == await theirs.say(*words), words


async def test_a_channel_that_is_left_and_joined_again_in_one_go(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as wire, two.direct(1) as direct:
        await wire.say("SUBSCRIBE", "new")
        for _ in range(10):
            wire.writer.write(command(("UNSUBSCRIBE", "new")) + command(("SUBSCRIBE", "new")))
            await wire.heard()
            assert await direct.publish("new", "x") == 1
            heard = message(3, "message", "new", "x")
            assert await wire.read(len(heard)) == heard
        assert await wire.heard() == b""


async def test_a_channel_that_is_left_before_it_is_confirmed(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(two, 2):
            wire.send("SUBSCRIBE", "new")
            await until(lambda: has(two, "SUBSCRIBE", "new"))
            await published(two, old, ("PUBLISH", "new", "x"))
            wire.send("UNSUBSCRIBE", "new")
            # Its end does not wait for the confirmation of its beginning.
            await until(lambda: has_not(two, "SUBSCRIBE", "new"))
        assert await wire.heard() == b"".join(
            [
                confirmation(3, "subscribe", "new", 1),
                message(3, "message", "new", "x"),
                confirmation(3, "unsubscribe", "new", 0),
            ]
        )
        assert not await has(two, "SUBSCRIBE", "new")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_channels_that_are_joined_left_and_joined_again_one_after_the_other(
    two: WorkerHarness, protocol: int
) -> None:
    """As Celery does with the results of a group: it waits for no confirmation, and publishes elsewhere meanwhile."""
    names = [f"result-{number}" for number in range(5)]
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, protocol) as wire:
        await old.say("SUBSCRIBE", OLD)
        await wire.say("SUBSCRIBE", "confirmed")
        async with frozen(two, 2):
            for name in ("confirmed", *names):
                for word in ("SUBSCRIBE",) * (name in names) + ("UNSUBSCRIBE", "SUBSCRIBE"):
                    wire.send(word, name)
            # The last of them is at a server that answers, though none of them is confirmed.
            await until(lambda: has(two, "SUBSCRIBE", names[-1]))
            await published(two, old, *[("PUBLISH", name, "x") for name in ("confirmed", *names)])
        expected = [confirmation(protocol, "unsubscribe", "confirmed", 0)]
        expected.append(confirmation(protocol, "subscribe", "confirmed", 1))
        for count, name in enumerate(names, 1):
            expected.append(confirmation(protocol, "subscribe", name, count + 1))
            expected.append(confirmation(protocol, "unsubscribe", name, count))
            expected.append(confirmation(protocol, "subscribe", name, count + 1))
        expected += [message(protocol, "message", name, "x") for name in ("confirmed", *names)]
        assert await wire.heard() == b"".join(expected)
        await published(two, old, ("PUBLISH", names[0], "y"))
        assert await wire.heard() == message(protocol, "message", names[0], "y")


async def test_what_comes_until_the_end_is_confirmed_comes_before_that(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with Wire(two.settings.listen, 3) as other:
            await other.say("SUBSCRIBE", "new")
            async with frozen(two, 2):
                wire.send("SUBSCRIBE", "new")
                wire.send("UNSUBSCRIBE", "new")
                await taken(two, wire)
                await published(two, old, ("PUBLISH", "new", "x"))
            assert await wire.heard() == b"".join(
                [
                    confirmation(3, "subscribe", "new", 1),
                    message(3, "message", "new", "x"),
                    confirmation(3, "unsubscribe", "new", 0),
                ]
            )


async def test_who_joined_again_leaves_again_once_its_first_end_is_confirmed(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(two, 2):
            for word in ("SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE"):
                wire.send(word, "new")
            await taken(two, wire)
            await published(two, old, ("PUBLISH", "new", "x"))
        joined, left = confirmation(3, "subscribe", "new", 1), confirmation(3, "unsubscribe", "new", 0)
        parts = [joined, left, joined, message(3, "message", "new", "x"), left, joined]
        assert await wire.heard() == b"".join(parts)
        await published(two, old, ("PUBLISH", "new", "y"))
        assert await wire.heard() == message(3, "message", "new", "y")


async def test_other_requests_go_on_behind_the_confirmation(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        await wire.say("SET", "key", "value")
        async with frozen(two, 2):
            wire.send("GET", "key")
            wire.send("SUBSCRIBE", "new")
            wire.send("GET", "key")
            wire.send("NOSUCH", "x")
            wire.send("BLPOP", "none", "0.01")
            wire.send("PUBLISH", "new", "own")
            wire.send("HELLO", 2)
            wire.send("GET", "key")
            await until(lambda: has(two, "SUBSCRIBE", "new"))
            await published(two, old, ("PUBLISH", "new", "x"))
        value, error = bulks("value"), b"-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n"
        expected = [value, confirmation(3, "subscribe", "new", 1), message(3, "message", "new", "x"), value, error]
        start = b"".join(expected)
        assert await wire.read(len(start)) == start
        rest = await wire.heard()
        # Its own message comes by another connection than the replies: before, amid or after them.
        own = [message(protocol, "message", "new", "own") for protocol in (3, 2)]
        if not any(form in rest for form in own):
            assert await wire.read(len(own[1])) == own[1]
        for form in own:
            rest = rest.replace(form, b"", 1)
        assert rest.startswith(b"_\r\n:1\r\n*14\r\n")
        # RESP2 by now: only subscribing is allowed.
        assert rest.endswith(b"RESET are allowed in this context\r\n")


async def test_reset_while_a_subscription_is_not_confirmed(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 2) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(two, 2):
            wire.send("SUBSCRIBE", "new")
            wire.send("RESET")
            wire.send("GET", "key")
            await until(lambda: has(two, "SUBSCRIBE", "new"))
            await published(two, old, ("PUBLISH", "new", "x"))
        parts = [confirmation(2, "subscribe", "new", 1), message(2, "message", "new", "x"), b"+RESET\r\n$-1\r\n"]
        assert await wire.heard() == b"".join(parts)

        async def left() -> bool:
            return not await has(two, "SUBSCRIBE", "new")

        await until(left)


@pytest.mark.parametrize("request_", ["", "QUIT"])
async def test_a_client_that_goes_before_its_confirmation_leaves_nothing_behind(
    two: WorkerHarness, request_: str
) -> None:
    async with Wire(two.settings.listen, 3) as old:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(two, 2), Wire(two.settings.listen, 3) as wire:
            wire.send("SUBSCRIBE", "new", OLD)
            wire.send("PSUBSCRIBE", "new*")
            if request_:
                wire.send(request_)
            await until(lambda: has(two, "SUBSCRIBE", "new"))
        await nothing_left(two, [OLD.encode()])
        await published(two, old)


async def nothing_left(worker: WorkerHarness, but: list[bytes]) -> None:
    """The worker is subscribed to nothing else at the servers."""
    for group in (1, 2):
        async with worker.direct(group) as direct:

            async def left(direct: redis.asyncio.Redis = direct) -> bool:
                return await direct.pubsub_channels() == but and await direct.pubsub_numpat() == 0

            await until(left)


async def test_client_reply_off_keeps_back_neither_confirmations_nor_messages(two: WorkerHarness) -> None:
    async with Wire(two.settings.listen, 3) as old, Wire(two.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(two, 2):
            wire.send("CLIENT", "REPLY", "OFF")
            wire.send("SUBSCRIBE", "new")
            wire.send("SUBSCRIBE", "new")
            wire.send("GET", "key")
            wire.send("CLIENT", "REPLY", "ON")
            wire.send("CLIENT", "REPLY", "SKIP")
            wire.send("SUBSCRIBE", "newer")
            wire.send("GET", "key")
            await until(lambda: has(two, "SUBSCRIBE", "new"))
            await published(two, old, ("PUBLISH", "new", "x"))
        first, second = confirmation(3, "subscribe", "new", 1), confirmation(3, "subscribe", "newer", 2)
        # The second confirmation needs nothing of the servers; the message came after both requests.
        assert await wire.heard() == b"".join(
            [first, first, message(3, "message", "new", "x"), b"+OK\r\n", second, b"_\r\n"]
        )


async def test_more_than_a_session_may_be_owed_ends_it(start_worker: StartWorker) -> None:
    worker = await start_worker(
        servers=2, session_output_pause_bytes=100_000, session_output_limit_bytes=1_000_000, backend_reply_seconds=60
    )
    async with Wire(worker.settings.listen, 3) as old, Wire(worker.settings.listen, 3) as wire:
        await old.say("SUBSCRIBE", OLD)
        async with frozen(worker, 2):
            wire.send("SUBSCRIBE", "new")
            await until(lambda: has(worker, "SUBSCRIBE", "new"))
            text = "x" * 100_000
            await published(worker, old, *[("PUBLISH", "new", text)] * 9)
            async with worker.direct(1) as direct:
                for _ in range(2):
                    await direct.publish("new", text)
            # bounded: without a confirmation, as it would be closed if it did not read.
            assert await wire.ended() == b""
            await published(worker, old)
        assert (await old.say("SUBSCRIBE", "new")).startswith(b">3\r\n$9\r\nsubscribe")


async def test_channels_that_are_left_count_until_that_is_confirmed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, session_max_subscriptions=5, backend_reply_seconds=60)
    async with Wire(worker.settings.listen, 3) as wire:
        async with frozen(worker, 2):
            requests = (
                *(("SUBSCRIBE", "1", "2", "3"), ("UNSUBSCRIBE", "1", "2", "3"), ("SUBSCRIBE", "4", "5")),
                *(("SUBSCRIBE", "6", "7", "8"), ("UNSUBSCRIBE", "5"), ("SUBSCRIBE", "9")),
            )
            for request in requests:
                wire.send(*request)
            await until(lambda: has(worker, "SUBSCRIBE", "4"))
            await taken(worker, wire)
            # bounded: what a session leaves is kept until then.
            assert await has_not(worker, "SUBSCRIBE", "6")
        steps = [(1, "123"), (-1, "123"), (1, "45"), (1, "678"), (-1, "5"), (1, "9")]
        count, expected = 0, []
        for step, names in steps:
            for name in names:
                count += step
                expected.append(confirmation(3, "subscribe" if step > 0 else "unsubscribe", name, count))
        assert await wire.heard() == b"".join(expected)
        # Nothing else is counted.
        await wire.say("UNSUBSCRIBE")
        assert b"-" not in await wire.say("SUBSCRIBE", "a", "b", "c", "d", "e")
        assert (await wire.say("SUBSCRIBE", "f")).startswith(b"-ERR max number of subscriptions reached: 5")


@pytest.mark.parametrize("shared", [False, True])
async def test_what_the_worker_publishes_after_it_has_taken_the_subscription_is_heard(
    start_worker: StartWorker, shared: bool
) -> None:
    """Both requests are there when the worker reads them, and the client does not wait for a confirmation."""
    worker = await start_worker(servers=3)
    await worker.apply([Slot(index, index % 3 + 1) for index in range(1024)])
    channels = [f"channel-{number}" for number in range(60)]
    assert {slot_of(channel) % 3 for channel in channels} == {0, 1, 2}
    address = worker.settings.listen
    async with Wire(address, 3) as other, Wire(address, 3) as wire, Wire(address) as publisher:
        if shared:
            await other.say("SUBSCRIBE", *channels)
        # The connections that messages are published over are there.
        for channel in channels[:10]:
            await publisher.say("PUBLISH", channel, "before")
        for number, channel in enumerate(channels, 1):
            with sleeping(worker):
                wire.send("SUBSCRIBE", channel)
                publisher.send("PUBLISH", channel, "x")
            expected = confirmation(3, "subscribe", channel, number) + message(3, "message", channel, "x")
            assert await wire.read(len(expected)) == expected
        count = b":1\r\n" * len(channels)
        assert await publisher.read(len(count)) == count


async def test_a_subscription_that_many_sessions_want_at_once(two: WorkerHarness) -> None:
    await two.apply([Slot(index, index % 2 + 1) for index in range(1024)])
    wires = [Wire(two.settings.listen, 2 + number % 2) for number in range(200)]
    await asyncio.gather(*(wire.__aenter__() for wire in wires))
    async with Wire(two.settings.listen) as publisher:
        with sleeping(two):
            for wire in wires:
                wire.send("SUBSCRIBE", "crowd")
        await taken(two, *wires)
        await publisher.say("PUBLISH", "crowd", "x")
    for wire in wires:
        heard = confirmation(wire.protocol, "subscribe", "crowd", 1) + message(wire.protocol, "message", "crowd", "x")
        assert await wire.read(len(heard)) == heard
        wire.writer.close()
    await nothing_left(two, [])
