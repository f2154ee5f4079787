"""Commands that wait while their connection is made, or are looked at while it is not needed."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from slots.group import Group
from slots.messages.channel import Counters, Drain
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.blocked import blocked_at, frozen
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]

READ = ("XREAD", "BLOCK", 0, "STREAMS", "{t}k", "0")
CONNECT_SECONDS = 60.0
"""So long that whoever waits for the connection has waited for it by mistake."""
PROMPT = 30.0


async def counters(worker: WorkerHarness) -> dict[str, int | float]:
    """The worker's counters as they are now."""
    for _ in range(2):
        found: Counters = await worker.next(lambda message: isinstance(message, Counters))
    return found.counters


async def is_shown_as_blocked(wire: Wire) -> None:
    """Wait until a client is shown as blocked."""
    async with asyncio.timeout(PROMPT):
        while b"flags=b" not in await wire.say("CLIENT", "LIST"):
            await asyncio.sleep(0.01)


async def test_client_unblock_while_its_connection_is_made(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, backend_connect_seconds=CONNECT_SECONDS)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        number = (await wire.say("CLIENT", "ID")).strip()[1:]
        async with frozen(worker.servers[0]):
            wire.send(*READ)
            await is_shown_as_blocked(other)
            assert await other.say("CLIENT", "UNBLOCK", number) == b":1\r\n"
            assert await wire.reader.readline() == b"*-1\r\n"


async def test_a_read_follows_its_slot_while_its_connection_is_made(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, backend_connect_seconds=CONNECT_SECONDS)
    listen = worker.settings.listen
    async with Wire(listen) as wire, Wire(listen) as other, frozen(worker.servers[0]):
        wire.send(*READ)
        await is_shown_as_blocked(other)
        await worker.apply([], [Group(1, (worker.addresses[1],))])
        assert b"1-1" in await other.say("XADD", "{t}k", "1-1", "f", "v")
        async with asyncio.timeout(PROMPT):
            assert await wire.reader.readline() == b"*1\r\n"


async def test_draining_while_its_connection_is_made(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, backend_connect_seconds=CONNECT_SECONDS, drain_seconds=0.1)
    listen = worker.settings.listen
    async with Wire(listen) as wire, Wire(listen) as other, frozen(worker.servers[0]):
        wire.send(*READ)
        await is_shown_as_blocked(other)
        worker.channel.send(Drain(type="drain"))
        async with asyncio.timeout(PROMPT):
            assert await wire.ended() == b""


async def test_wait_ends_at_once_if_a_master_is_down(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, backend_connect_seconds=CONNECT_SECONDS)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Wire(worker.settings.listen) as wire:
        await worker.servers[1].stop()
        async with frozen(worker.servers[0]):
            began = time.monotonic()
            wire.send("WAIT", 0, 100)
            assert worker.addresses[1].encode() in await wire.reader.readline()
            assert time.monotonic() - began < PROMPT


async def test_a_pop_of_what_is_there_needs_no_connection_while_its_slot_moves(start_worker: StartWorker) -> None:
    worker = await start_worker(own_connections=1)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as waiting:
        waiting.send("BLPOP", "elsewhere", 0)
        await blocked_at(worker.servers[0])
        await wire.say("RPUSH", "some-key", "a", "b")
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([slot_of("some-key")], state)
        assert b"$1\r\na\r\n" in await wire.say("BLPOP", "some-key", 0)
        assert b"$1\r\nb\r\n" in await wire.say("BLPOP", "some-key", 0)


READ_AHEAD = 1 << 20
"""What a worker reads behind a request that waits; the rest stays in the socket."""


@pytest.mark.parametrize("behind", [0, READ_AHEAD + 32_000])
async def test_a_client_that_left_while_the_server_was_asked_waits_for_nothing(
    start_worker: StartWorker, behind: int
) -> None:
    worker = await start_worker(servers=1)
    async with Wire(worker.settings.listen) as other:
        async with Wire(worker.settings.listen) as wire, frozen(worker.servers[0]):
            wire.send("BLPOP", "{t}q", 0)
            wire.send("ECHO", bytes(behind))
            await wire.writer.drain()
            await worker.under_way()

            async def read_ahead() -> bool:
                sizes = re.findall(rb"qbuf=(\d+)", await other.say("CLIENT", "LIST"))
                return max(map(int, sizes)) >= min(behind, READ_AHEAD)

            await eventually(read_ahead, "what is behind")
            wire.writer.close()
            await wire.writer.wait_closed()
        await other.say("PING")
        assert await other.say("RPUSH", "{t}q", "a") == b":1\r\n"
        for _ in range(20):
            assert await other.say("LLEN", "{t}q") == b":1\r\n", "a client that had left has taken it"


@pytest.mark.long
async def test_errors_are_counted_once(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[0].address) as direct:
        await wire.say("SET", "{t}s", "v")
        await wire.say("SCAN", 0)
        await direct.say("CONFIG", "SET", "maxmemory", 1)
        before = await counters(worker)
        refused = (
            ("LPOP", "{t}s"),
            ("BLPOP", "{t}s", 0),
            ("BLPOP", "{t}s", -1),
            ("SCAN", 0, "COUNT", 0),
            ("SCAN", 0, "MATCH"),
            ("LMOVE", "{t}l", "{t}m", "LEFT", "LEFT"),
            ("BLMOVE", "{t}l", "{t}m", "LEFT", "LEFT", 0),
        )
        for words in refused:
            assert (await wire.say(*words)).startswith(b"-")
        after = await counters(worker)
        assert after["errors"] - before["errors"] == len(refused)


@pytest.mark.long
async def test_bounded_what_waits_for_room_is_counted_once(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, backend_queue_pause_bytes=1_000_000)
    listen = worker.settings.listen
    async with Wire(listen) as popping, Wire(listen) as scanning, Wire(listen) as filling:
        for number in range(50):
            await popping.say("SET", f"k{number}", "v")
        await popping.say("SCAN", 0)
        await popping.say("RPUSH", "{t}q", "a")
        before = await counters(worker)
        async with frozen(worker.servers[0]):
            filling.send("SET", "{t}s", bytes(8_000_000))
            await filling.writer.drain()
            await worker.under_way()
            popping.send("BLPOP", "{t}q", 0)
            scanning.send("SCAN", 0)
            while (await counters(worker))["clients"] < 3:
                pass
        assert await filling.reader.readexactly(5) == b"+OK\r\n"
        assert (await popping.heard()).startswith(b"*2\r\n")
        assert (await scanning.heard()).startswith(b"*2\r\n")
        after = await counters(worker)
        assert after["requests"] - before["requests"] == 5, "these, and two PINGs"
