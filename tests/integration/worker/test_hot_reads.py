"""Users with ``cached_reads``: the worker answers their GETs of hot keys by itself, and gives no value that is old."""

import asyncio
import itertools
import os
import random
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from proxy.engine.allowance import clock
from proxy.engine.backend import command
from slots.group import Group
from slots.messages.channel import Allowance, Grant, Limited
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.breaking_relay import BreakingRelay, Direction, Fault
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_by_action import behind_a_relay

USERS = [
    {"name": "default", "no_password": True},
    {"name": "reader", "password": "r", "cached_reads": True},
]
KEY = next(f"key:{number}" for number in range(100) if slot_of(f"key:{number}") < 512)
"""A key of the first group."""
TO_PEER, TO_SERVER = frozenset({Direction.TO_PEER}), frozenset({Direction.TO_SERVER})
TOGETHER = 500
"""GETs of a pipeline."""


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    options = ["--enable-debug-command", "local"]
    worker = await start_worker(users=USERS, backend_reply_seconds=60.0, extra=options)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


@asynccontextmanager
async def reading(worker: WorkerHarness, **options: object) -> AsyncIterator[Redis]:
    """A client of the user. It has one connection as long as it waits for each reply."""
    async with worker.client(username="reader", password="r", **options) as client:
        yield client


async def gets(server: Redis) -> int:
    """How many GETs a server has run."""
    return int((await server.info("commandstats")).get("cmdstat_get", {"calls": 0})["calls"])


async def many(client: Redis, key: str = KEY) -> list[bytes | None]:
    pipeline = client.pipeline(transaction=False)
    for _ in range(TOGETHER):
        pipeline.get(key)
    return list(await pipeline.execute())


async def until_hot(client: Redis, server: Redis, key: str = KEY) -> None:
    """Read a key until its GETs are answered without the server."""
    async with asyncio.timeout(LIMIT):
        before = await gets(server)
        while True:
            await many(client, key)
            now = await gets(server)
            if now - before < TOGETHER // 10:
                return
            before = now


async def until_word_is_late(relay: BreakingRelay, client: Redis, server: Redis) -> tuple[Fault, int]:
    """Have the worker give a number of which the server has the next one by now; what holds up word of that."""
    async with asyncio.timeout(LIMIT):
        for number in itertools.count():
            await server.set(KEY, number)
            await until_hot(client, server)
            word = relay.hold(directions=TO_PEER, containing=b"invalidate")
            await server.set(KEY, number + 1)
            # The worker may have been about to ask again.
            if await client.get(KEY) == b"%d" % number:
                return word, number
            word.mend()
    raise AssertionError


async def test_a_hot_key_costs_its_server_nothing_and_changes_are_seen(worker: WorkerHarness) -> None:
    async with reading(worker) as client, worker.client() as other, worker.direct(1) as server:
        await client.set(KEY, "0")
        await until_hot(client, server)
        for number in range(1, 50):
            await (client if number % 2 else other).set(KEY, str(number))
            if number % 2:
                assert await client.get(KEY) == b"%d" % number, "a client sees its own writes"
            async with asyncio.timeout(LIMIT):
                while await client.get(KEY) != b"%d" % number:
                    pass
            assert set(await many(client)) == {b"%d" % number}
        await until_hot(client, server)
        # Those of a user without it go to the server.
        before = await gets(server)
        await many(other)
        assert await gets(server) - before >= TOGETHER


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_key_that_is_not_there(worker: WorkerHarness, protocol: int) -> None:
    async with reading(worker, protocol=protocol) as client, worker.client() as other, worker.direct(1) as server:
        await until_hot(client, server)
        assert set(await many(client)) == {None}
        await other.set(KEY, "v")
        async with asyncio.timeout(LIMIT):
            while await client.get(KEY) is None:
                pass


@pytest.mark.long
async def test_own_writes_of_every_kind_are_seen(worker: WorkerHarness) -> None:
    async with reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "0")
        await until_hot(client, server)
        for number in range(1, 200):
            value = b"%d" % number
            match number % 5:
                case 0:
                    await client.mset({KEY: value, "key:other": value})
                case 1:
                    async with client.pipeline() as transaction:
                        await transaction.set(KEY, value).execute()
                case 2:
                    await client.eval("return redis.call('SET', KEYS[1], ARGV[1])", 1, KEY, value)
                case 3:
                    pipeline = client.pipeline(transaction=False)
                    replies = await pipeline.set(KEY, value).get(KEY).get(KEY).execute()
                    assert replies[1:] == [value, value]
                case _:
                    await client.set(KEY, value)
            assert await client.get(KEY) == value
            assert (await many(client))[-1] == value


async def test_what_is_watched_and_read_is_not_older_than_the_watch(worker: WorkerHarness) -> None:
    """given a change of which word is late: what is written by what was read, replaces nothing that was not."""
    async with behind_a_relay(worker) as relay, reading(worker) as client, worker.direct(1) as server:
        word, number = await until_word_is_late(relay, client, server)
        async with client.pipeline() as transaction:
            await transaction.watch(KEY)
            assert await transaction.get(KEY) == b"%d" % (number + 1)
        word.mend()


@pytest.mark.long
async def test_a_key_whose_life_ends(worker: WorkerHarness) -> None:
    """given a server that would not remove it by itself, nobody gets the value when its life is over."""
    async with reading(worker) as client, worker.client() as other, worker.direct(1) as server:
        await server.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        await client.set(KEY, "v")
        await until_hot(client, server)
        await other.pexpire(KEY, 500)
        async with asyncio.timeout(LIMIT):
            while await client.get(KEY) is not None:
                await many(client)
        assert await server.get(KEY) is None


async def test_a_slot_that_moves(worker: WorkerHarness) -> None:
    async with reading(worker) as client, worker.direct(1) as first, worker.direct(2) as second:
        await client.set(KEY, "v")
        await until_hot(client, first)
        slot = slot_of(KEY)
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([slot], state)
            if state is SlotState.MIGRATING:
                assert set(await many(client)) == {b"v"}
                assert await second.get(KEY) == b"v"
                assert not await first.exists(KEY)
        await second.set(KEY, "w")
        async with asyncio.timeout(LIMIT):
            while await client.get(KEY) != b"w":
                pass
        await worker.apply([Slot(slot, 2)])
        await until_hot(client, second)
        assert set(await many(client)) == {b"w"}


async def test_a_locked_slot_is_waited_for(worker: WorkerHarness) -> None:
    async with reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "v")
        await until_hot(client, server)
        await worker.act([slot_of(KEY)], SlotState.PREPARING)
        await worker.act([slot_of(KEY)], SlotState.PREPARED)
        waiting = asyncio.create_task(client.get(KEY))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await worker.act([slot_of(KEY)], SlotState.MIGRATING)
        assert await waiting == b"v"


@pytest.mark.long
async def test_a_key_is_hot_again_after_a_lock(worker: WorkerHarness) -> None:
    """given locks of its group, of which no server tells the worker."""
    async with reading(worker) as client, worker.direct(1) as server:
        for _ in range(3):
            await until_hot(client, server)
            for locked in (True, False):
                await worker.apply([], [Group(1, (worker.addresses[0],), locked=locked)])
        await until_hot(client, server)


async def test_nothing_is_given_by_a_worker_that_stands_down(start_worker: StartWorker) -> None:
    worker = await start_worker(users=USERS)
    # Groups without replicas are not stood down from.
    await worker.apply([], [Group(1, tuple(worker.addresses)), Group(2, ())])
    async with reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "old")
        await until_hot(client, server)
        worker.channel.send(Allowance(instance=INSTANCE, grant=Grant(all=clock() - 1.0)))
        await worker.next(lambda message: isinstance(message, Limited))
        waiting = asyncio.create_task(client.get(KEY))
        await server.set(KEY, "new")
        await asyncio.wait([waiting], timeout=0.1)
        worker.channel.send(Allowance(instance=INSTANCE, grant=Grant(all=clock() + 600.0)))
        assert await waiting == b"new"


async def test_nothing_is_given_while_the_worker_is_not_told(worker: WorkerHarness) -> None:
    """given a user at the server who may not track, all goes to the server."""
    async with reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "v")
        await until_hot(client, server)
        await server.execute_command("ACL", "SETUSER", "default", "-client|tracking")
        await server.client_kill_filter(_type="pubsub")
        await server.set(KEY, "w")
        async with asyncio.timeout(LIMIT):
            while await client.get(KEY) != b"w":
                pass
        before = await gets(server)
        await many(client)
        assert await gets(server) - before >= TOGETHER


@pytest.mark.long
async def test_changes_amid_questions(worker: WorkerHarness) -> None:
    """given changes of which word comes while the worker asks for the value, the last one is seen."""
    chance = random.Random(1)
    async with reading(worker) as client, worker.client() as other, worker.direct(1) as server:
        await client.set(KEY, "")
        await until_hot(client, server)
        for number in range(300):
            for change in range(chance.randrange(1, 6)):
                value = b"%d %d" % (number, change)
                await other.set(KEY, value)
                await asyncio.sleep(chance.choice((0.0, 0.0005, 0.02)))
            async with asyncio.timeout(LIMIT):
                while await client.get(KEY) != value:
                    pass


@pytest.mark.long
async def test_a_key_that_has_no_string_is_not_asked_for_with_each_change(worker: WorkerHarness) -> None:
    """given a list that is the hottest key, as those of queues are."""
    async with reading(worker) as client, worker.direct(1) as server:
        await client.rpush(KEY, "")

        async def push() -> tuple[int, float]:
            """How often the list was asked for, and in how many seconds."""
            before, began = await gets(server), time.monotonic()
            while time.monotonic() < began + 1.0:
                pipeline = client.pipeline(transaction=False)
                for _ in range(20):
                    pipeline.rpush(KEY, "")
                await pipeline.execute()
            return await gets(server) - before, time.monotonic() - began

        async with asyncio.timeout(LIMIT):
            while not (await push())[0]:
                pass
        asked, seconds = await push()
        assert asked <= seconds + 2, "once a second"
        # It is a string from now on.
        await client.set(KEY, "v")
        await until_hot(client, server)


@pytest.mark.long
async def test_an_answer_that_comes_after_word_of_a_later_change_is_not_kept(worker: WorkerHarness) -> None:
    async with (
        behind_a_relay(worker) as relay,
        # The worker asks over another connection than that of RESP2.
        reading(worker, protocol=2) as client,
        reading(worker, protocol=2) as another,
        worker.direct(1) as server,
        asyncio.timeout(LIMIT),
    ):
        await client.set(KEY, "old")
        await until_hot(client, server)
        await until_hot(another, server)
        first = relay.hold(directions=TO_PEER, containing=b"amid")
        await server.set(KEY, "amid")
        while not first.met:
            await asyncio.sleep(0.001)
        last = relay.hold(directions=TO_PEER, containing=b"last")
        await server.set(KEY, "last")
        # It goes to the server, for word of the change has come.
        reading_now = asyncio.create_task(client.get(KEY))
        while not last.met:
            await asyncio.sleep(0.001)
        first.mend()
        await asyncio.wait([reading_now], timeout=0.1)
        again = asyncio.create_task(another.get(KEY))
        await asyncio.wait([again], timeout=0.1)
        last.mend()
        assert (await reading_now, await again) == (b"last", b"last")


async def test_own_writes_that_the_server_has_yet_to_read_are_seen(worker: WorkerHarness) -> None:
    """given a write that is on its way while the worker asks for the value over another connection."""
    async with behind_a_relay(worker) as relay, reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "old")
        await until_hot(client, server)
        reader, writer = await worker.connect()
        held = relay.hold(directions=TO_SERVER, containing=b"mine")
        writer.write(command(("AUTH", "reader", "r")) + command(("SET", KEY, "mine")))
        for _ in range(50):
            writer.write(command(("GET", KEY)))
            await asyncio.sleep(0.005)
        held.mend()
        for expected in (b"+OK\r\n", b"+OK\r\n", *[b"$4\r\n", b"mine\r\n"] * 50):
            assert await reader.readuntil(b"\n") == expected
        writer.close()


async def test_what_a_connection_wrote_before_its_login_is_seen(worker: WorkerHarness) -> None:
    """given a change of which word is late, and a login in the same pipeline."""
    async with behind_a_relay(worker) as relay, reading(worker) as client, worker.direct(1) as server:
        word, _ = await until_word_is_late(relay, client, server)
        reader, writer = await worker.connect()
        for login in (("AUTH", "reader", "r"), ("HELLO", "2", "AUTH", "reader", "r")):
            writer.write(command(("RESET",)) + command(("SET", KEY, "mine")) + command(login) + command(("GET", KEY)))
            replies = b""
            async with asyncio.timeout(LIMIT):
                # The only reply in two lines, but for HELLO's, which ends with an empty array.
                while not re.search(rb"(OK|\*0)\r\n\$[0-9]+\r\n[^\r]+\r\n\Z", replies):
                    replies += await reader.read(1000)
            assert replies.endswith(b"$4\r\nmine\r\n")
        word.mend()
        writer.close()


@pytest.mark.long
async def test_a_worker_that_stood_still_gives_no_old_value(start_worker: StartWorker) -> None:
    """given a server of which it hears nothing since."""
    worker = await start_worker(users=USERS, backend_reply_seconds=0.5)
    pid = worker.process.pid
    assert pid is not None
    async with behind_a_relay(worker) as relay, reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "old")
        await until_hot(client, server)
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = asyncio.create_task(client.get(KEY))
            relay.hold()
            await server.set(KEY, "new")
            await asyncio.sleep(1.2)
        finally:
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(ResponseError, match="did not"):
            await waiting


@pytest.mark.long
async def test_a_server_was_last_heard_of_when_it_was_asked(start_worker: StartWorker) -> None:
    """given a worker that stood still before it read its server's last word, it gives no value that is older."""
    worker = await start_worker(users=USERS, backend_reply_seconds=1.0)
    pid = worker.process.pid
    assert pid is not None
    async with behind_a_relay(worker) as relay, reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "old")
        await until_hot(client, server)
        readers = [await worker.connect() for _ in range(50)]
        for reader, writer in readers:
            writer.write(command(("AUTH", "reader", "r")))
            assert await reader.readline() == b"+OK\r\n"
        word = relay.hold(directions=TO_PEER, containing=b"PONG")
        async with asyncio.timeout(LIMIT):
            while not word.met:
                await asyncio.sleep(0.001)
        os.kill(pid, signal.SIGSTOP)
        try:
            word.mend()
            await asyncio.sleep(0.1)
            relay.hold()
            await server.set(KEY, "new")
            await asyncio.sleep(2.5)
        finally:
            os.kill(pid, signal.SIGCONT)
        for _, writer in readers:
            writer.write(command(("GET", KEY)))
            await asyncio.sleep(0.01)
        for reader, writer in readers:
            assert (await reader.readline()).startswith(b"-ERR")
            writer.close()


@pytest.mark.long
async def test_a_server_that_hangs_is_not_stood_in_for(start_worker: StartWorker) -> None:
    worker = await start_worker(users=USERS, backend_reply_seconds=2.0)
    async with reading(worker) as client, worker.direct(1) as server:
        await client.set(KEY, "v")
        await until_hot(client, server)
        async with frozen(worker.servers[0]), asyncio.timeout(LIMIT):
            while (failure := (await asyncio.gather(client.get(KEY), return_exceptions=True))[0]) == b"v":
                pass
        assert isinstance(failure, ResponseError)
