"""**bounded**: how late word of a change may be, and what CLIENT TRACKING may cost a worker and its servers."""

import asyncio
import itertools
from contextlib import suppress

import pytest

from slots.group import Group
from slots.messages.channel import Settings
from slots.slot import Slot
from tests.integration.breaking_relay import BreakingRelay, Direction
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.test_limits import MEGABYTE, resident
from tests.integration.worker.test_tracking import EVERYTHING, ON, expect, told, until
from tests.integration.worker.wire import Wire

HERE = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
THERE = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") >= 512)


async def test_word_that_comes_later_and_later(start_worker: StartWorker) -> None:
    """A connection that always has something to tell, of ever longer ago, is given up."""
    worker = await start_worker(servers=1, backend_reply_seconds=0.5)
    async with BreakingRelay(worker.servers[0].port) as relay:
        await worker.apply([], [Group(1, (relay.address,))])
        async with Wire(worker.settings.listen, 3) as reader, worker.direct(1) as server:
            await reader.say(*ON)
            await reader.say("GET", "k")

            async def change() -> None:
                while True:
                    await server.set("other", "new")
                    await asyncio.sleep(0.02)

            async def delay() -> None:
                seconds = 0.0
                while True:
                    # A quarter as fast as it has to be, and never silent for as long as a reply may take.
                    seconds += 0.15
                    relay.mend()
                    relay.delay(seconds)
                    await asyncio.sleep(0.2)

            tasks = [asyncio.create_task(change()), asyncio.create_task(delay())]
            try:
                await until(reader, EVERYTHING)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_server_keeps_little_for_a_worker_that_does_not_read(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, backend_reply_seconds=600.0)
    async with BreakingRelay(worker.servers[0].port) as relay, worker.direct(1) as server:
        await worker.apply([], [Group(1, (relay.address,))])
        await server.config_set("client-output-buffer-limit", "pubsub 1mb 0 0")

        async def telling() -> list[str]:
            return [one["id"] for one in await server.client_list() if "t" in one["flags"]]

        async with Wire(worker.settings.listen, 3) as reader:
            await reader.say(*ON)
            before = await telling()
            assert len(before) == 1
            hold = relay.hold(directions=frozenset({Direction.TO_PEER}), only_present=True)
            for number in range(60):
                await server.set(b"%d" % number + b"x" * MEGABYTE, "", px=1)

            async def ended() -> bool:
                return await telling() != before

            await eventually(ended, "the server to end the connection")
            hold.mend()
            await until(reader, EVERYTHING)


async def test_a_client_that_is_owed_much_is_told_to_drop_everything(start_worker: StartWorker) -> None:
    """Word of each change would have a place of its own behind a reply that does not come."""
    worker = await start_worker(session_max_pipeline=20)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    listen = worker.settings.listen
    async with Wire(listen, 3) as every, Wire(listen, 3) as other, worker.direct(1) as server:
        for wire in (every, other):
            await wire.say(*ON, "BCAST")
        async with frozen(worker.servers[1]):
            every.send("GET", THERE)
            for number in range(500):
                await server.set(f"key:{number}", "new")
            await until(other, told("key:499"))
            found = await other.heard()
            owed = [int(one["owed"]) for one in await _listed(worker)]
        assert max(owed) <= 45, (owed, found)
        async with asyncio.timeout(LIMIT):
            early = await every.reader.readuntil(b"_\r\n" + told("key:0"))
        # It was told at once of all, or to drop everything.
        assert b"key:5\r\n" in early
        rest = await every.heard()
        assert rest.endswith(EVERYTHING), rest
        assert rest.count(b"invalidate") <= 45


async def _listed(worker: WorkerHarness) -> list[dict[str, str]]:
    async with worker.client() as client:
        return [dict(one) for one in await client.client_list()]


async def test_what_a_session_has_read_is_kept_once(worker: WorkerHarness) -> None:
    keys = [b"%06d" % number + b"x" * 1000 for number in range(2000)]
    wires = [Wire(worker.settings.listen, 3) for _ in range(30)]
    grown = 0
    try:
        for number, wire in enumerate(wires):
            await wire.__aenter__()
            await wire.say(*ON)
            await wire.say("MGET", *keys)
            if number == 4:
                grown = -resident(worker.process.pid)
        grown += resident(worker.process.pid)
    finally:
        for wire in wires:
            with suppress(AttributeError):  # it was not opened
                wire.writer.close()
    # All of these sessions have read what the first have.
    assert grown < 25 * len(keys) * 1000 // 3, grown


async def test_the_limit_of_keys_changes_live(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader:
        await reader.say(*ON)
        for number in range(1000):
            reader.send("GET", f"key:{number}")
        assert told("key:0") not in await reader.heard()
        changed = worker.settings.model_copy(update={"sessions_limit_bytes": 8 * 100_000})
        worker.channel.send(Settings(number=1, settings=changed.to_wire()))
        async with asyncio.timeout(LIMIT):
            for number in itertools.count():
                if told("key:0") in await reader.say("GET", f"later:{number}"):
                    break
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_protocol_that_comes_back(worker: WorkerHarness, protocol: int) -> None:
    """What has changed while RESP2 was spoken was not told."""
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON)
        await reader.say("GET", "k")
        await reader.say("HELLO", protocol)
        await writer.set("k", "new")
        if protocol == 3:
            await until(reader, told("k"))
        # What comes before the reply, a client that speaks RESP2 could not read.
        said = await reader.say("HELLO", 3)
        assert said.startswith(b"%7\r\n")
        if protocol == 2 and not said.endswith(EVERYTHING):
            await expect(reader, EVERYTHING)
        assert await reader.heard() == b""
