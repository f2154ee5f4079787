"""MULTI, EXEC and DISCARD: as one Redis, and in one piece whatever happens to the slot."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

import pytest
import redis.exceptions

from proxy.engine.refusals import crossslot
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import frozen, until
from tests.integration.worker.transactionconversations import ADD, CONVERSATIONS

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "{t}key"
SLOT = slot_of(KEY)
OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """One worker with two servers, and a third that is just a Redis server."""
    harness = await start_worker(servers=3)
    await harness.apply([Slot(index, 2) for index in range(512, 1024)])
    return harness


@pytest.mark.parametrize("protocol", [2, 3])
async def test_as_one_redis(worker: WorkerHarness, protocol: int) -> None:
    for name, requests in CONVERSATIONS.items():
        expected = await converse(worker.servers[2].address, requests, protocol)
        assert await converse(worker.settings.listen, requests, protocol) == expected, name
        for group in (1, 2, 3):
            async with worker.direct(group) as direct:
                await direct.flushall()
        assert await converse_at_once(worker.settings.listen, requests, protocol) == expected, name
        for group in (1, 2, 3):
            async with worker.direct(group) as direct:
                await direct.flushall()
                await direct.script_flush()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (("SET", OTHER, "1"), crossslot(KEY.encode(), slot_of(KEY), OTHER.encode(), slot_of(OTHER))),
        (("MGET", KEY, OTHER), crossslot(KEY.encode(), slot_of(KEY), OTHER.encode(), slot_of(OTHER))),
        (("SUBSCRIBE", "x"), b"-ERR SUBSCRIBE is refused by Slotferry within MULTI: it is for the proxy"),
        (("CLIENT", "ID"), b"-ERR CLIENT ID is refused by Slotferry within MULTI: it is for the proxy"),
        (("DBSIZE",), b"-ERR DBSIZE is refused by Slotferry within MULTI: it is for every server"),
        (("SORT", KEY, "BY", "w_*"), b"-ERR BY option of SORT denied in cluster mode when keys formed by the pattern"),
        (("SWAPDB", 0, 1), b"-ERR SWAPDB is refused by Slotferry:"),
    ],
)
async def test_what_no_proxy_can_do_is_refused_at_once_and_spoils(
    worker: WorkerHarness, request_: Request, error: bytes
) -> None:
    requests: list[Request] = [("MULTI",), ("SET", KEY, "1"), request_, ("SET", KEY, "2"), ("EXEC",), ("GET", KEY)]
    said = await converse(worker.settings.listen, requests)
    assert said[2].startswith(error)
    assert said[3:] == [
        b"+QUEUED\r\n",
        b"-EXECABORT Transaction discarded because of previous errors.\r\n",
        b"$-1\r\n",
    ]


async def test_a_channel_is_no_reason_to_refuse(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        async with client.pubsub() as listener:
            channels = [f"c{number}" for number in range(4)]
            await listener.subscribe(*channels)
            for channel in channels:
                confirmation = await listener.get_message(timeout=10)
                assert confirmation is not None
                assert confirmation["channel"] == channel.encode()
            async with client.pipeline() as pipe:
                pipe.set(KEY, "1")
                for channel in channels:
                    pipe.publish(channel, "hello")
                assert await pipe.execute() == [True, 1, 1, 1, 1]
            heard = [await listener.get_message(timeout=10) for _ in channels]
        assert [
            message["channel"].decode() for message in heard if message and message["type"] == "message"
        ] == channels


async def test_nothing_comes_between(worker: WorkerHarness) -> None:
    """All sessions share one connection to the server, and each sends its commands one by one."""

    async def add(number: int) -> None:
        async with Talk(worker.settings.listen) as talk:
            for _ in range(30):
                await talk.ask("MULTI")
                for _ in range(5):
                    await talk.ask("RPUSH", KEY, number)
                await talk.ask("EXEC")

    async with worker.client() as client:
        await asyncio.gather(*(add(number) for number in range(8)))
        seen = await client.lrange(KEY, 0, -1)
        assert len(seen) == 8 * 30 * 5
        assert all(len(set(seen[start : start + 5])) == 1 for start in range(0, len(seen), 5))


async def test_a_transaction_is_limited_in_bytes(start_worker: StartWorker) -> None:
    worker = await start_worker(session_max_request_bytes=10_000)
    said = await converse(
        worker.settings.listen,
        [("MULTI",), ("SET", KEY, "x" * 6000), ("SET", KEY, "y" * 6000), ("EXEC",), ("GET", KEY)],
    )
    assert said[1] == b"+QUEUED\r\n"
    assert b"takes more than 10000 bytes" in said[2]
    assert said[3].startswith(b"-EXECABORT")
    said = await converse(worker.settings.listen, [("MULTI",), *[("PING",)] * 100])
    assert b"takes more than" in b"".join(said)


async def test_a_locked_slot_holds_exec_and_nothing_else(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as bystander, Talk(worker.settings.listen) as talk, worker.direct(1) as source:
        await worker.act([SLOT], SlotState.PREPARED)
        for words in (("MULTI",), ("SET", KEY, "1"), ("INCR", KEY)):
            await talk.ask(*words)
        talk.send("EXEC")
        talk.send("GET", OTHER)
        assert await bystander.set(OTHER, "x")
        assert await source.get(KEY) is None
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await talk.reply() == b"*2\r\n+OK\r\n:2\r\n"
        assert await talk.reply() == b"$1\r\nx\r\n"
        assert await source.get(KEY) is None


async def test_absent_first_every_key_moves_before_exec(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client:
        await client.mset({"{t}a": "1", "{t}b": "2", "{t}c": "3"})
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        async with client.pipeline() as pipe:
            pipe.incr("{t}a")
            pipe.eval("return redis.call('GET', KEYS[1])", 1, "{t}b")
            pipe.rename("{t}c", "{t}d")
            assert await pipe.execute() == [2, b"2", True]
        assert await worker.keys(1) == []
        assert sorted(await worker.keys(2)) == [b"{t}a", b"{t}b", b"{t}d"]


@pytest.mark.long
async def test_an_exec_that_cannot_be_sent_ends_its_transaction(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.2, move_seconds=0.3, backend_connect_seconds=1.0)
    async with Talk(worker.settings.listen) as talk:
        await worker.act([SLOT], SlotState.PREPARED)
        for after in (("GET", OTHER), ("DISCARD",), ("WATCH", OTHER), ("MULTI",), ("NOSUCH",)):
            await talk.ask("MULTI")
            await talk.ask("SET", KEY, "1")
            assert (await talk.ask("EXEC")).startswith(b"-TRYAGAIN ")
            said = await talk.ask(*after)
            if after == ("DISCARD",):
                assert said == b"-ERR DISCARD without MULTI\r\n"
            elif after == ("NOSUCH",):
                assert said.startswith(b"-ERR unknown command")
            else:
                assert said in (b"$-1\r\n", b"+OK\r\n")
            await talk.ask("UNWATCH")
            if after != ("MULTI",):
                assert await talk.ask("GET", OTHER) == b"$-1\r\n"
            else:
                assert await talk.ask("EXEC") == b"*1\r\n+OK\r\n"
        await worker.act([SLOT], SlotState.MIGRATING)
        async with frozen(worker, 1):
            await talk.ask("MULTI")
            await talk.ask("SET", KEY, "1")
            assert b"could not be moved yet" in await talk.ask("EXEC")
            assert await talk.ask("PING") == b"+PONG\r\n"
        await worker.apply([Slot(SLOT)])
        await talk.ask("MULTI")
        await talk.ask("SET", KEY, "1")
        assert b"is offline" in await talk.ask("EXEC")
        assert await talk.ask("PING") == b"+PONG\r\n"


async def test_an_exec_right_behind_one_that_was_not_sent_is_without_multi(start_worker: StartWorker) -> None:
    """Nothing of the transaction runs after it was said that nothing has run."""
    worker = await start_worker(lock_hold_seconds=0.2)

    async def begin() -> None:
        for words in (("MULTI",), ("INCR", KEY)):
            assert await talk.ask(*words) in (b"+OK\r\n", b"+QUEUED\r\n")

    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("SET", KEY, "0") == b"+OK\r\n"
        await worker.act([SLOT], SlotState.PREPARED)
        await begin()
        assert (await talk.ask("EXEC")).startswith(b"-TRYAGAIN ")
        await worker.apply([Slot(SLOT, 1)])
        assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
        await begin()
        await worker.apply([Slot(SLOT, 0)])
        assert b"is offline" in await talk.ask("EXEC")
        await worker.apply([Slot(SLOT, 1)])
        assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
        await worker.act([SLOT], SlotState.PREPARED)
        await begin()
        # In one pipeline it is another EXEC as well.
        for _ in range(2):
            talk.send("EXEC")
        assert (await talk.reply()).startswith(b"-TRYAGAIN ")
        assert await talk.reply() == b"-ERR EXEC without MULTI\r\n"
        await worker.apply([Slot(SLOT, 1)])
        assert await talk.ask("GET", KEY) == b"$1\r\n0\r\n"


async def test_drained_a_lock_waits_for_exec(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    async with worker.client() as client:
        await client.set(KEY, "0")
        async with frozen(worker, 1), client.pipeline() as pipe:
            pipe.incr(KEY)
            running = asyncio.create_task(pipe.execute())
            await worker.under_way()
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
        assert await running == [1]
        assert (await worker.verdict(epoch)).type == "ack"


async def test_a_client_that_leaves_within_a_transaction_leaves_nothing(worker: WorkerHarness) -> None:
    async with worker.client() as client, worker.direct(1) as direct:
        for leave_after in (2, 3):
            async with Talk(worker.settings.listen) as talk:
                for words in (("MULTI",), ("SET", KEY, "1"), ("NOSUCH",))[:leave_after]:
                    await talk.ask(*words)
        assert await client.exists(KEY) == 0
        async with Talk(worker.settings.listen) as talk:
            talk.send("MULTI")
            talk.send("SET", KEY, "1")
            talk.send("EXEC")
            await talk.writer.drain()

        async def done() -> bool:
            return bool(await client.get(KEY) == b"1")

        await until(done)
        assert all(entry["multi"] == "-1" for entry in await direct.client_list())


async def test_a_lost_server_fails_exec_once(worker: WorkerHarness) -> None:
    group = 1 if SLOT < 512 else 2
    async with Talk(worker.settings.listen) as talk:
        await talk.ask("MULTI")
        await talk.ask("SET", KEY, "1")
        await worker.servers[group - 1].kill()
        assert worker.servers[group - 1].address.encode() in await talk.ask("EXEC")
        assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"


async def test_scripts_are_found_within_a_transaction(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        # Known from having been run, which was at the other server.
        elsewhere = next(f"k{number}" for number in range(99) if (slot_of(f"k{number}") < 512) != (SLOT < 512))
        await client.eval(ADD, 1, elsewhere, 1)
        sha = hashlib.sha1(ADD.encode()).hexdigest()
        async with client.pipeline() as pipe:
            pipe.evalsha(sha, 1, KEY, 2)
            pipe.evalsha(sha, 1, KEY, 3)
            assert await pipe.execute() == [2, 5]
        async with client.pipeline() as pipe:
            pipe.evalsha("a" * 40, 1, KEY, 2)
            with pytest.raises(redis.exceptions.NoScriptError):
                await pipe.execute()
        add = client.register_script(ADD)
        async with client.pipeline() as pipe:
            await add(keys=[KEY], args=[10], client=pipe)
            pipe.get(KEY)
            assert await pipe.execute() == [15, b"15"]
        async with client.pipeline() as pipe:
            pipe.script_load("return 'from a transaction'")
            loaded = (await pipe.execute())[0]
        for number in range(20):
            assert await client.evalsha(loaded, 1, f"k{number}") == b"from a transaction"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_redis_py_pipelines(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client(protocol=protocol, decode_responses=True) as client:
        async with client.pipeline(transaction=True) as pipe:
            pipe.set(KEY, "x").hset("{t}h", mapping={"a": "1"}).hgetall("{t}h").incr(KEY).get(KEY)
            results = await pipe.execute(raise_on_error=False)
            assert results[:3] == [True, 1, {"a": "1"}]
            assert isinstance(results[3], redis.exceptions.ResponseError)
            assert results[4] == "x"
            pipe.set(KEY, "1").set(OTHER, "2")
            with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
                await pipe.execute()
            pipe.set(KEY, "y").execute_command("NOSUCH")
            with pytest.raises(redis.exceptions.ResponseError, match="unknown command"):
                await pipe.execute()
        assert await client.get(KEY) == "x"


async def test_a_server_without_multi_is_not_used(start_worker: StartWorker) -> None:
    """What is to stand between MULTI and EXEC would run by itself there, and its reply would be lost."""
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as talk, worker.direct(1) as direct:
        await direct.rpush("list", "element")
        await direct.execute_command("ACL", "SETUSER", "default", "-multi")
        # The next connections are greeted anew.
        await direct.client_kill_filter(_type="normal", skipme=True)
        for words in (("BLPOP", "list", "1"), ("GET", "k")):

            async def refused(words: tuple[str, ...] = words) -> bool:
                return b"refuses MULTI: NOPERM" in await talk.ask(*words)

            await until(refused)
        assert await direct.lrange("list", 0, -1) == [b"element"]
