"""PUBLISH with ``publish_counts_clients``: the request's way, and its reply where something stands in it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

from proxy.commands.pubsub import receivers
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import LIMIT, Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]


async def test_replies_come_in_the_order_of_requests(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, publish_counts_clients=True)
    await worker.apply([Slot(index, index % 2 + 1) for index in range(1024)])
    listen = worker.settings.listen
    async with Wire(listen) as one, Wire(listen) as two, Wire(listen, 3) as three, Wire(listen) as publisher:
        for hears in (one, two, three):
            await hears.say("SUBSCRIBE", "a", "b")
        await three.say("PSUBSCRIBE", "[ab]")
        # Channels of both servers, and keys, in one go.
        asked = [("PUBLISH", "a", "1"), ("PUBLISH", "b", "2"), ("GET", "k"), ("publish", "c", "3"), ("PUBLISH", "a")]
        for request in (*asked, ("SET", "k", "v"), ("PUBLISH", "a", "x" * 1_000_000), ("GET", "k")):
            publisher.send(*request)
        assert await publisher.heard() == (
            b":4\r\n:4\r\n$-1\r\n:0\r\n-ERR wrong number of arguments for 'publish' command\r\n+OK\r\n:4\r\n$1\r\nv\r\n"
        )
        # Behind its own subscription, and with the message before the reply, as from Redis.
        publisher.protocol = 3
        await publisher.say("HELLO", 3)
        publisher.send("SUBSCRIBE", "a")
        publisher.send("PSUBSCRIBE", "*")
        publisher.send("PUBLISH", "a", "mine")
        publisher.send("UNSUBSCRIBE", "a")
        publisher.send("PUBLISH", "a", "again")
        found = await publisher.heard()
        assert [line for line in found.split(b"\r\n") if line in (b":5", b":6")] == [b":6", b":5"]
        await publisher.say("RESET")
        # Without replies.
        publisher.protocol = 2
        for request in (("CLIENT", "REPLY", "SKIP"), ("PUBLISH", "a", "m"), ("CLIENT", "REPLY", "OFF")):
            publisher.send(*request)
        for request in (("PUBLISH", "a", "m"), ("CLIENT", "REPLY", "ON"), ("PUBLISH", "b", "m")):
            publisher.send(*request)
        assert await publisher.heard() == b"+OK\r\n:4\r\n"
        refused = await publisher.say("PUBLISH", "__slotferry:more:0:x", "m")
        assert refused.startswith(b"-ERR keys whose names begin with __slotferry:")
        async with worker.direct(1) as server, worker.direct(2) as other:
            for direct in (server, other):
                await direct.execute_command("ACL", "SETUSER", "default", "-pubsub")
            refused = await publisher.say("PUBLISH", "a", "m")
            assert refused.startswith(b"-ERR the server refuses this or PUBSUB")
            for direct in (server, other):
                await direct.execute_command("ACL", "SETUSER", "default", "+pubsub")
        # A transaction and a script publish where they run: the server's number, of workers.
        for request in (("MULTI",), ("PUBLISH", "a", "m"), ("EXEC",)):
            publisher.send(*request)
        assert await publisher.heard() == b"+OK\r\n+QUEUED\r\n*1\r\n:2\r\n"
        assert await publisher.say("EVAL", "return redis.call('publish', 'a', 'm')", 0) == b":2\r\n"


async def test_a_stranger_at_the_server_counts_as_one_beside_new_patterns(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, publish_counts_clients=True)
    listen = worker.settings.listen
    async with Wire(listen) as one, Wire(listen) as two, Wire(listen) as publisher:
        async with Wire(worker.servers[0].address) as stranger, asyncio.timeout(LIMIT):
            await stranger.say("PSUBSCRIBE", "n*")
            assert await publisher.say("PUBLISH", "news", "m") == b":1\r\n"
            for hears in (one, two):
                await hears.say("PSUBSCRIBE", "ne*")
            # A worker that cannot explain what the server counts does not ask at once each time.
            while (told := await publisher.say("PUBLISH", "news", "m")) != b":3\r\n":
                assert told == b":2\r\n"
                await asyncio.sleep(receivers.UNEXPLAINED_SECONDS / 10)
        for hears in (one, two):
            await hears.say("PUNSUBSCRIBE")
        async with asyncio.timeout(LIMIT):
            # The server may still have to see that the stranger has gone.
            while (told := await publisher.say("PUBLISH", "new", "m")) != b":0\r\n":
                assert told == b":1\r\n"


async def test_clients_that_want_no_replies_cost_servers_no_count(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, publish_counts_clients=True)
    listen = worker.settings.listen
    async with Wire(listen) as hears, Wire(listen) as publisher, worker.direct(1) as server:
        await hears.say("SUBSCRIBE", "a")
        for request in (("CLIENT", "REPLY", "SKIP"), ("PUBLISH", "a", "1"), ("CLIENT", "REPLY", "OFF")):
            publisher.send(*request)
        for request in (("PUBLISH", "a", "2"), ("SPUBLISH", "a", "3"), ("CLIENT", "REPLY", "ON")):
            publisher.send(*request)
        assert await publisher.heard() == b"+OK\r\n"
        heard = await hears.heard()
        assert [line for line in heard.split(b"\r\n") if line in (b"1", b"2", b"3")] == [b"1", b"2"]
        asked = await server.info("commandstats")
        assert asked["cmdstat_publish"]["calls"] == 2
        assert not any(name.startswith("cmdstat_pubsub") for name in asked)
        assert await publisher.say("PUBLISH", "a", "4") == b":1\r\n"
        assert any(name.startswith("cmdstat_pubsub") for name in await server.info("commandstats"))


async def test_a_server_that_lists_nothing_takes_no_pattern_away(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, publish_counts_clients=True)
    await worker.apply([Slot(index, index % 2 + 1) for index in range(1024)])
    at_one = next(name for name in map("n{}".format, count()) if slot_of(name) % 2 == 0)
    at_two = next(name for name in map("x{}".format, count()) if slot_of(name) % 2 == 1)
    listen = worker.settings.listen
    async with Wire(listen) as one, Wire(listen) as two, Wire(listen) as publisher:
        for hears in (one, two):
            await hears.say("PSUBSCRIBE", "n*")
        assert await publisher.say("PUBLISH", at_one, "m") == b":2\r\n"
        async with Wire(worker.servers[1].address) as stranger, worker.direct(2) as server:
            await stranger.say("PSUBSCRIBE", "x*")
            await server.execute_command("ACL", "SETUSER", "default", "-pubsub", "+pubsub|numsub")
            assert await publisher.say("PUBLISH", at_two, "m") == b":1\r\n"
            assert await publisher.say("PUBLISH", at_one, "m") == b":2\r\n"


async def test_bounded_so_many_patterns_are_asked_for_and_listed(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, publish_counts_clients=True)
    listen = worker.settings.listen
    matching = [f"c{'*' * number}" for number in range(1, receivers.MOST_MATCHING + 6)]
    async with Wire(listen) as one, Wire(listen) as two, Wire(listen) as publisher:
        for hears in (one, two):
            await hears.say("PSUBSCRIBE", *matching, *(f"d{number}" for number in range(receivers.MOST_LISTED)), "e*")
        # The list has those that come first by name. What it does not have is looked for in vain, last of all.
        assert await publisher.say("PUBLISH", "d1", "m") == b":2\r\n"
        for _ in range(2):
            assert await publisher.say("PUBLISH", "c", "m") == b":%d\r\n" % (2 * len(matching) - 5)
        assert await publisher.say("PUBLISH", "e", "m") == b":1\r\n"


async def test_bounded_a_long_list_is_seldom_asked_for(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, publish_counts_clients=True)
    listen = worker.settings.listen
    async with Wire(listen) as hears, Wire(listen) as publisher, worker.direct(1) as server:
        await hears.say("PSUBSCRIBE", *(f"d{number}" for number in range(receivers.MOST_LISTED)))
        began = time.monotonic()
        for number in range(20):
            await hears.say("PSUBSCRIBE", f"a{number}")
            assert await publisher.say("PUBLISH", f"a{number}", "m") == b":1\r\n"
        seconds = time.monotonic() - began
        asked = (await server.info("commandstats"))["cmdstat_pubsub|channels"]["calls"]
        assert 1 <= asked <= 1 + seconds / receivers.UNEXPLAINED_SECONDS


async def test_a_locked_slot_holds_it_and_the_number_is_that_of_later(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, publish_counts_clients=True)
    listen, slot = worker.settings.listen, slot_of("news")
    async with Wire(listen) as one, Wire(listen) as two, Wire(listen) as publisher:
        for state in (SlotState.PREPARING, SlotState.PREPARED):
            await worker.act([slot], state, 1, 2)
        publisher.send("PUBLISH", "news", "m")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await publisher.reader.readexactly(1)
        for hears in (one, two):
            await hears.say("SUBSCRIBE", "news")
        await worker.act([slot], SlotState.MIGRATING, 1, 2)
        assert await publisher.heard() == b":2\r\n"
        async with worker.direct(2) as target:
            assert (await target.info("commandstats"))["cmdstat_publish"]["calls"] == 1
