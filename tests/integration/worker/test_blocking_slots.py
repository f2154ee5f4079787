"""Commands that wait while slots move, servers fail and workers end: no element is lost, none is given twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from slots.messages.channel import Drain
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.blocked import Blocked, blocked_at, frozen
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.replicated import eventually
from tests.integration.worker.toandfro import each_is_given_once
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
pytestmark = pytest.mark.parametrize("kept", [0, 3], ids=["made", "kept"])
KEY = "some-key"
SLOT = slot_of(KEY)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_drained_a_moving_slot_takes_its_waiting_clients_along(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker()
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        pops = [
            ("BLPOP", KEY, 0),
            ("BRPOP", KEY, 50),
            ("BLMOVE", KEY, KEY, "LEFT", "LEFT", 0),
            ("BLMPOP", 0, 1, KEY, "LEFT"),
        ]
        for words in pops * 50:
            await blocked.add(*words, protocol=protocol)
        await blocked_at(worker.servers[0], 200)
        await worker.act([SLOT], SlotState.PREPARING)
        await blocked_at(worker.servers[0], 200)
        # Acknowledged, although nothing was pushed: no client waits at the source any more.
        await worker.act([SLOT], SlotState.PREPARED)
        await blocked_at(worker.servers[0], 0)
        await worker.act([SLOT], SlotState.MIGRATING)
        await blocked_at(worker.servers[1], 200)
        await worker.act([SLOT], SlotState.FINISHED)
        await worker.apply([Slot(SLOT, 2)])
        await blocked_at(worker.servers[1], 200)
        # One for each, whatever their order: BLMOVE gives its own back.
        await pusher.say("RPUSH", KEY, *range(100, 300))
        for wire in blocked.wires:
            assert b"$3\r\n" in await wire.heard()
        assert await pusher.say("LLEN", KEY) == b":50\r\n"
        async with worker.direct(1) as source:
            assert await source.exists(KEY) == 0


async def test_a_lock_that_is_given_up_lets_them_wait_where_they_were(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.1)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as pusher:
        wire.send("BLPOP", KEY, 0)
        await blocked_at(worker.servers[0])
        await worker.act([SLOT], SlotState.PREPARED)
        # Longer than a request is held: it has been waiting anyway, and goes on doing so.
        assert (await pusher.say("GET", KEY)).startswith(b"-TRYAGAIN")
        await worker.act([SLOT], SlotState.PREPARING)
        await blocked_at(worker.servers[0])
        await pusher.say("RPUSH", KEY, "x")
        assert (await wire.heard()).endswith(b"x\r\n")


async def test_what_is_there_already_moves_first(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as wire, worker.direct(1) as source, worker.direct(2) as target:
        await source.rpush(KEY, "a", "b")
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert (await wire.say("BLPOP", KEY, 0)).endswith(b"a\r\n")
        assert await source.exists(KEY) == 0
        assert await target.lrange(KEY, 0, -1) == [b"b"]


async def test_the_rest_of_a_timeout_goes_along(start_worker: StartWorker) -> None:
    worker = await start_worker()
    for words, place, unit in (
        (["BLPOP", KEY, "100"], 2, 1.0),
        (["BLMPOP", "100", "1", KEY, "LEFT"], 1, 1.0),
        (["XREAD", "BLOCK", "100000", "STREAMS", KEY, "0"], 2, 1000.0),
    ):
        async with Wire(worker.settings.listen) as wire, worker.direct(2) as target, target.monitor() as monitor:
            before = time.monotonic()
            wire.send(*words)
            await blocked_at(worker.servers[0])
            await worker.act([SLOT], SlotState.PREPARED)
            await asyncio.sleep(0.05)
            await worker.act([SLOT], SlotState.MIGRATING)
            async with asyncio.timeout(LIMIT):
                async for seen in monitor.listen():
                    sent = seen["command"].split()
                    if sent[0] == words[0]:
                        break
            gone = time.monotonic() - before
            assert 100 - gone - 0.002 <= float(sent[place]) / unit <= 100 - 0.05
            await worker.act([SLOT], SlotState.FINISHED)
            await worker.apply([Slot(SLOT, 1)])


@pytest.mark.long
async def test_a_timeout_that_is_over_while_the_slot_is_locked(start_worker: StartWorker) -> None:
    worker = await start_worker()
    before = time.monotonic()
    async with Blocked(worker) as blocked:
        for protocol, words in ((2, ("BLPOP", KEY, "2")), (3, ("BRPOPLPUSH", KEY, KEY, "2"))):
            await blocked.add(*words, protocol=protocol)
        await blocked_at(worker.servers[0], 2)
        await worker.act([SLOT], SlotState.PREPARED)
        assert [await wire.heard() for wire in blocked.wires] == [b"*-1\r\n", b"_\r\n"]
        assert time.monotonic() - before >= 2


@pytest.mark.parametrize("existing", ["nothing", "deleted", "entry"])
async def test_a_read_from_the_newest_entry_on_misses_nothing_and_repeats_nothing(
    start_worker: StartWorker, existing: str
) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as wire, worker.direct(1) as source:
        if existing != "nothing":
            await source.xadd(KEY, {"old": "1"}, id="1-1")
            await source.xadd(KEY, {"old": "2"}, id="1-2")
        if existing == "deleted":
            await source.xdel(KEY, "1-1", "1-2")
        wire.send("XREAD", "BLOCK", 0, "STREAMS", KEY, f"{{{KEY}}}other", "$", "$")
        await blocked_at(worker.servers[0])
        await worker.act([SLOT], SlotState.PREPARED)
        await blocked_at(worker.servers[0], 0)
        # As by another proxy that had not locked the slot yet when this one had.
        await source.xadd(KEY, {"new": "1"}, id="2-1")
        await source.xadd(KEY, {"new": "2"}, id="2-2")
        await worker.act([SLOT], SlotState.MIGRATING)
        heard = await wire.heard()
        assert heard.startswith(b"*1\r\n*2\r\n")
        assert (heard.count(b"old"), heard.count(b"new")) == (0, 2)


async def test_a_group_read_goes_on_at_the_target(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        await other.say("XGROUP", "CREATE", KEY, "g", "$", "MKSTREAM")
        wire.send("XREADGROUP", "GROUP", "g", "me", "BLOCK", 0, "STREAMS", KEY, ">")
        await blocked_at(worker.servers[0])
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        await blocked_at(worker.servers[1])
        await other.say("XADD", KEY, "9-1", "f", "v")
        assert b"9-1" in await wire.heard()
        assert b"9-1" in await other.say("XPENDING", KEY, "g")


async def test_each_element_is_given_once_while_its_slot_is_locked_time_and_again(start_worker: StartWorker) -> None:
    """Pushes, locks and unlocks meet in every order: what is popped just as the lock comes is not lost."""
    await each_is_given_once(await start_worker(), (KEY,), 100)


# -- servers that fail, and the worker's end ---------------------------------------------------------------


async def test_a_server_that_dies_is_named(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        wire.send("BLPOP", KEY, 0)
        other.send("WAIT", 1, 0)
        await blocked_at(worker.servers[0], 2)
        await worker.servers[0].kill()
        for one in (wire, other):
            assert (await one.heard()).startswith(b"-ERR server %b closed" % worker.servers[0].address.encode())
        assert (await wire.say("BLPOP", KEY, 0)).startswith(b"-ERR server %b" % worker.servers[0].address.encode())
        worker.servers[0].start()
        await worker.servers[0].ready()

        async def again() -> bool:
            return await wire.say("BLPOP", KEY, "0.01") == b"*-1\r\n"

        await eventually(again, "the server to be used again")


async def test_a_server_that_hangs_refuses_the_lock_and_loses_nobody(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=1.0)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        wire.send("BLPOP", KEY, 0)
        await blocked_at(worker.servers[0])
        async with frozen(worker.servers[0]):
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            assert (await worker.verdict(epoch)).type == "nack"
        # It waits at the server again, or still has to.
        await blocked_at(worker.servers[0])
        await worker.act([SLOT], SlotState.PREPARED)
        await worker.act([SLOT], SlotState.MIGRATING)
        await other.say("RPUSH", KEY, "x")
        assert (await wire.heard()).endswith(b"x\r\n")


@pytest.mark.long
async def test_bounded_a_server_that_hangs(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    address = worker.servers[0].address.encode()
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        for one, words in ((wire, ("BLPOP", KEY, "3")), (other, ("BLPOP", KEY, 0))):
            one.send(*words)
        await blocked_at(worker.servers[0], 2)
        async with frozen(worker.servers[0]):
            assert (await wire.heard()).startswith(b"-ERR server %b did not reply within" % address)
            worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            assert (await other.heard()).startswith(b"-ERR server %b did not end a blocked command" % address)
        await blocked_at(worker.servers[0], 0)


async def test_a_worker_that_ends_does_not_wait_for_them(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Blocked(worker) as blocked:
        for words in (("BLPOP", KEY, 0), ("XREAD", "BLOCK", 0, "STREAMS", KEY, "$"), ("WAIT", 1, 0)):
            await blocked.add(*words)
        await blocked_at(worker.servers[0], 3)
        worker.channel.send(Drain())
        assert [await wire.ended() for wire in blocked.wires] == [b""] * 3
        assert await worker.process.wait(LIMIT) == 0
        await blocked_at(worker.servers[0], 0)
