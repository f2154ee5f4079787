"""Commands that wait at a server: what they give, in which order, and within which limits."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.engine.refusals import crossslot
from slotferry.redis_server import RedisServer, start_redis
from slots.slot import Slot
from tests.integration.worker.blocked import Blocked, blocked_at, frozen
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.replicated import PROMPT, Gate, eventually
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
pytestmark = pytest.mark.parametrize("kept", [0, 3], ids=["made", "kept"])

SAME = "{t}"
"""Begins the keys of one slot."""


# -- as a server by itself ---------------------------------------------------------------------------------

COMPARED = """
BLPOP {t}no 0.01
BRPOP {t}no {t}other 0.01
BLMOVE {t}no {t}to LEFT RIGHT 0.01
BRPOPLPUSH {t}no {t}to 0.01
BLMPOP 0.01 2 {t}no {t}other LEFT
BZPOPMIN {t}no 0.01
BZPOPMAX {t}no 0.01
BZMPOP 0.01 1 {t}no MIN COUNT 3
XREAD BLOCK 1 STREAMS {t}no $
XREAD COUNT 1 BLOCK 1 STREAMS {t}no {t}other 0 $
RPUSH {t}list a b c d e f g h
BLPOP {t}list 0
BRPOP {t}no {t}list 1.5
blmove {t}list {t}to left right 0
BRPOPLPUSH {t}list {t}to 1e1
BLMPOP 0 2 {t}no {t}list RIGHT COUNT 2
ZADD {t}set 1 a 2 b 3 c 4 d
BZPOPMIN {t}set 0
BZPOPMAX {t}no {t}set 0x10
BZMPOP 0 1 {t}set MIN COUNT 9
XADD {t}stream 1-1 f v
XADD {t}stream 1-2 f w
XREAD BLOCK 0 STREAMS {t}stream 0
XREAD BLOCK 0 COUNT 1 STREAMS {t}stream {t}no 1-1 0
XREAD STREAMS {t}stream 1-1
XREAD STREAMS {t}stream $
XREAD BLOCK 1 STREAMS {t}stream $
XGROUP CREATE {t}stream group 0
XREADGROUP GROUP group me BLOCK 0 STREAMS {t}stream >
XREADGROUP GROUP group me BLOCK 1 STREAMS {t}stream >
XREADGROUP GROUP group me BLOCK 0 STREAMS {t}stream 0
XREADGROUP GROUP group me NOACK BLOCK 0 STREAMS {t}stream $
XREADGROUP GROUP none me BLOCK 0 STREAMS {t}stream >
XREADGROUP GROUP group me BLOCK 0 STREAMS {t}no >
XREADGROUP BLOCK 0 STREAMS {t}stream >
SET {t}string x
BLPOP {t}string 0
BLPOP {t}no {t}string 0
BZPOPMIN {t}string 0
BZMPOP 0 1 {t}string MAX
BLMOVE {t}string {t}to LEFT LEFT 0
BLMOVE {t}to {t}string LEFT LEFT 0
XREAD BLOCK 0 STREAMS {t}string $
XREAD BLOCK 0 STREAMS {t}no {t}string wrong $
XREAD BLOCK 0 STREAMS {t}string {t}no $ wrong
XREAD BLOCK 0 STREAMS {t}no +
BLPOP {t}no -1
BLPOP {t}no x
BLPOP {t}no inf
BLPOP {t}no nan
BLPOP {t}no 1e400
BLPOP {t}no 1_0
BLPOP {t}no
BLMOVE {t}no {t}to UP LEFT 0
BLMOVE {t}no {t}to UP LEFT x
BLMOVE {t}no {t}to LEFT LEFT x
BRPOPLPUSH {t}no {t}to -0.1
BLMPOP x 1 {t}no LEFT
BLMPOP x y {t}no LEFT
BLMPOP -1 1 {t}no LEFT COUNT 1
BLMPOP 0.01 0 {t}no LEFT
BLMPOP 0.01 2 {t}no LEFT
BLMPOP 0.01 1 {t}no UP
BLMPOP 0.01 1 {t}no LEFT COUNT 0
BZMPOP 0.01 1 {t}no MIN MAX
XREAD BLOCK x STREAMS {t}no $
XREAD BLOCK x FOO {t}no $
XREAD BLOCK -1 STREAMS {t}no $
XREAD BLOCK 1.5 STREAMS {t}no $
XREAD BLOCK 1 STREAMS {t}no {t}other $
XREAD BLOCK 1 GROUP g c STREAMS {t}no $
XREAD BLOCK 1 NOACK STREAMS {t}no $
XREAD BLOCK 1 COUNT x STREAMS {t}no $
XREAD BLOCK 1 STREAMS
XREAD BLOCK 1 COUNT 1
WAIT 0 10
WAIT -1 10
WAIT 1 1
WAIT x 1
WAIT 0 x
WAIT 0 -1
WAITAOF 0 0 0
CLIENT UNBLOCK x
CLIENT UNBLOCK 999999
CLIENT UNBLOCK 999999 WRONG
CLIENT UNBLOCK x WRONG
CLIENT UNBLOCK 999999 ERROR more
CLIENT UNBLOCK
"""


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_are_those_of_one_server(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    async with Wire(worker.settings.listen, protocol) as proxy, Wire(plain.address, protocol) as server:
        for line in COMPARED.strip().splitlines():
            words = line.split()
            assert await proxy.say(*words) == await server.say(*words), line
        # And behind MULTI nothing waits.
        for wire in (proxy, server):
            for line in ("MULTI", "BLPOP {t}no 0", "XREAD BLOCK 0 STREAMS {t}no $", "EXEC"):
                wire.send(*line.split())
        assert await proxy.heard() == await server.heard()


async def test_keys_of_several_slots_are_refused(worker: WorkerHarness) -> None:
    """But for those of test_over_slots.py and test_reads_wait_over_slots.py beside this file."""
    async with Wire(worker.settings.listen) as wire:
        for line in ("BRPOPLPUSH a b 0", "BLMOVE a b LEFT LEFT 0", "XREADGROUP GROUP g c BLOCK 0 STREAMS a b > >"):
            assert await wire.say(*line.split()) == crossslot(b"a", slot_of("a"), b"b", slot_of("b"))


WOKEN = [
    ("BLPOP {t}k 0", "RPUSH {t}k a b"),
    ("BRPOP {t}other {t}k 0", "RPUSH {t}k a b"),
    ("BLMOVE {t}k {t}to LEFT RIGHT 0", "RPUSH {t}k a b"),
    ("BRPOPLPUSH {t}k {t}to 0", "RPUSH {t}k a b"),
    ("BLMPOP 0 2 {t}other {t}k LEFT COUNT 5", "RPUSH {t}k a b"),
    ("BZPOPMIN {t}k 0", "ZADD {t}k 1 a 2 b"),
    ("BZPOPMAX {t}k 0", "ZADD {t}k 1 a 2 b"),
    ("BZMPOP 0 1 {t}k MAX COUNT 2", "ZADD {t}k 1 a 2 b"),
    ("XREAD BLOCK 0 STREAMS {t}k $", "XADD {t}k 5-1 f v"),
    ("XREAD COUNT 5 BLOCK 0 STREAMS {t}other {t}k 0 0", "XADD {t}k 5-1 f v"),
    ("XREADGROUP GROUP g me BLOCK 0 STREAMS {t}stream >", "XADD {t}stream 5-1 f v"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_push_wakes(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    owner = worker.servers[0 if slot_of(SAME) < 512 else 1]
    async with (
        Wire(worker.settings.listen, protocol) as proxy,
        Wire(worker.settings.listen) as pusher,
        Wire(plain.address, protocol) as server,
        Wire(plain.address) as server_pusher,
    ):
        for waiting, push in WOKEN:
            heard = []
            for one, other, at in ((proxy, pusher, owner), (server, server_pusher, plain)):
                await other.say("DEL", "{t}k", "{t}stream")
                await other.say("XGROUP", "CREATE", "{t}stream", "g", "$", "MKSTREAM")
                one.send(*waiting.split())
                await blocked_at(at)
                await other.say(*push.split())
                heard.append(await one.heard())
            assert heard[0] == heard[1], waiting


async def test_it_waits_in_its_own_database(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as seven, Wire(worker.settings.listen) as zero:
        await seven.say("SELECT", 7)
        seven.send("BLPOP", "{t}k", 0)
        await blocked_at(worker.servers[0 if slot_of(SAME) < 512 else 1])
        await zero.say("RPUSH", "{t}k", "wrong")
        await zero.say("SELECT", 7)
        await zero.say("RPUSH", "{t}k", "right")
        assert (await seven.heard()).endswith(b"right\r\n")


@pytest.mark.parametrize(
    "command", ["BLPOP {t}k 0.3", "BLMOVE {t}k {t}to LEFT LEFT .3", "XREAD BLOCK 300 STREAMS {t}k $"]
)
async def test_timeouts_are_not_short(worker: WorkerHarness, command: str) -> None:
    async with Wire(worker.settings.listen) as wire:
        before = time.monotonic()
        assert await wire.say(*command.split()) in (b"*-1\r\n", b"$-1\r\n")
        assert time.monotonic() - before >= 0.3


# -- order -------------------------------------------------------------------------------------------------


@pytest.mark.long
async def test_order_within_a_pipeline(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        # What was sent before has run by then, although it went another way.
        for _ in range(20):
            wire.send("RPUSH", "{t}k", "a")
            wire.send("BLPOP", "{t}k", 0)
            wire.send("RPUSH", "{t}k", "b")
            wire.send("DEL", "{t}k")
            wire.send("BLPOP", "{t}k", "0.001")
            wire.send("XREAD", "BLOCK", 1, "STREAMS", "{t}k", "$")
            wire.send("GET", "{t}none")
            assert await wire.heard() == (b":1\r\n*2\r\n$4\r\n{t}k\r\n$1\r\na\r\n:1\r\n:1\r\n*-1\r\n*-1\r\n$-1\r\n")
        # Nothing behind runs before it is over.
        wire.send("BLPOP", "{t}k", 0)
        wire.send("SET", "{t}behind", "1")
        wire.send("PING")
        await blocked_at(worker.servers[0 if slot_of(SAME) < 512 else 1])
        assert await other.say("EXISTS", "{t}behind") == b":0\r\n"
        await other.say("RPUSH", "{t}k", "x")
        assert await wire.heard() == b"*2\r\n$4\r\n{t}k\r\n$1\r\nx\r\n+OK\r\n+PONG\r\n"


@pytest.mark.parametrize("words", ["BLPOP {t}none 0.05", "XREADGROUP GROUP g me BLOCK 0 STREAMS {t}s >", "WAIT 1 10"])
async def test_in_order_nothing_overtakes_what_another_server_has_not_answered(
    worker: WorkerHarness, words: str
) -> None:
    far = next(f"k{number}" for number in range(99) if (slot_of(f"k{number}") < 512) != (slot_of(SAME) < 512))
    near, other = worker.servers if slot_of(SAME) < 512 else reversed(worker.servers)
    async with Wire(worker.settings.listen) as wire, Wire(near.address) as direct:
        await direct.say("XGROUP", "CREATE", "{t}s", "g", "0", "MKSTREAM")
        await direct.say("XADD", "{t}s", "1-1", "f", "v")
        async with frozen(other):
            wire.send("GET", far)
            wire.send(*words.split())
            async with Wire(worker.settings.listen) as bystander:
                for _ in range(20):
                    await bystander.say("EXISTS", "{t}k")
            # A pop takes what is there at once, as any other command; it waits when its turn has come.
            assert b"blocked_clients:0\r\n" in await direct.say("INFO", "clients")
            assert b"$7\r\npending\r\n:0\r\n" in await direct.say("XINFO", "GROUPS", "{t}s")
            counts = await direct.say("INFO", "commandstats")
            assert b"cmdstat_wait:" not in counts
        assert (await wire.heard()).startswith(b"$-1\r\n")


async def test_clients_are_served_in_the_order_they_came(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for number in range(1, 11):
            await blocked.add("BLPOP", "k", 0)
            await blocked_at(worker.servers[0], number)
        await pusher.say("RPUSH", "k", *range(10))
        for number, wire in enumerate(blocked.wires):
            assert (await wire.heard()).endswith(b"$1\r\n%d\r\n" % number)


async def test_two_hundred_wait_at_once(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for _ in range(200):
            await blocked.add("BLPOP", "k", 0)
        await blocked_at(worker.servers[0], 200)
        await pusher.say("RPUSH", "k", *range(100, 300))
        heard = [await wire.heard() for wire in blocked.wires]
    assert sorted(heard) == [b"*2\r\n$1\r\nk\r\n$3\r\n%d\r\n" % number for number in range(100, 300)]


async def test_the_limit_is_an_error(start_worker: StartWorker) -> None:
    worker = await start_worker(own_connections=3)
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as another:
        for _ in range(3):
            await blocked.add("BLPOP", "k", 0)
        await blocked_at(worker.servers[0], 3)
        assert (await another.say("BLPOP", "k", 0)).startswith(b"-ERR max number of blocked clients")
        await another.say("RPUSH", "k", "x")

        async def has_room() -> bool:
            return await another.say("BLPOP", "k2", "0.01") == b"*-1\r\n"

        await eventually(has_room, "the connection to come back")


async def test_the_client_list_shows_who_waits(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        number = await wire.say("CLIENT", "ID")

        async def flags() -> str:
            listed = (await other.say("CLIENT", "LIST", "ID", number[1:].strip())).decode()
            return listed.partition("flags=")[2].partition(" ")[0]

        assert (await wire.say("BRPOPLPUSH", "a", "b", 0)).startswith(b"-CROSSSLOT")
        assert await flags() == "N"
        wire.send("BLPOP", "{t}k", 0)
        await blocked_at(worker.servers[0 if slot_of(SAME) < 512 else 1])
        assert await flags() == "b"
        await other.say("RPUSH", "{t}k", "x")
        await wire.heard()
        assert await flags() == "N"


# -- clients that leave ------------------------------------------------------------------------------------


async def test_a_client_that_leaves_frees_the_server(start_worker: StartWorker, kept: int) -> None:
    worker = await start_worker()
    async with Wire(worker.settings.listen) as other:
        for line in ("BLPOP k 0", "BLMOVE k to LEFT LEFT 100", "XREAD BLOCK 0 STREAMS s $", "WAIT 3 0"):
            async with Wire(worker.settings.listen) as wire:
                wire.send(*line.replace(" to ", " k ").split())
                await blocked_at(worker.servers[0])
            await blocked_at(worker.servers[0], 0)
            await other.say("RPUSH", "k", "kept")
            assert await other.say("LRANGE", "k", 0, -1) == b"*1\r\n$4\r\nkept\r\n"
            await other.say("DEL", "k")
    # The connection is good for the next one: it waits at the server and is not unblocked by what came before.
    async with worker.direct(1) as server:
        own = [entry for entry in await server.client_list() if entry["cmd"] in ("blpop", "blmove", "wait")]
        assert len(own) <= max(2, kept)


@pytest.mark.parametrize("line", ["BLPOP k 0", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"])
async def test_a_client_that_says_no_more_gets_what_was_taken_for_it(start_worker: StartWorker, line: str) -> None:
    """As one Redis. Without anything taken, its connection ends."""
    worker = await start_worker(servers=1)
    async with Wire(worker.servers[0].address) as direct, Wire(worker.settings.listen) as wire:
        await direct.say("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        wire.send(*line.split())
        await blocked_at(worker.servers[0])
        async with frozen(worker.servers[0]):
            # It comes before the word that ends the wait.
            direct.send("RPUSH", "k", "element")
            direct.send("XADD", "s", "1-1", "f", "element")
            wire.writer.write_eof()
            await asyncio.sleep(0.2)
        assert b"element" in await wire.ended()
    async with Wire(worker.settings.listen) as wire:
        wire.send(*line.split())
        await blocked_at(worker.servers[0])
        wire.writer.write_eof()
        assert b"element" not in await wire.ended()
        await blocked_at(worker.servers[0], 0)


async def test_clients_that_leave_at_once_leave_nothing_behind(start_worker: StartWorker) -> None:
    worker = await start_worker(own_connections=40)
    for _ in range(5):
        async with Blocked(worker) as blocked:
            for _ in range(40):
                await blocked.add("BLPOP", "k", 0)
        await blocked_at(worker.servers[0], 0)
    async with Wire(worker.settings.listen) as wire:

        async def room() -> bool:
            return await wire.say("BLPOP", "k", "0.001") == b"*-1\r\n"

        await eventually(room, "a connection")
        await wire.say("RPUSH", "k", "x")
        assert await wire.say("LLEN", "k") == b":1\r\n"
        # drained: nothing of them is counted for the slot any more.
        await worker.apply([Slot(slot_of("k"), 2)])


# -- WAIT --------------------------------------------------------------------------------------------------


async def test_wait_where_nobody_owns_a_slot(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    async with Wire(worker.settings.listen) as wire:
        # The connection to the server stays.
        await wire.say("SET", "k", "x")
        await worker.apply([Slot(index) for index in range(1024)])
        for words in (("WAIT", 0, 1), ("WAITAOF", 0, 0, 1)):
            assert (await wire.say(*words)).startswith(b"-ERR no group has a server yet")


async def test_wait_counts_the_replicas_that_have_what_was_written(start_worker: StartWorker, tmp_path: Path) -> None:
    worker = await start_worker(extra=PROMPT)
    gate = await Gate.before(worker.servers[0])
    replica = await start_redis("replica", tmp_path, extra=["--replicaof", "127.0.0.1", str(gate.port)])
    try:
        async with Wire(worker.settings.listen) as wire:

            async def attached() -> bool:
                return await wire.say("WAIT", 1, 100) == b":1\r\n"

            await eventually(attached, "the replica")
            # All slots are at group 1: its replicas are all there are.
            for _ in range(20):
                wire.send("SET", "k", "x")
                wire.send("WAIT", 1, 0)
                assert await wire.heard() == b"+OK\r\n:1\r\n"
            gate.shut()
            before = time.monotonic()
            wire.send("SET", "k", "y")
            wire.send("WAIT", 1, 200)
            assert await wire.heard() == b"+OK\r\n:0\r\n"
            assert time.monotonic() - before >= 0.2
            wire.send("WAIT", 1, 0)
            await blocked_at(worker.servers[0])
            gate.open()
            assert await wire.heard() == b":1\r\n"
            # Group 2 has none: what was written there is on no replica.
            await worker.apply([Slot(index, 2) for index in range(512, 1024)])
            assert await wire.say("WAIT", 1, 100) == b":0\r\n"
    finally:
        await gate.close()
        await replica.stop()
