"""Clients that wait over slots while slots move, servers fail and rules change: no element is lost or given twice."""

import asyncio
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
from tests.integration.caching import kill_what_tells
from tests.integration.worker.blocked import Blocked, frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import INSTANCE, OTHER, WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.toandfro import each_is_given_once
from tests.integration.worker.wire import Wire

SLOT = slot_of(NEAR)
STATES = [SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED]
LONG = 600.0


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_what_is_pushed_in_any_state_of_a_move_wakes(worker: WorkerHarness, state: SlotState) -> None:
    """given clients that wait from before the move, and one that comes in the state."""
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher, worker.direct(1) as source:

        async def fetched() -> bool:
            return not await source.exists(NEAR)

        await blocked.add("BLPOP", NEAR, FAR, 0)
        await blocked.add("BRPOP", FAR, NEAR, 100)
        await waits(worker, 2)
        for one in STATES:
            if one is SlotState.FINISHED and state is not one:
                # complete: those who wait have fetched it.
                await eventually(fetched, "the key to leave the source")
            await worker.act([SLOT], one)
            if one == state:
                await blocked.add("BLMPOP", 0, 2, NEAR, FAR, "LEFT")
                pusher.send("RPUSH", NEAR, 1, 2, 3)
            if one is SlotState.MIGRATING and state is not SlotState.FINISHED:
                assert await pusher.heard() == b":3\r\n"
        await worker.apply([Slot(SLOT, 2)])
        heard = [await wire.heard() for wire in blocked.wires]
        assert await pusher.heard() == (b":3\r\n" if state is SlotState.FINISHED else b"")
        assert sorted(element for reply in heard for element in b"123" if b"\n%c\r" % element in reply) == list(b"123")
        assert await pusher.say("EXISTS", NEAR) == b":0\r\n"


async def test_what_was_pushed_at_the_source_by_another_proxy_wakes(worker: WorkerHarness) -> None:
    """The other one has not locked the slot yet when this one has."""
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[0].address) as source:
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        await worker.act([SLOT], SlotState.PREPARED)
        await source.say("RPUSH", NEAR, "a", "b")
        await worker.act([SLOT], SlotState.MIGRATING)
        assert (await wire.heard()).endswith(b"a\r\n")
        assert await source.say("EXISTS", NEAR) == b":0\r\n"
        assert await wire.say("LRANGE", NEAR, 0, -1) == b"*1\r\n$1\r\nb\r\n"


async def test_a_locked_slot_holds_up_no_other_key(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for _ in range(2):
            await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 2)
        async with Wire(worker.servers[0].address) as source:
            await source.say("RPUSH", NEAR, "near")
            assert (await blocked.wires[0].heard()).endswith(b"near\r\n")
            await waits(worker, 1)
            await worker.act([SLOT], SlotState.PREPARED)
            await source.say("RPUSH", NEAR, "near")
            await pusher.say("RPUSH", FAR, "far")
            assert (await blocked.wires[1].heard()).endswith(b"far\r\n")
            await worker.act([SLOT], SlotState.PREPARING)
            assert await source.say("LLEN", NEAR) == b":1\r\n"


@pytest.mark.long
async def test_a_timeout_that_is_over_while_the_slot_is_locked(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen, 3) as other:
        for one in (wire, other):
            one.send("BZPOPMIN", NEAR, FAR, 2)
        await waits(worker, 2)
        await worker.act([SLOT], SlotState.PREPARED)
        assert await wire.heard() == b"*-1\r\n"
        assert await other.heard() == b"_\r\n"


async def test_each_element_is_given_once_while_slots_move_to_and_fro(worker: WorkerHarness) -> None:
    """Pushes to two keys, moves of one of them, and lost connections meet in every order."""
    ports = [server.port for server in worker.servers]
    await each_is_given_once(worker, (NEAR, FAR), 150, lambda: kill_what_tells(ports))


async def test_lost_connections_lose_no_word(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as pusher:
        for number in range(20):
            wire.send("BLPOP", NEAR, FAR, 0)
            await waits(worker, 1)
            # It hears nothing of this push where the connection ends first.
            killing = asyncio.create_task(kill_what_tells([server.port for server in worker.servers]))
            await pusher.say("RPUSH", FAR, number)
            assert (await wire.heard()).endswith(b"\n%d\r\n" % number)
            await killing


async def test_a_server_that_dies_and_comes_back(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for _ in range(2):
            await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 2)
        await worker.servers[1].kill()
        # Who waits goes on, and is served by the other server.
        await pusher.say("RPUSH", NEAR, "near")
        assert (await blocked.wires[0].heard()).endswith(b"near\r\n")
        worker.servers[1].start()
        await worker.servers[1].ready()

        async def pushed() -> bool:
            return await pusher.say("RPUSH", FAR, "far") == b":1\r\n"

        await eventually(pushed, "the server to be used again")
        assert (await blocked.wires[1].heard()).endswith(b"far\r\n")


async def test_a_server_that_hangs_holds_up_no_other_key(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0, backend_connect_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for _ in range(2):
            await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 2)
        async with frozen(worker.servers[1]):
            await pusher.say("RPUSH", NEAR, "near")
            assert (await blocked.wires[0].heard()).endswith(b"near\r\n")
            # Long enough for the loss of its connection to show.
            assert (await pusher.say("RPUSH", FAR, "far")).startswith(b"-ERR server ")
        assert (await blocked.wires[1].heard()).endswith(b"far\r\n")


async def test_a_pop_whose_outcome_is_unknown_ends_the_wait(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[1].address) as server:
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        # The push is told, and then the server runs nothing more for a while.
        server.send("MULTI")
        server.send("RPUSH", FAR, "a", "b")
        server.send("CLIENT", "PAUSE", 60_000, "WRITE")
        server.send("EXEC")
        heard = await wire.heard()
        assert heard.startswith(b"-ERR server %b did not reply within" % worker.servers[1].address.encode())
        await server.say("CLIENT", "UNPAUSE")
        # No second pop was sent.
        assert await server.say("LLEN", FAR) in (b":1\r\n", b":2\r\n")


async def test_another_master(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0)
    first, second, third = worker.addresses
    await worker.apply([Slot(index, 2) for index in range(512, 1024)], [Group(1, (first,)), Group(2, (second,))])
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for number, master in enumerate((third, second, third)):
            wire = await blocked.add("BLPOP", NEAR, FAR, 0)
            await waits(worker, 1)
            await worker.apply([], [Group(2, (master,))])
            await pusher.say("RPUSH", FAR, number)
            assert (await wire.heard()).endswith(b"\n%d\r\n" % number)
        # What the new master has by then counts, too.
        wire = await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        async with Wire(second) as server:
            await server.say("RPUSH", FAR, "there")
        await worker.apply([], [Group(2, (second,))])
        assert (await wire.heard()).endswith(b"there\r\n")


async def test_old_servers_cannot_tell(worker: WorkerHarness, tmp_path: Path) -> None:
    """given a server whose HELLO is renamed away, which counts as old."""
    old = await start_redis("old", tmp_path, extra=["--rename-command", "HELLO", ""])
    try:
        async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
            wire.send("BLPOP", NEAR, FAR, 0)
            await waits(worker, 1)
            await worker.apply([], [Group(2, (old.address,))])
            text = b"-ERR a command that waits over several slots: %b is older than Redis 6" % old.address.encode()
            assert (await wire.heard()).startswith(text)
            refused = crossslot(NEAR.encode(), SLOT, FAR.encode(), slot_of(FAR))
            assert await other.say("BLPOP", NEAR, FAR, 0) == refused
            await worker.apply([], [Group(2, (worker.addresses[1],))])
            assert await other.say("BLPOP", NEAR, FAR, "0.01") == b"*-1\r\n"
    finally:
        await old.stop()


async def test_a_proxy_that_stands_down_or_is_fenced_takes_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=2, lock_hold_seconds=0.2)
    master, replica = worker.addresses
    await worker.apply([], [Group(1, (master, replica)), Group(2, ())])
    async with Wire(worker.settings.listen) as wire, Wire(master) as server, Wire(worker.settings.listen) as other:

        def allow(seconds: float, instance: str = INSTANCE) -> None:
            worker.channel.send(Allowance(instance=instance, grant=Grant(all=clock() + seconds)))

        async def stood_down() -> bool:
            return (await other.say("GET", "x")).startswith(b"-TRYAGAIN")

        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        allow(-1.0)
        await eventually(stood_down, "the proxy to stand down")
        await server.say("RPUSH", FAR, "a")
        assert await stood_down()
        assert await server.say("LLEN", FAR) == b":1\r\n"
        allow(LONG)
        assert (await wire.heard()).endswith(b"a\r\n")
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        worker.take_identity()
        allow(LONG, OTHER)

        async def renewed() -> bool:
            return OTHER.encode() in await other.say("INFO", "slotferry")

        # A pop that is under way when the connections end is not known to have run.
        await eventually(renewed, "the other identity")
        await server.say("RPUSH", NEAR, "b")
        assert (await wire.heard()).endswith(b"b\r\n")


@pytest.mark.parametrize("becomes", ["one slot", "several"])
async def test_rules_that_change(worker: WorkerHarness, becomes: str) -> None:
    """A wait goes on by the new rules."""
    one = (SlotRule("key*", tag="all"),)
    before, after = ((), one) if becomes == "one slot" else (one, ())

    async def rule(rules: tuple[SlotRule, ...], coming: tuple[SlotRule, ...] | None = None) -> None:
        worker.table = worker.table.ruled(worker.table.epoch + 1, rules, coming)
        assert isinstance(await worker.verdict(worker.push()), Ack)

    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as pusher:
        for key in (NEAR, FAR):
            await rule(before)
            wire.send("BLPOP", NEAR, FAR, 0)
            await waits(worker, 1)
            await rule(before, after)
            if becomes == "several":
                # Over slots, it waits until its keys may be used again. At one server it is sent again.
                assert (await wire.heard()).startswith(b"-TRYAGAIN")
            await rule(after)
            if becomes == "several":
                wire.send("BLPOP", NEAR, FAR, 0)
                await waits(worker, 1)
            await pusher.say("RPUSH", key, "element")
            assert (await wire.heard()).endswith(b"element\r\n")
