"""Handlers that wait: what they wait for, for how long, and what has no part in it."""

import asyncio
import hashlib
from pathlib import Path

import pytest
import redis.exceptions

from proxy.engine.backend import command
from slots.messages.channel import Drain
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.certificates import Authority
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.places import opened, tls_settings, trusting
from tests.integration.worker.test_slot_states import KEY, SLOT, frozen, migrate_key

DIGEST = hashlib.sha1(b"return 42", usedforsecurity=False).hexdigest()
OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
CHANNEL = next(f"c{number}" for number in range(99) if slot_of(f"c{number}") != SLOT)


async def line(reader: asyncio.StreamReader, seconds: float = 60.0) -> bytes:
    async with asyncio.timeout(seconds):
        return await reader.readline()


async def lets_in(worker: WorkerHarness) -> bool:
    """Whether a new client is served."""
    try:
        async with worker.client() as client:
            return bool(await client.ping())
    except redis.exceptions.ConnectionError:
        return False


async def test_a_watched_transaction_does_not_wait_for_the_slot_of_its_channel(start_worker: StartWorker) -> None:
    """WATCH k, MULTI, PUBLISH c, EXEC: it runs at the server of k. c's slot is of no concern."""
    worker = await start_worker(lock_hold_seconds=1.0)
    reader, writer = await worker.connect()
    writer.write(command(("WATCH", KEY)) + command(("MULTI",)) + command(("PUBLISH", CHANNEL, "m")))
    assert [await line(reader) for _ in range(3)] == [b"+OK\r\n", b"+OK\r\n", b"+QUEUED\r\n"]
    await worker.act([slot_of(CHANNEL)], SlotState.PREPARED)
    writer.write(command(("EXEC",)))
    said = await line(reader)
    writer.close()
    assert said == b"*1\r\n"


async def test_client_kill_of_itself(start_worker: StartWorker) -> None:
    worker = await start_worker()
    reader, writer = await worker.connect()
    writer.write(command(("CLIENT", "ID")))
    number = (await line(reader))[1:-2]
    writer.write(command(("CLIENT", "KILL", "ID", number, "SKIPME", "no")))
    assert await line(reader) == b":1\r\n"


@pytest.mark.long
async def test_evalsha_behind_one_that_waited(start_worker: StartWorker) -> None:
    """bounded: the question to the other workers has a limit, whatever task the session was brought here by."""
    worker = await start_worker()
    reader, writer = await worker.connect()
    worker.answering = False
    writer.write(command(("WATCH", KEY)) + command(("EVALSHA", "f" * 40, 1, KEY)) + command(("PING",)))
    assert await line(reader) == b"+OK\r\n"
    assert await line(reader) == b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


async def test_a_function_on_a_moving_slot_does_not_wait_for_its_keys(start_worker: StartWorker) -> None:
    """It waits as long as for a lock, and not for keys that do not come."""
    worker = await start_worker(move_seconds=30.0, lock_hold_seconds=0.3)
    async with worker.client() as client:
        await client.set(KEY, "x")
    await migrate_key(worker)
    reader, writer = await worker.connect()
    async with frozen(worker, 1):
        writer.write(command(("FCALL", "f", 1, KEY)))
        said = await line(reader)
    writer.close()
    assert said.startswith(b"-TRYAGAIN a function may touch"), said


@pytest.mark.long
async def test_a_blocked_command_is_held_for_the_whole_time_at_each_lock(start_worker: StartWorker) -> None:
    """Held by a lock, then at its server for longer than lock_hold_seconds, then held by another lock."""
    worker = await start_worker(lock_hold_seconds=3.0, lock_drain_seconds=10.0)
    await worker.act([SLOT], SlotState.PREPARING)
    await worker.act([SLOT], SlotState.PREPARED)
    reader, writer = await worker.connect()
    writer.write(command(("BLPOP", KEY, "0")))
    await worker.next(lambda m: m.type == "counters" and m.counters["held"] > 0)
    await worker.act([SLOT], SlotState.PREPARING)
    await asyncio.sleep(4.0)  # it waits at its server
    await worker.act([SLOT], SlotState.PREPARED)
    async with frozen(worker, 1):
        epoch = worker.push([Slot(SLOT, 1, Action(SlotState.MIGRATING, 2))])
        await worker.verdict(epoch)
        await asyncio.sleep(0.3)  # its key is asked for
        worker.push([Slot(SLOT, 2, Action(SlotState.PREPARED, 1))])
        await asyncio.sleep(0.3)
    # The move is over, so the slot is looked at again: it is locked.
    began = asyncio.get_running_loop().time()
    said = await line(reader, 60.0)
    took = asyncio.get_running_loop().time() - began
    writer.close()
    assert said.startswith(b"-TRYAGAIN")
    assert took > 2.0


@pytest.mark.long
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_in_order_what_is_pipelined_behind_a_handler_that_waits(
    start_worker: StartWorker, tmp_path: Path, tls: bool
) -> None:
    """More than is read behind a waiting request comes meanwhile: bytes may be left in the layers below."""
    authority = Authority(tmp_path)
    worker = await start_worker(**tls_settings(authority.issue("proxy")))
    address = worker.settings.tls_listen if tls else worker.settings.listen
    async with opened(address, trusting(authority) if tls else None) as (reader, writer):
        # Nobody answers the question for the script, so it waits for as long as such a question may take.
        worker.answering = False
        behind = 300
        value = "x" * 10_000
        requests = [command(("SET", f"key{number}", value)) for number in range(behind)]
        writer.write(command(("EVALSHA", "f" * 40, 1, KEY)) + b"".join(requests) + command(("PING",)))
        assert (await line(reader)).startswith(b"-NOSCRIPT")
        assert [await line(reader) for _ in range(behind)] == [b"+OK\r\n"] * behind
        assert await line(reader) == b"+PONG\r\n"


@pytest.mark.long
async def test_a_worker_that_drains_lets_handlers_that_wait_come_to_their_end(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=60.0, drain_seconds=0.1, drain_last_seconds=60.0)
    async with worker.client() as client:
        assert await client.script_load("return 42") == DIGEST
    await worker.act([SLOT], SlotState.PREPARED)
    held, transaction = await worker.connect(), await worker.connect()
    held[1].write(command(("EVALSHA", DIGEST, 1, KEY)))
    transaction[1].write(command(("MULTI",)) + command(("SET", OTHER, "1")))
    assert [await line(transaction[0]) for _ in range(2)] == [b"+OK\r\n", b"+QUEUED\r\n"]
    await worker.next(lambda m: m.type == "counters" and m.counters["held"] > 0)
    worker.channel.send(Drain())
    async with asyncio.timeout(60.0):
        while await lets_in(worker):
            await asyncio.sleep(0.02)
    await worker.apply([Slot(SLOT, 1)])
    assert await line(held[0]) == b":42\r\n"
    assert await line(held[0]) == b"", "it was its last one"
    # A transaction is not cut.
    transaction[1].write(command(("EXEC",)))
    assert [await line(transaction[0]) for _ in range(2)] == [b"*1\r\n", b"+OK\r\n"]
    assert await line(transaction[0]) == b""
    assert await worker.process.wait(60) == 0
    for _, writer in (held, transaction):
        writer.close()
