"""BLPOP and its like for keys of several slots: what they give, in which order, who is woken, and the limits."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from proxy.commands.blocking.firstkey import MOST_KEYS
from proxy.engine.refusals import crossslot
from slotferry.redis_server import RedisServer
from slots.messages.channel import Drain
from tests.integration.worker.blocked import Blocked, blocked_at
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.overslots import FAR, NEAR, calls, told_of, waits
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]


# -- as a server by itself ---------------------------------------------------------------------------------

COMPARED = """
BLPOP no none 0.01
BRPOP no none .02
BZPOPMIN no none 0.01
BZPOPMAX no none 1e-2
BLMPOP 0.01 2 no none LEFT
BZMPOP 0.01 3 no none nowhere MAX COUNT 3
RPUSH far a b c d e f g h
RPUSH near 1 2 3
blpop no far near 0
BRPOP near far 1.5
BLPOP near no near far 0
BLMPOP 0 2 no far RIGHT COUNT 2
BLMPOP 0 2 far near left
ZADD set 1 a 2.5 b 3 c 4 d 1e300 e -inf f
ZADD other 7 g
BZPOPMIN set other 0
BZPOPMAX no set 0x10
BZPOPMAX no set 0x10
BZPOPMIN no none other 0
BZMPOP 0 2 no set MIN COUNT 9
SET string x
BLPOP string far 0
BLPOP no string far 0
BLPOP far string 0
BRPOP no set string far 0
BZPOPMIN no string 0
BZPOPMIN far string 0
BLMPOP 0 2 no string LEFT
BLPOP far no -1
BLPOP string no x
BLPOP far no inf
BLPOP no none nan
BLPOP no none 1_0
BLPOP no none
BLMPOP x 2 far no LEFT
BLMPOP -1 2 far no LEFT COUNT 1
BLMPOP 0.01 0 far no LEFT
BLMPOP 0.01 3 far no LEFT
BLMPOP 0.01 2 far no UP
BLMPOP 0.01 2 no far LEFT COUNT 0
BLMPOP 0.01 2 no far LEFT COUNT 1 more
BZMPOP 0.01 2 far no MIN MAX
LRANGE far 0 -1
LRANGE near 0 -1
"""


@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_are_those_of_one_server(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    async with Wire(worker.settings.listen, protocol) as proxy, Wire(plain.address, protocol) as server:
        for line in COMPARED.strip().splitlines():
            words = line.split()
            assert await proxy.say(*words) == await server.say(*words), line


WOKEN = [
    ("BLPOP no far 0", "RPUSH far a b"),
    ("BRPOP far no 0", "RPUSH far a b"),
    ("BZPOPMIN no none far 0", "ZADD far 1 a 2 b"),
    ("BZPOPMAX far no 100", "ZADD far 1 a 2 b"),
    ("BLMPOP 0 2 no far LEFT COUNT 5", "RPUSH far a b"),
    ("BZMPOP 0 2 far no MAX COUNT 2", "ZADD far 1 a 2 b"),
    ("BLPOP no far 0", "LMOVE {far}source far LEFT LEFT"),
    ("BLPOP no far 0", "RENAME {far}source far"),
    ("BLPOP no far 0", "COPY {far}source far"),
    ("BLPOP no far 0", "SORT {far}source ALPHA STORE far"),
    ("BLPOP no far 0", "EVAL return{redis.call('rpush',KEYS[1],'a')} 1 far"),
    ("BLPOP no far 0", "LINSERT far BEFORE x a|RPUSH far z"),
    ("BLPOP no far 0", "SET far x|DEL far|RPUSH far z"),
    ("BZPOPMIN no far 0", "RPUSH far x|DEL far|ZADD far 1 z"),
    ("BLPOP no far 0", "SET far x|RENAME {far}source far"),
    ("BLPOP no far 0", "MULTI|RPUSH far a|LPOP far|EXEC|RPUSH far z"),
    ("BLPOP no far 0", "FLUSHALL|RPUSH far z"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_change_wakes(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    for waiting, pushes in WOKEN:
        heard = []
        for address, at in ((worker.settings.listen, worker.servers), (plain.address, [plain])):
            async with Wire(address, protocol) as one, Wire(address) as other:
                await other.say("FLUSHALL")
                await other.say("RPUSH", "{far}source", "s")
                one.send(*waiting.split())
                if at[0] is plain:
                    await blocked_at(plain)
                else:
                    await told_of(at, sum(word in waiting.split() for word in ("no", "none", "far")))
                for push in pushes.split("|"):
                    other.send(*push.split())
                assert b"-ERR" not in await other.heard(), pushes
                heard.append(await one.heard())
        assert heard[0] == heard[1], (waiting, pushes)


async def test_it_waits_in_its_own_database(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as seven, Wire(worker.settings.listen) as zero:
        await seven.say("SELECT", 7)
        seven.send("BLPOP", NEAR, FAR, 0)
        await told_of(worker.servers, 2)
        await zero.say("RPUSH", FAR, "wrong")
        await zero.say("SELECT", 7)
        await zero.say("RPUSH", FAR, "right")
        assert (await seven.heard()).endswith(b"right\r\n")


@pytest.mark.parametrize("words", ["BLPOP {} {} 0.3", "BZPOPMAX {} {} .3", "BLMPOP .3 2 {} {} LEFT"])
async def test_timeouts_are_not_short(worker: WorkerHarness, words: str) -> None:
    async with Wire(worker.settings.listen) as wire:
        before = time.monotonic()
        assert await wire.say(*words.format(NEAR, FAR).split()) == b"*-1\r\n"
        assert time.monotonic() - before >= 0.3


async def test_the_first_key_with_something_counts_also_of_those_that_changed_together(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        for keys in ((NEAR, FAR), (FAR, NEAR)):
            for _ in range(5):
                await other.say("MSET", "x", "1")
                await other.say("RPUSH", NEAR, "element")
                await other.say("RPUSH", FAR, "element")
                assert f"\n{keys[0]}\r" in (await wire.say("BLPOP", *keys, 0)).decode()
                assert f"\n{keys[1]}\r" in (await wire.say("BLPOP", *keys, 0)).decode()


async def test_order_within_a_pipeline(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        for _ in range(20):
            wire.send("RPUSH", FAR, "a")
            wire.send("BLPOP", NEAR, FAR, 0)
            wire.send("BLPOP", NEAR, FAR, "0.001")
            wire.send("GET", "none")
            key = b"$%d\r\n%b\r\n" % (len(FAR), FAR.encode())
            assert await wire.heard() == b":1\r\n*2\r\n%b$1\r\na\r\n*-1\r\n$-1\r\n" % key
        wire.send("BLPOP", NEAR, FAR, 0)
        wire.send("SET", "behind", "1")
        await told_of(worker.servers, 2)
        assert await other.say("EXISTS", "behind") == b":0\r\n"
        await other.say("RPUSH", FAR, "x")
        assert (await wire.heard()).endswith(b"x\r\n+OK\r\n")


# -- clients beside each other -----------------------------------------------------------------------------


async def test_clients_are_served_in_the_order_they_came(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for number in range(10):
            await blocked.add("BLPOP", *((NEAR, FAR) if number % 2 else (FAR, NEAR)), 0)
            await waits(worker, number + 1)
        # One key after the other: who looks at one is passed over at another.
        for key, first in ((FAR, 0), (NEAR, 5)):
            await pusher.say("RPUSH", key, *range(first, first + 5))
            for number in range(first, first + 5):
                assert (await blocked.wires[number].heard()).endswith(b"\n%d\r\n" % number)
            await waits(worker, 5 - first)


async def test_a_client_that_comes_later_takes_nothing_from_one_that_waits(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        first = await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        for _ in range(20):
            # Both come to the worker together.
            pusher.send("RPUSH", FAR, "element")
            later = await blocked.add("BLPOP", FAR, NEAR, 0)
            assert (await first.heard()).endswith(b"element\r\n")
            await pusher.heard()
            await waits(worker, 1)
            first = later
        assert await pusher.say("RPUSH", NEAR, "last") == b":1\r\n"
        assert (await first.heard()).endswith(b"last\r\n")


async def test_one_element_wakes_one_client_of_many(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        for _ in range(50):
            await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 50)
        before = await calls(worker.servers, "lpop")
        await pusher.say("RPUSH", FAR, "only")
        assert (await blocked.wires[0].heard()).endswith(b"only\r\n")
        await waits(worker, 49)
        # One took it. Another one may have looked when the pop was told as a change.
        assert await calls(worker.servers, "lpop") - before <= 4
        for wire in blocked.wires[1:]:
            await pusher.say("RPUSH", NEAR, "next")
            assert (await wire.heard()).endswith(b"next\r\n")
        assert await pusher.say("EXISTS", NEAR, FAR) == b":0\r\n"


async def test_those_who_wait_for_another_type_are_not_passed_over(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as other:
        lists = await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        sets = await blocked.add("BZPOPMIN", NEAR, FAR, 0)
        await waits(worker, 2)
        await other.say("ZADD", FAR, 1, "member")
        assert b"member" in await sets.heard()
        await other.say("RPUSH", FAR, "element")
        assert b"element" in await lists.heard()
        # Who comes to a key of the wrong type is told so, though others wait there.
        lists.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        await other.say("SET", FAR, "x")
        assert (await sets.say("BLPOP", NEAR, FAR, 0)).startswith(b"-WRONGTYPE ")
        await other.say("DEL", FAR)
        await other.say("RPUSH", FAR, "element")
        assert b"element" in await lists.heard()


async def test_clients_of_one_slot_and_of_several_share_a_key(worker: WorkerHarness) -> None:
    async with Blocked(worker) as blocked, Wire(worker.settings.listen) as pusher:
        await blocked.add("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        await blocked.add("BLPOP", FAR, 0)
        await blocked_at(worker.servers[1])
        await pusher.say("RPUSH", FAR, 1, 2)
        heard = [await wire.heard() for wire in blocked.wires]
        assert sorted(reply[-3:] for reply in heard) == [b"1\r\n", b"2\r\n"]


# -- the end of a wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_client_unblock(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    for reason in ([], ["timeout"], ["ERROR"]):
        heard = []
        for address in (worker.settings.listen, plain.address):
            async with Wire(address, protocol) as wire, Wire(address) as other:
                number = int((await wire.say("CLIENT", "ID"))[1:])
                wire.send("BLPOP", NEAR, FAR, 0)
                await (blocked_at(plain) if address == plain.address else waits(worker, 1))
                said = await other.say("CLIENT", "UNBLOCK", number, *reason)
                heard.append((said, await wire.heard(), await other.say("CLIENT", "UNBLOCK", number)))
                # It takes nothing any more.
                assert await other.say("RPUSH", FAR, "x") == b":1\r\n"
                assert await other.say("LLEN", FAR) == b":1\r\n"
                await other.say("DEL", FAR)
        assert heard[0] == heard[1], reason
        assert heard[0][0] == b":1\r\n"


@pytest.mark.parametrize("how", ["close", "half", "kill"])
async def test_nothing_is_taken_for_a_client_that_has_left(worker: WorkerHarness, how: str) -> None:
    async with Wire(worker.settings.listen) as other:
        for _ in range(20):
            async with Wire(worker.settings.listen) as wire:
                number = (await wire.say("CLIENT", "ID"))[1:].strip()
                wire.send("BLPOP", NEAR, FAR, 0)
                await waits(worker, 1)
                if how == "close":
                    wire.writer.close()
                    await wire.writer.wait_closed()
                elif how == "half":
                    wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
                else:
                    assert await other.say("CLIENT", "KILL", "ID", number) == b":1\r\n"
                assert await other.say("RPUSH", FAR, "element") == b":1\r\n"
                if how == "half":
                    assert await wire.ended() == b""
            await waits(worker, 0)
            assert await other.say("LPOP", FAR) == b"$7\r\nelement\r\n"


async def test_a_worker_that_ends_or_dies_takes_nothing_along(start_worker: StartWorker) -> None:
    for dies in (False, True):
        worker = await start_worker()
        async with Blocked(worker) as blocked:
            for _ in range(3):
                await blocked.add("BLPOP", NEAR, FAR, 0)
            await waits(worker, 3)
            if dies:
                await worker.process.kill()
            else:
                worker.channel.send(Drain())
            assert [await wire.ended() for wire in blocked.wires] == [b""] * 3
        await worker.process.wait(LIMIT)
        async with Wire(worker.servers[0].address) as server:
            await server.say("RPUSH", FAR, "x")
            assert await server.say("LLEN", FAR) == b":1\r\n"


async def test_behind_multi_nothing_waits(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire:
        wire.send("MULTI")
        wire.send("BLPOP", NEAR, FAR, 0)
        wire.send("EXEC")
        refused = crossslot(NEAR.encode(), slot_of(NEAR), FAR.encode(), slot_of(FAR))
        assert await wire.heard() == b"+OK\r\n" + refused + (
            b"-EXECABORT Transaction discarded because of previous errors.\r\n"
        )


async def test_users_may_not_wait_where_they_may_not_write(start_worker: StartWorker) -> None:
    users = [
        {"name": "default", "no_password": True, "read_only": True},
        {"name": "some", "password": "some", "databases": [0]},
    ]
    worker = await start_worker(users=users)
    async with Wire(worker.settings.listen) as wire:
        refused = await wire.say("BLPOP", NEAR, 0)
        assert refused.startswith(b"-")
        assert await wire.say("BLPOP", NEAR, FAR, 0) == refused
        await wire.say("AUTH", "some", "some")
        await wire.say("SELECT", 5)
        await wire.say("RPUSH", FAR, "x")
        assert (await wire.say("BLPOP", NEAR, FAR, 0)).endswith(b"x\r\n")


async def test_users_wait_for_keys_that_they_may_use(start_worker: StartWorker) -> None:
    users = [
        {"name": "default", "no_password": True},
        {"name": "some", "password": "some", "rules": f"~{NEAR} ~no +blpop"},
    ]
    worker = await start_worker(users=users)
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        for key in (NEAR, FAR):
            await other.say("RPUSH", key, "x")
        wire.send("AUTH", "some", "some")
        wire.send("BLPOP", "no", FAR, 0)
        wire.send("BLPOP", "no", NEAR, 0)
        assert await wire.read(len(b"+OK\r\n-NOPERM ")) == b"+OK\r\n-NOPERM "
        async with asyncio.timeout(LIMIT):
            await wire.reader.readuntil(b"$1\r\nx\r\n")
        assert await other.say("EXISTS", NEAR, FAR) == b":1\r\n"


# -- limits ------------------------------------------------------------------------------------------------


async def test_bounded_the_keys_of_a_request(worker: WorkerHarness) -> None:
    keys = [f"many:{number}" for number in range(MOST_KEYS + 1)]
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        said = await wire.say("BLPOP", *keys, 0)
        assert said.startswith(b"-ERR BLPOP over several slots: the proxy waits for at most %d keys" % MOST_KEYS)
        wire.send("BLPOP", *keys[1:], 0)
        await told_of(worker.servers, MOST_KEYS)
        await other.say("RPUSH", keys[-1], "x")
        assert (await wire.heard()).endswith(b"x\r\n")


async def test_the_client_list_shows_who_waits(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
        await waits(worker, 0)
        wire.send("BLPOP", NEAR, FAR, 0)
        await waits(worker, 1)
        assert b"flags=b" in await other.say("CLIENT", "LIST")

        async def counted() -> bool:
            return b"blocked_clients:1\r\n" in await other.say("INFO", "clients")

        await eventually(counted, "the client to be counted")
        await other.say("RPUSH", FAR, "x")
        await wire.heard()
        await waits(worker, 0)


async def test_a_server_that_may_not_tell_is_named(worker: WorkerHarness) -> None:
    async with Wire(worker.servers[1].address) as server, Wire(worker.settings.listen) as wire:
        await server.say("ACL", "SETUSER", "default", "-client|tracking")
        said = await wire.say("BLPOP", NEAR, FAR, 0)
        address = worker.servers[1].address.encode()
        assert said.startswith(b"-ERR a command that waits over several slots: server %b says: NOPERM" % address)
        await server.say("ACL", "SETUSER", "default", "+client|tracking")

        async def waits_again() -> bool:
            return await wire.say("BLPOP", NEAR, FAR, "0.01") == b"*-1\r\n"

        await eventually(waits_again, "the server to be asked again")


async def test_the_connections_end_when_nobody_waits(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen) as wire, Wire(worker.servers[0].address) as server:

        async def tracking() -> bool:
            return b"tracking_clients:0\r\n" not in await server.say("INFO", "clients")

        async def none() -> bool:
            return not await tracking()

        await wire.say("BLPOP", NEAR, FAR, "0.01")
        await eventually(tracking, "the connection to be made")
        await eventually(none, "the connection to end")
