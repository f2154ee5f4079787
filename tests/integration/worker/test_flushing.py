"""FLUSHDB and FLUSHALL leave nothing that was there when they came, and Slotferry's own marks where they are."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
import redis.exceptions

from slots import connections
from slots.moving import LEADER, STATE, WRITING
from slots.states import SlotState
from slots.table import Slot
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import INSTANCE, LIMIT, WorkerHarness
from tests.integration.worker.test_slot_states import KEY, SLOT, frozen, migrate_key, until

FLUSHES = [("FLUSHALL",), ("FLUSHALL", "ASYNC"), ("FLUSHDB",)]


def sockets_with_unread_bytes(port: int) -> int:
    """How many connections at a port of this machine, closed by the other end or not, hold what nobody has read."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if int(local.partition(":")[2], 16) == port and state in ("01", "08"):
            found += int(queues.partition(":")[2], 16) > 0
    return found


@pytest.mark.parametrize("words", FLUSHES)
async def test_nothing_comes_back_from_a_socket_at_a_stalled_target(
    start_worker: StartWorker, words: tuple[str, ...]
) -> None:
    """A MIGRATE of unknown outcome has left its RESTORE in a connection that the target has yet to accept."""
    worker = await start_worker(backend_reply_seconds=LIMIT)
    await worker.apply([Slot(index, 2) for index in range(1024) if index != SLOT])
    port = worker.servers[1].port

    async with worker.client() as client, worker.direct(1) as source, Talk(worker.settings.listen) as talk:
        await client.set(KEY, "old")
        await migrate_key(worker)
        # The worker is connected to the target: what it sends there is read before a connection is accepted.
        await client.set("another", "1")
        async with frozen(worker, 2):
            with pytest.raises(redis.exceptions.ResponseError, match="IOERR"):
                await source.execute_command("MIGRATE", "127.0.0.1", port, KEY, 0, 200)
            talk.send(*words)
            await talk.writer.drain()

            async def flushed() -> bool:
                return not await source.exists(KEY) and sockets_with_unread_bytes(port) >= 2

            await until(flushed)
        assert await talk.reply() == b"+OK\r\n"
        assert await worker.keys(1) == await worker.keys(2) == []
        assert await client.get(KEY) is None
        # Nothing stands in the way of whoever moves keys next.
        await client.set(KEY, "new")
        assert await client.get(KEY) == b"new"


async def test_who_carries_keys_begins_anew(start_worker: StartWorker) -> None:
    """A migrator may hold values of before, and be slow to write them."""
    worker = await start_worker()
    await migrate_key(worker)
    async with worker.client() as client, Talk(worker.servers[1].address) as writing:
        assert await writing.ask("CLIENT", "SETNAME", WRITING + "somebody.1") == b"+OK\r\n"
        await client.flushall()
        writing.send("SET", KEY, "old")
        async with asyncio.timeout(LIMIT):
            with suppress(ConnectionError):
                assert not await writing.reader.read(1)
        assert await worker.keys(2) == []


async def test_a_flush_of_another_database_takes_the_permit_too(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client(db=3) as client, worker.direct(1) as source:
        await client.mset({KEY: "1", f"{{{KEY}}}2": "2"})
        await migrate_key(worker)
        assert await client.get(KEY) == b"1"
        assert await source.hexists(STATE, "permit")
        await client.flushdb()
        assert not await source.exists(STATE)
        assert await worker.keys(1, 3) == await worker.keys(2, 3) == []


@pytest.mark.parametrize("words", FLUSHES)
async def test_marks_outlast_a_flush(worker: WorkerHarness, words: tuple[str, ...]) -> None:
    async with worker.client() as client, worker.direct(1) as direct:
        await connections.fence(direct, ["another"])
        await direct.hset(LEADER, "term", "7")
        await client.mset({f"key-{number}": "1" for number in range(50)})
        fenced = await direct.hgetall(connections.FENCED)
        await client.execute_command(*words)
        assert await worker.keys(1) == await worker.keys(2) == []
        assert await direct.hgetall(connections.FENCED) == fenced
        assert await direct.hget(LEADER, "term") == b"7"
        assert not await direct.hexists(connections.FENCED, INSTANCE)


async def test_a_flush_that_cannot_be_whole_says_so(start_worker: StartWorker) -> None:
    """The target does not say what it has on the way."""
    worker = await start_worker(backend_reply_seconds=0.5)
    async with worker.client() as client, Talk(worker.settings.listen) as talk:
        await client.set(KEY, "old")
        await migrate_key(worker)
        async with frozen(worker, 2):
            reply = await talk.ask("FLUSHALL")
        assert reply.startswith(b"-TRYAGAIN keys on their way to " + worker.servers[1].address.encode()), reply
        async with asyncio.timeout(LIMIT):
            while await talk.ask("FLUSHALL") != b"+OK\r\n":
                await asyncio.sleep(0.01)
        await worker.act([SLOT], SlotState.FINISHED)
