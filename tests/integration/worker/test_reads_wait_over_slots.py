"""XREAD with BLOCK of streams of several slots: what it gives, who is woken, and how it ends."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import pytest

from proxy.commands.keyreads import MOST_BYTES, MOST_KEYS, too_many_bytes
from proxy.engine.refusals import crossslot
from slotferry.redis_server import RedisServer
from slots.messages.channel import Drain
from tests.integration.worker.blocked import Blocked, blocked_at
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, calls, told_of, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

READ = ("XREAD", "BLOCK", 0, "STREAMS", NEAR, FAR)


COMPARED = """
XREAD BLOCK 1 STREAMS no none 0 $
XREAD BLOCK 1 COUNT 1 STREAMS no none $ $
XADD far 1-1 f v
XADD far 1-2 f v
XADD near 5-1 f v
xread block 0 streams no far near 0 0 0
XREAD BLOCK 0 COUNT 1 STREAMS near far 0 0
XREAD COUNT 1 BLOCK 0 COUNT 2 STREAMS near far 0 0
XREAD BLOCK 5 BLOCK 0 STREAMS near far 5-1 1-1
XREAD BLOCK 1 STREAMS near far 5-1 1-2
XREAD BLOCK 1 STREAMS near far $ $
XREAD BLOCK 0 STREAMS near far $ 1
XREAD BLOCK 0 STREAMS far far near 0 1-1 $
XREAD BLOCK 1 STREAMS far far near $ 1-2 7
XDEL near 5-1
XREAD BLOCK 1 STREAMS near none 0 0
SET string x
XREAD BLOCK 0 STREAMS string far $ $
XREAD BLOCK 0 STREAMS near string $ $
XREAD BLOCK 0 STREAMS far string 0 0
XREAD BLOCK 0 STREAMS far string wrong 0
XREAD BLOCK 0 STREAMS string far 0 wrong
XREAD BLOCK 0 STREAMS far near > 0
XREAD BLOCK 0 STREAMS far near $ +
XREAD BLOCK 0 STREAMS far no near 0 0
XREAD BLOCK x STREAMS far near 0 0
XREAD BLOCK -1 STREAMS far near 0 0
XREAD BLOCK 1.5 STREAMS far near 0 0
XREAD BLOCK 1 COUNT x STREAMS far near 0 0
XREAD BLOCK 1 NOACK STREAMS far near 0 0
XREAD BLOCK 1 GROUP g c STREAMS far near 0 0
XREAD BLOCK 1 STREAMS
XREAD BLOCK 1
"""


@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_are_those_of_one_server(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    async with Wire(worker.settings.listen, protocol) as proxy, Wire(plain.address, protocol) as server:
        for line in COMPARED.strip().splitlines():
            words = line.split()
            assert await proxy.say(*words) == await server.say(*words), line


WOKEN = [
    ("XREAD BLOCK 0 STREAMS no far $ $", "XADD far 5-1 f v"),
    ("XREAD BLOCK 0 STREAMS far no $ 0", "XADD far 5-1 f v"),
    ("XREAD BLOCK 100000 COUNT 1 STREAMS no far $ 2", "MULTI|XADD far 5-1 f v|XADD far 5-2 f v|EXEC"),
    ("XREAD BLOCK 0 STREAMS no far $ 7", "XADD far 5-1 f v|XADD far 7-0 f v|XADD far 7-1 f v"),
    ("XREAD BLOCK 0 STREAMS no far $ $", "SET far x|DEL far|XADD far 5-1 f v"),
    ("XREAD BLOCK 0 STREAMS no far 0 $", "RPUSH far x|LPOP far|XADD far 5-1 f v"),
    ("XREAD BLOCK 0 STREAMS no far $ $", "RENAME {far}source far"),
    ("XREAD BLOCK 0 STREAMS no far $ $", "COPY {far}source far"),
    ("XREAD BLOCK 0 STREAMS no far $ $", "EVAL return{redis.call('xadd',KEYS[1],'5-1','f','v')} 1 far"),
    ("XREAD BLOCK 0 STREAMS far far no $ 5 $", "XADD far 3-1 f v"),
    ("XREAD BLOCK 0 STREAMS no there $ $", "XADD there 9-2 f v"),
    ("XREAD BLOCK 0 STREAMS no there $ $", "XDEL there 9-1|XTRIM there MAXLEN 0|XADD there 9-2 f v"),
    ("XREAD BLOCK 0 STREAMS no there $ 9-1", "FLUSHALL|XADD there 9-2 f v"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_change_wakes(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    for waiting, changes in WOKEN:
        heard = []
        for address, at in ((worker.settings.listen, worker.servers), (plain.address, [plain])):
            async with Wire(address, protocol) as one, Wire(address) as other:
                await other.say("FLUSHALL")
                await other.say("XADD", "{far}source", "8-1", "f", "v")
                await other.say("XADD", "there", "9-1", "f", "v")
                one.send(*waiting.split())
                if at[0] is plain:
                    await blocked_at(plain)
                else:
                    await told_of(at, sum(word in waiting.split() for word in ("no", "there", "far")))
                for change in changes.split("|"):
                    other.send(*change.split())
                assert b"-ERR" not in await other.heard(), changes
                heard.append(await one.heard())
        assert heard[0] == heard[1], (waiting, changes)


async def test_what_is_added_before_the_servers_tell_is_not_missed(worker: WorkerHarness) -> None:
    """Entries come while the client begins to wait: after its newest ids are known, and before changes are told."""
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[1].address) as server:
        for number in range(1, 60):
            wire.send(*READ, "$", f"{number - 1}-5")
            # Directly at the server, at a time that has nothing to do with the worker's.
            await asyncio.sleep((number % 12) / 4000)
            assert (await server.say("XADD", FAR, f"{number}-1", "f", "v")).startswith(b"$")
            assert b"$%d\r\n%d-1\r\n" % (len(str(number)) + 2, number) in await wire.heard()


async def test_newest_means_when_it_began_to_wait(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        await other.say("XADD", FAR, "1-1", "f", "old")
        await other.say("XADD", FAR, "9-9", "f", "deleted")
        await other.say("XDEL", FAR, "9-9")
        wire.send(*READ, "$", "$")
        await told_of(worker.servers, 2)
        for number in range(3):
            # It wakes the client, which finds nothing.
            await other.say("XADD", NEAR, f"1-{number + 1}", "f", "v")
            await other.say("XADD", FAR, f"10-{number}", "f", "new")
            heard = await wire.heard()
            assert b"old" not in heard
            assert b"v" in heard or b"new" in heard
            wire.send(*READ, "$", "$")
            await told_of(worker.servers, 2)
        await other.say("XDEL", FAR, "1-1")
        await other.say("XADD", FAR, "11-1", "f", "last")
        assert b"last" in await wire.heard()


async def test_the_streams_that_have_entries_are_given(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        one, two = f"{{{FAR}}}one", f"{{{FAR}}}two"
        wire.send("XREAD", "BLOCK", 0, "STREAMS", NEAR, two, one, "$", "$", "$")
        await told_of(worker.servers, 3)
        for line in ("MULTI", f"XADD {one} 1-1 f v", f"XADD {two} 1-1 f v", "EXEC"):
            other.send(*line.split())
        heard = await wire.heard()
        assert heard.startswith(b"*2\r\n")
        assert heard.index(two.encode()) < heard.index(one.encode())


async def test_it_waits_in_its_own_database(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as seven, Wire(worker.settings.listen) as zero:
        await seven.say("SELECT", 7)
        seven.send(*READ, "$", "$")
        await told_of(worker.servers, 2)
        await zero.say("XADD", FAR, "1-1", "f", "wrong")
        await zero.say("SELECT", 7)
        await zero.say("XADD", FAR, "1-1", "f", "right")
        assert b"right" in await seven.heard()


async def test_all_who_wait_are_served(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as other:
        for number in range(30):
            await blocked.add(*READ, *(("$", "$") if number % 2 else ("0", "0")))
        await waits(worker, 30)
        before = await calls(worker.servers, "xread")
        await other.say("XADD", FAR, "1-1", "f", "v")
        for wire in blocked.wires:
            assert b"1-1" in await wire.heard()
        # Each has read the stream that has changed, and nothing else.
        assert await calls(worker.servers, "xread") - before == 30
        assert await other.say("XLEN", FAR) == b":1\r\n"


async def test_those_who_take_and_those_who_read_share_a_key(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as other:
        pops = await blocked.add("BLPOP", NEAR, FAR, 0)
        reads = await blocked.add(*READ, "$", "$")
        await waits(worker, 2)
        await other.say("XADD", FAR, "1-1", "f", "v")
        assert b"1-1" in await reads.heard()
        await other.say("DEL", FAR)
        reads.send(*READ, "$", "$")
        await waits(worker, 2)
        await other.say("RPUSH", FAR, "element")
        assert (await pops.heard()).endswith(b"element\r\n")
        await other.say("XADD", NEAR, "1-1", "f", "v")
        assert b"1-1" in await reads.heard()


async def test_timeouts_are_not_short(worker: WorkerHarness) -> None:
    for protocol, nothing in ((2, b"*-1\r\n"), (3, b"_\r\n")):
        async with Wire(worker.settings.listen, protocol) as wire:
            before = time.monotonic()
            assert await wire.say("XREAD", "BLOCK", 300, "STREAMS", NEAR, FAR, "$", "0") == nothing
            assert time.monotonic() - before >= 0.3


async def test_order_within_a_pipeline(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        for number in range(1, 20):
            wire.send("XADD", FAR, f"{number}-0", "f", "v")
            wire.send(*READ, "$", number - 1)
            wire.send("XREAD", "BLOCK", 1, "STREAMS", NEAR, FAR, "$", "$")
            wire.send("GET", "none")
            heard = await wire.heard()
            assert heard.startswith(b"$")
            assert heard.endswith(b"*-1\r\n$-1\r\n")
            assert heard.count(b"%d-0" % number) == 2
        wire.send(*READ, "$", "$")
        wire.send("SET", "behind", "1")
        await told_of(worker.servers, 2)
        assert await other.say("EXISTS", "behind") == b":0\r\n"
        await other.say("XADD", FAR, "99-1", "f", "x")
        assert (await wire.heard()).endswith(b"x\r\n+OK\r\n")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_client_unblock(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    for reason in ([], ["timeout"], ["ERROR"]):
        heard = []
        for address in (worker.settings.listen, plain.address):
            async with Wire(address, protocol) as wire, Wire(address) as other:
                number = int((await wire.say("CLIENT", "ID"))[1:])
                wire.send(*READ, "$", "$")
                await (blocked_at(plain) if address == plain.address else waits(worker, 1))
                said = await other.say("CLIENT", "UNBLOCK", number, *reason)
                heard.append((said, await wire.heard(), await other.say("CLIENT", "UNBLOCK", number)))
        assert heard[0] == heard[1], reason
        assert heard[0][0] == b":1\r\n"


@pytest.mark.parametrize("how", ["close", "half", "kill"])
async def test_a_client_that_leaves(worker: WorkerHarness, how: str) -> None:
    async with Wire(worker.settings.listen) as other:
        async with Wire(worker.settings.listen) as wire:
            number = (await wire.say("CLIENT", "ID"))[1:].strip()
            wire.send(*READ, "$", "$")
            await waits(worker, 1)
            if how == "close":
                wire.writer.close()
                await wire.writer.wait_closed()
            elif how == "half":
                wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
                assert await wire.ended() == b""
            else:
                assert await other.say("CLIENT", "KILL", "ID", number) == b":1\r\n"
        await waits(worker, 0)
        before = await calls(worker.servers, "xread")
        await other.say("XADD", FAR, "1-1", "f", "v")
        await waits(worker, 0)
        assert await calls(worker.servers, "xread") == before


async def test_a_worker_that_ends(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked:
        for _ in range(3):
            await blocked.add(*READ, "$", "$")
        await waits(worker, 3)
        worker.channel.send(Drain())
        assert [await wire.ended() for wire in blocked.wires] == [b""] * 3
    await worker.process.wait(LIMIT)


async def test_behind_multi_nothing_waits(worker: WorkerHarness) -> None:
    refused = crossslot(NEAR.encode(), slot_of(NEAR), FAR.encode(), slot_of(FAR))
    async with Wire(worker.settings.listen) as wire:
        wire.send("MULTI")
        wire.send(*READ, "$", "$")
        wire.send("EXEC")
        assert await wire.heard() == b"+OK\r\n" + refused + (
            b"-EXECABORT Transaction discarded because of previous errors.\r\n"
        )
        assert await wire.say("XREADGROUP", "GROUP", "g", "c", *READ[1:], ">", ">") == refused


async def test_users(start_worker: StartWorker) -> None:
    users = [
        {"name": "default", "no_password": True},
        {"name": "reads", "password": "p", "read_only": True},
        {"name": "some", "password": "p", "rules": f"~{NEAR} ~no +xread"},
        {"name": "gives-way", "password": "p", "sheddable": True},
    ]
    worker = await start_worker(users=users)
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(Talk(worker.settings.listen)) for _ in range(4)]
        writer, readonly, some, sheddable = wires
        for wire, user in zip(wires[1:], ("reads", "some", "gives-way"), strict=True):
            assert await wire.ask("AUTH", user, "p") == b"+OK\r\n"
        assert (await some.ask(*READ, "$", "$")).startswith(b"-NOPERM ")
        some.send("XREAD", "BLOCK", 0, "STREAMS", "no", NEAR, "$", "$")
        for wire in (readonly, sheddable):
            wire.send(*READ, "$", "$")
        await told_of(worker.servers, 3)
        await waits(worker, 3)
        await writer.ask("XADD", NEAR, "1-1", "f", "v")
        for wire in (readonly, some, sheddable):
            assert b"1-1" in await wire.reply()


async def test_limits(worker: WorkerHarness) -> None:
    none = [f"none:{number}" for number in range(MOST_KEYS + 1)]
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        said = await wire.say("XREAD", "BLOCK", 0, "STREAMS", *none, *["$"] * len(none))
        assert said.startswith(b"-ERR XREAD over several slots: the proxy reads at most %d keys" % MOST_KEYS)
        wire.send("XREAD", "BLOCK", 0, "STREAMS", *none[1:], *["$"] * MOST_KEYS)
        await told_of(worker.servers, MOST_KEYS)
        await waits(worker, 1)
        before = await calls(worker.servers, "xread")
        await other.say("XADD", none[-1], "1-1", "f", "v")
        assert b"1-1" in await wire.heard()
        # One of a thousand has changed.
        assert await calls(worker.servers, "xread") - before == 1
        value = "v" * (MOST_BYTES // 3)
        wire.send(*READ, "$", "$")
        await waits(worker, 1)
        for line in (("MULTI",), *(("XADD", FAR, f"{number}-1", "f", value) for number in range(1, 5)), ("EXEC",)):
            other.send(*line)
        assert await wire.heard() == too_many_bytes("XREAD")


@pytest.mark.parametrize(
    ("right", "error"),
    [
        ("client|tracking", b"-ERR a command that waits over several slots: server %b says: NOPERM"),
        ("exists", b"-NOPERM "),
        ("xinfo|stream", b"-NOPERM "),
        ("xread", b"-NOPERM "),
    ],
)
async def test_a_server_where_the_proxy_lacks_a_right_says_so(worker: WorkerHarness, right: str, error: bytes) -> None:
    address = worker.servers[1].address.encode()
    async with Wire(worker.servers[1].address) as server, Wire(worker.settings.listen) as wire:
        await server.say("ACL", "SETUSER", "default", f"-{right}")
        said = await wire.say(*READ, "$", "0" if right == "xread" else "$")
        assert said.startswith(error.replace(b"%b", address))
        await server.say("ACL", "SETUSER", "default", f"+{right}")

        async def waits_again() -> bool:
            return await wire.say("XREAD", "BLOCK", 10, "STREAMS", NEAR, FAR, "$", "$") == b"*-1\r\n"

        await eventually(waits_again, "the server to be asked again")
