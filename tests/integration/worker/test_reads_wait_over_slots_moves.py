"""XREAD with BLOCK over slots while slots move, servers fail and rules change: no entry is missed or given twice."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.engine.allowance import clock
from proxy.engine.refusals import crossslot
from slotferry.redis_server import start_redis
from slots.group import Group
from slots.messages.channel import Ack, Allowance, Grant
from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.breaking_relay import BreakingRelay, Direction
from tests.integration.caching import kill_what_tells
from tests.integration.worker.blocked import Blocked, frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import INSTANCE, OTHER, WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.toandfro import move_to_and_fro
from tests.integration.worker.wire import Wire

SLOT = slot_of(NEAR)
STATES = [SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED]
READ = ("XREAD", "BLOCK", 0, "STREAMS", NEAR, FAR)
LONG = 600.0


def ids(reply: bytes) -> list[str]:
    """The ids of entries in a reply."""
    return [found.decode() for found in re.findall(rb"\$\d+\r\n(\d+-\d+)\r\n", reply)]


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_what_is_added_in_any_state_of_a_move_wakes_all(worker: WorkerHarness, state: SlotState) -> None:
    """given clients that wait from before the move, and one that comes in the state; the stream had an entry."""
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as adds, worker.direct(1) as source:
        await adds.say("XADD", NEAR, "1-1", "f", "old")
        await blocked.add(*READ, "$", "$")
        await blocked.add(*READ, "1-1", "0")
        await waits(worker, 2)
        for one in STATES:
            if one is SlotState.FINISHED and state is not one:
                # complete: those who wait have fetched it, unless they were served before the move.
                assert await adds.say("XLEN", NEAR) == b":2\r\n"
                assert not await source.exists(NEAR)
            await worker.act([SLOT], one)
            if one == state:
                await blocked.add(*READ, "1-1", "$")
                adds.send("XADD", NEAR, "2-1", "f", "v")
            if one is SlotState.MIGRATING and state is not SlotState.FINISHED:
                assert await adds.heard() == b"$3\r\n2-1\r\n"
        await worker.apply([Slot(SLOT, 2)])
        for wire in blocked.wires:
            assert ids(await wire.heard()) == ["2-1"]
        assert await adds.heard() == (b"$3\r\n2-1\r\n" if state is SlotState.FINISHED else b"")


async def test_what_was_added_at_the_source_by_another_proxy_wakes(worker: WorkerHarness) -> None:
    """The other one has not locked the slot yet when this one has."""
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[0].address) as source:
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        await worker.act([SLOT], SlotState.PREPARED)
        await source.say("XADD", NEAR, "1-1", "f", "v")
        await worker.act([SLOT], SlotState.MIGRATING)
        assert ids(await wire.heard()) == ["1-1"]
        assert await source.say("EXISTS", NEAR) == b":0\r\n"


@pytest.mark.long
async def test_a_locked_slot_holds_up_no_other_key(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as adds:
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        async with Wire(worker.servers[0].address) as source:
            await worker.act([SLOT], SlotState.PREPARED)
            await source.say("XADD", NEAR, "1-1", "f", "v")
            await adds.say("XADD", FAR, "2-2", "f", "v")
            assert ids(await wire.heard()) == ["2-2"]
            # Its timeout counts meanwhile.
            await worker.act([SLOT], SlotState.PREPARING)
            wire.send("XREAD", "BLOCK", 1500, "STREAMS", NEAR, FAR, "1-1", "$")
            await waits(worker, 1)
            await worker.act([SLOT], SlotState.PREPARED)
            assert await wire.heard() == b"*-1\r\n"


async def test_each_entry_is_given_once_while_slots_move_to_and_fro(worker: WorkerHarness) -> None:
    """Clients read on from the last id; entries of two streams, moves of one of them, and lost connections meet in
    every order."""
    total = 120

    async def read(wire: Wire, keys: tuple[str, str], found: dict[str, list[str]]) -> None:
        while True:
            wire.send("XREAD", "BLOCK", 0, "COUNT", 3, "STREAMS", *keys, *(found[key][-1] for key in keys))
            heard = await wire.heard()
            assert heard.startswith(b"*"), heard
            parts = re.split(rb"\*2\r\n\$\d+\r\n(key\d+)\r\n", heard)
            for key, part in zip(parts[1::2], parts[2::2], strict=True):
                found[key.decode()] += ids(part)

    added = 0

    async def add(wire: Wire) -> None:
        nonlocal added
        for number in range(1, total + 1):
            assert (await wire.say("XADD", (NEAR, FAR)[number % 2], f"{number}-1", "f", "v")).startswith(b"$")
            added += 1

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Wire(worker.settings.listen)) for _ in range(5)]
        all_found: list[dict[str, list[str]]] = [{NEAR: ["0-0"], FAR: ["0-0"]} for _ in wires[1:]]
        reading = [
            asyncio.create_task(read(wire, (NEAR, FAR) if place % 2 else (FAR, NEAR), all_found[place]))
            for place, wire in enumerate(wires[1:])
        ]
        adding = asyncio.create_task(add(wires[0]))
        ports = [server.port for server in worker.servers]

        async def leaving() -> None:
            # Nothing else may ask for it.
            await wires[0].say("PING") if adding.done() else await asyncio.sleep(0)

        await move_to_and_fro(worker, NEAR, adding, lambda: added, lambda: kill_what_tells(ports), leaving)
        expected = {
            key: ["0-0", *(f"{number}-1" for number in range(1, total + 1) if (NEAR, FAR)[number % 2] == key)]
            for key in (NEAR, FAR)
        }

        async def everything() -> bool:
            return all(len(found[key]) >= len(expected[key]) for found in all_found for key in found)

        await eventually(everything, "every entry")
        for task in reading:
            task.cancel()
        ended = await asyncio.gather(*reading, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
    assert all_found == [expected] * len(all_found)


async def test_lost_connections_lose_no_word(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as adds:
        for number in range(1, 20):
            wire.send(*READ, "$", "$")
            await waits(worker, 1)
            # It hears nothing of this entry where the connection ends first.
            killing = asyncio.create_task(kill_what_tells([server.port for server in worker.servers]))
            await adds.say("XADD", FAR, f"{number}-1", "f", "v")
            assert ids(await wire.heard()) == [f"{number}-1"]
            await killing


async def test_a_server_that_dies_and_comes_back(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as adds:
        for _ in range(2):
            await blocked.add(*READ, "$", "$")
        await waits(worker, 2)
        await worker.servers[1].kill()
        await adds.say("XADD", NEAR, "1-1", "f", "v")
        for wire in blocked.wires:
            assert ids(await wire.heard()) == ["1-1"]
        wire = blocked.wires[0]
        assert (await wire.say(*READ, "$", "$")).startswith(b"-ERR server %b " % worker.servers[1].address.encode())
        worker.servers[1].start()
        await worker.servers[1].ready()

        async def added() -> bool:
            return await adds.say("XADD", FAR, "1-1", "f", "v") == b"$3\r\n1-1\r\n"

        await eventually(added, "the server to be used again")
        wire.send(*READ, "$", "1-1")
        await waits(worker, 1)
        await worker.servers[1].kill()
        worker.servers[1].start()
        await worker.servers[1].ready()
        await eventually(added, "the server to be used again")
        # The stream that began anew has no entry behind that id.
        assert (await adds.say("XADD", FAR, "2-1", "f", "v")).startswith(b"$")
        assert ids(await wire.heard()) == ["2-1"]


async def test_a_read_that_fails_is_made_again(start_worker: StartWorker) -> None:
    """given a link that lets no read through for a while: nothing was taken, so the client waits on."""
    worker = await start_worker(backend_reply_seconds=0.5)
    async with BreakingRelay(worker.servers[1].port) as relay, Wire(worker.settings.listen) as wire:
        await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(2, (relay.address,))])
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        hold = relay.hold(directions=frozenset({Direction.TO_SERVER}), containing=b"XREAD")
        async with Wire(worker.servers[1].address) as server:
            await server.say("XADD", FAR, "1-1", "f", "v")

        async def failed_twice() -> bool:
            return hold.met > 1

        await eventually(failed_twice, "the read to be made again")
        hold.mend()
        assert ids(await wire.heard()) == ["1-1"]


async def test_a_server_that_hangs_holds_up_no_other_key(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0, backend_connect_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as adds:
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        async with frozen(worker.servers[1]):
            await adds.say("XADD", NEAR, "1-1", "f", "v")
            assert ids(await wire.heard()) == ["1-1"]
        wire.send(*READ, "1-1", "0")
        await waits(worker, 1)
        async with frozen(worker.servers[1]):
            # Long enough for the loss of its connection to show.
            assert (await adds.say("XADD", FAR, "2-1", "f", "v")).startswith(b"-ERR server ")
        assert ids(await wire.heard()) == ["2-1"]


async def test_another_master(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0)
    first, second, third = worker.addresses
    await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(1, (first,)), Group(2, (second,))])
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as adds:
        for number, master in enumerate((third, second, third), 1):
            wire.send(*READ, "$", "$")
            await waits(worker, 1)
            await worker.apply([], [Group(2, (master,))])
            await adds.say("XADD", FAR, f"{number}-1", "f", "v")
            assert ids(await wire.heard()) == [f"{number}-1"]
        # What the new master has by then counts, too.
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        async with Wire(second) as server:
            await server.say("XADD", FAR, "9-1", "f", "v")
        await worker.apply([], [Group(2, (second,))])
        assert ids(await wire.heard()) == ["9-1"]


async def test_old_servers_cannot_tell(worker: WorkerHarness, tmp_path: Path) -> None:
    """given a server whose HELLO is renamed away, which counts as old. Without BLOCK, it is read all the same."""
    old = await start_redis("old", tmp_path, extra=["--rename-command", "HELLO", ""])
    try:
        async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
            wire.send(*READ, "$", "$")
            await waits(worker, 1)
            await worker.apply([], [Group(2, (old.address,))])
            text = b"-ERR a command that waits over several slots: %b is older than Redis 6" % old.address.encode()
            assert (await wire.heard()).startswith(text)
            refused = crossslot(NEAR.encode(), SLOT, FAR.encode(), slot_of(FAR))
            assert await other.say(*READ, "$", "$") == refused
            await other.say("XADD", FAR, "1-1", "f", "v")
            assert ids(await other.say("XREAD", "STREAMS", NEAR, FAR, "0", "0")) == ["1-1"]
    finally:
        await old.stop()


async def test_a_proxy_that_stands_down_or_is_fenced_reads_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, lock_hold_seconds=0.2)
    master, replica = worker.addresses
    await worker.apply([], [Group(1, (master, replica)), Group(2, ())])
    async with Wire(worker.settings.listen) as wire, Wire(master) as server, Wire(worker.settings.listen) as other:

        def allow(seconds: float, instance: str = INSTANCE) -> None:
            worker.channel.send(Allowance(instance=instance, grant=Grant(all=clock() + seconds)))

        async def stood_down() -> bool:
            return (await other.say("GET", "x")).startswith(b"-TRYAGAIN")

        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        allow(-1.0)
        await eventually(stood_down, "the proxy to stand down")
        await server.say("XADD", FAR, "1-1", "f", "v")
        assert await stood_down()
        allow(LONG)
        assert ids(await wire.heard()) == ["1-1"]
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        worker.take_identity()
        allow(LONG, OTHER)
        await server.say("XADD", NEAR, "2-1", "f", "v")
        # A read that is under way when the connections end is made again.
        assert ids(await wire.heard()) == ["2-1"]


@pytest.mark.parametrize("becomes", ["one slot", "several"])
async def test_rules_that_change(worker: WorkerHarness, becomes: str) -> None:
    """A wait goes on by the new rules."""
    one = (SlotRule("key*", tag="all"),)
    before, after = ((), one) if becomes == "one slot" else (one, ())

    async def rule(rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> None:
        worker.table = worker.table.ruled(worker.table.epoch + 1, rules, coming)
        assert isinstance(await worker.verdict(worker.push()), Ack)

    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as adds:
        for key in (NEAR, FAR):
            await rule(before)
            wire.send(*READ, "$", "$")
            await waits(worker, 1)
            await rule(before, after)
            if becomes == "several":
                # Over slots, it waits until its keys may be used again. At one server it is sent again.
                assert (await wire.heard()).startswith(b"-TRYAGAIN")
            await rule(after)
            if becomes == "several":
                wire.send(*READ, "$", "$")
                await waits(worker, 1)
            await adds.say("XADD", key, "*", "f", "v")
            assert key.encode() in await wire.heard()
