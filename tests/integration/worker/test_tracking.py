"""CLIENT TRACKING at one worker: what a session is told, in which order, and by which options."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import LIMIT, Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]

EVERYTHING = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
USERS = [{"name": "default", "no_password": True}, {"name": "limited", "password": "secret", "databases": [0]}]
ON = ("CLIENT", "TRACKING", "ON")


def bulk(key: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(key.encode()), key.encode())


def told(*keys: str) -> bytes:
    """The push that says that keys have changed."""
    return b">2\r\n$10\r\ninvalidate\r\n*%d\r\n%b" % (len(keys), b"".join(map(bulk, keys)))


async def expect(wire: Wire, *pushes: bytes) -> None:
    """These come, and nothing else before them."""
    for push in pushes:
        assert await wire.read(len(push)) == push


async def until(wire: Wire, push: bytes) -> None:
    """This comes; before it there may be word of other changes, or of the same."""
    async with asyncio.timeout(LIMIT):
        await wire.reader.readuntil(push)


async def of_tracking(worker: WorkerHarness, *options: str, protocol: int = 3) -> bytes:
    """The reply to CLIENT TRACKING ON."""
    async with Wire(worker.settings.listen, protocol) as wire:
        return await wire.say(*ON, *options)


async def test_a_client_is_told_once_of_what_it_has_read(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as reader, Wire(listen, 3) as every, worker.client() as writer:
        await every.say(*ON, "BCAST")
        await writer.mset({f"k{number}": "old" for number in range(20)})
        assert await reader.say(*ON) == b"+OK\r\n"
        for number in range(20):
            assert await reader.say("GET", f"k{number}") == b"$3\r\nold\r\n"
        await writer.set("another", "unread")
        for number in range(20):
            await writer.set(f"k{number}", "new")
            await expect(reader, told(f"k{number}"))
        await writer.set("last", "newer")
        await writer.set("k0", "newer")
        # By then the worker has heard of that, and it is no news any more.
        await until(every, told("k0"))
        await until(every, told("k0"))
        assert await reader.say("GET", "k0") == b"$5\r\nnewer\r\n"
        await writer.delete("k0")
        await expect(reader, told("k0"))
        assert await reader.heard() == b""


@pytest.mark.parametrize(
    "request_",
    [
        ("MGET", "a", "b", "c"),
        ("EXISTS", "a", "b"),
        ("HGETALL", "a"),
        ("XREAD", "COUNT", "1", "STREAMS", "a", "0"),
        ("SORT_RO", "a"),
        ("SINTERCARD", "1", "a"),
        ("OBJECT", "ENCODING", "a"),
        ("EVAL", "return redis.call('TYPE', KEYS[1])", "1", "a"),
        ("SSCAN", "a", "0"),
    ],
    ids=lambda words: str(words[0]),
)
async def test_every_kind_of_read_counts(worker: WorkerHarness, request_: tuple[str, ...]) -> None:
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON)
        assert b"invalidate" not in await reader.say(*request_)
        await writer.set("a", "new")
        await expect(reader, told("a"))


async def test_a_write_is_no_read(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader:
        await reader.say(*ON)
        for number in range(5):
            assert await reader.say("SET", "k", number) == b"+OK\r\n"
        assert await reader.say("PUBLISH", "k", "message") == b":0\r\n"
        reader.send("GET", "k")
        reader.send("SET", "k", "mine")
        # As without NOLOOP in Redis, it is told of its own changes.
        await until(reader, told("k"))


async def test_what_a_transaction_has_read(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as reader, Wire(listen, 3) as every, worker.client() as writer:
        await every.say(*ON, "BCAST")
        await reader.say(*ON)
        for request in (("MULTI",), ("PTTL", "k"), ("GET", "k")):
            reader.send(*request)
        await expect(reader, b"+OK\r\n", b"+QUEUED\r\n", b"+QUEUED\r\n")
        await writer.set("k", "between")
        await until(every, told("k"))
        assert await reader.say("EXEC") == b"*2\r\n:-1\r\n$7\r\nbetween\r\n"
        await writer.set("k", "after")
        await expect(reader, told("k"))
        for request in (("MULTI",), ("GET", "k"), ("DISCARD",)):
            reader.send(*request)
        await reader.heard()
        await writer.set("k", "again")
        assert await reader.heard() == b""


async def test_opt_in_and_opt_out(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON, "OPTIN")
        await reader.say("GET", "not")
        reader.send("CLIENT", "CACHING", "YES")
        reader.send("GET", "chosen")
        await reader.say("GET", "later")
        reader.send("CLIENT", "CACHING", "YES")
        for request in (("MULTI",), ("PTTL", "one"), ("GET", "one"), ("EXEC",), ("GET", "behind")):
            reader.send(*request)
        await reader.heard()
        for key in ("not", "later", "behind", "chosen", "one"):
            await writer.set(key, "new")
            if key in ("chosen", "one"):
                await expect(reader, told(key))
        assert await reader.heard() == b""
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON, "OPTOUT")
        reader.send("CLIENT", "CACHING", "NO")
        reader.send("GET", "not")
        await reader.say("GET", "chosen")
        await writer.set("not", "newer")
        await writer.set("chosen", "newer")
        await expect(reader, told("chosen"))


async def test_bcast_tells_of_all_keys_or_of_those_with_a_prefix(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as every, Wire(listen, 3) as some, worker.client() as writer:
        assert await every.say(*ON, "BCAST", "NOLOOP") == b"+OK\r\n"
        assert await some.say(*ON, "BCAST", "PREFIX", "user:", "PREFIX", "object:") == b"+OK\r\n"
        for key in ("user:1", "other", "object:1", "user:1"):
            await writer.set(key, "new")
            await expect(every, told(key))
        await expect(some, told("user:1"), told("object:1"), told("user:1"))
        await every.say("SET", "mine", "too")
        # A worker cannot tell who of its clients has written.
        assert await some.heard() == b""


async def test_prefixes_of_many_clients(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    prefixes = ("a", "ab", "abc", "b", "\u00e9")
    async with AsyncExitStack() as stack:
        wires = {one: await stack.enter_async_context(Wire(listen, 3)) for one in (*prefixes, "")}
        for prefix, wire in wires.items():
            assert await wire.say(*ON, "BCAST", *(("PREFIX", prefix) if prefix else ())) == b"+OK\r\n"
        writer = await stack.enter_async_context(worker.client())
        gone = wires.pop("ab")
        await gone.say("CLIENT", "TRACKING", "OFF")
        for key in ("a", "ab", "abcd", "b", "c", "\u00e9\u00e9", "last"):
            await writer.set(key, "new")
            await expect(wires[""], told(key))
            for prefix in prefixes:
                if prefix in wires and key.startswith(prefix):
                    await expect(wires[prefix], told(key))
        for wire in (gone, *wires.values()):
            assert await wire.heard() == b""


async def test_tracking_that_begins_again(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader:
        await reader.say(*ON)
        await reader.say("GET", "k")
        # What was read before is not known any more.
        assert await reader.say(*ON, "NOLOOP") == EVERYTHING + b"+OK\r\n"


async def test_tracking_ends(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as off, Wire(listen, 3) as reset, Wire(listen, 3) as resp2, worker.client() as writer:
        for wire in (off, reset, resp2):
            await wire.say(*ON)
            await wire.say("GET", "k")
        assert (await writer.info("clients"))["tracking_clients"] == 3
        assert sum("t" in one["flags"] for one in await writer.client_list()) == 3
        assert await off.say("CLIENT", "TRACKING", "OFF") == b"+OK\r\n"
        assert await reset.say("RESET") == b"+RESET\r\n"
        assert (await resp2.say("HELLO", "2")).startswith(b"*14\r\n")
        await writer.set("k", "new")
        for wire in (off, reset, resp2):
            assert await wire.heard() == b""
    async with worker.client() as client:
        async with asyncio.timeout(LIMIT):
            while sum("t" in one["flags"] for one in await client.client_list()):
                await asyncio.sleep(0.01)


async def test_expiry_and_flushes(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON, "BCAST")
        await writer.set("short", "lived", px=200)
        await expect(reader, told("short"), told("short"))
        await writer.flushall()
        await expect(reader, EVERYTHING)


async def test_word_of_a_change_comes_behind_the_values_that_it_is_about(worker: WorkerHarness) -> None:
    """However late a server's reply, the last that the client gets is word of the change."""
    # k and blocked are at different servers.
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer, worker.direct(1) as server:
        key = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
        await writer.set(key, "old")
        await reader.say(*ON)
        # The reply to EVAL holds up all that its connection is owed.
        other = next(f"o{number}" for number in range(100) if slot_of(f"o{number}") >= 512)
        reader.send("EVAL", "local n = 0 while n < 30000000 do n = n + 1 end return 'slow'", 1, other)
        reader.send("GET", key)
        async with asyncio.timeout(LIMIT):
            while not (await server.info("commandstats")).get("cmdstat_get", {}).get("calls"):
                await asyncio.sleep(0.001)
        await server.set(key, "new")
        # At once, and again behind the value.
        await expect(reader, told(key), b"$4\r\nslow\r\n", b"$3\r\nold\r\n", told(key))


async def test_what_had_to_wait_is_not_kept(worker: WorkerHarness) -> None:
    """A read that waits at the front is told of behind its reply, for it may have been changed meanwhile."""
    async with Wire(worker.settings.listen, 3) as reader, Wire(worker.settings.listen, 3) as plain:
        await reader.say(*ON)
        assert await reader.say("XREAD", "BLOCK", "10", "STREAMS", "s", "$") == b"_\r\n" + told("s")
        assert await plain.say("XREAD", "BLOCK", "10", "STREAMS", "s", "$") == b"_\r\n"
        # Over slots it waits in the proxy.
        assert slot_of("s") != slot_of("k")
        over_slots = ("XREAD", "BLOCK", "10", "STREAMS", "s", "k", "$", "$")
        assert await reader.say(*over_slots) in [b"_\r\n" + told(*keys) for keys in (("s", "k"), ("k", "s"))]
        assert await plain.say(*over_slots) == b"_\r\n"


async def test_a_read_that_waits_for_its_slot(worker: WorkerHarness) -> None:
    slot = slot_of("k")
    owner = 1 + slot // 512
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await writer.set("k", "old")
        await reader.say(*ON)
        await reader.say("GET", "k")
        await worker.act([slot], SlotState.PREPARED, owner, 3 - owner)
        reader.send("GET", "k")
        async with worker.direct(owner) as server:
            # Whatever was remembered of the read is told, and gone.
            await server.set("k", "new")
        await expect(reader, told("k"))
        await worker.act([slot], SlotState.MIGRATING, owner, 3 - owner)
        # The key moved with the read: MIGRATE deletes it.
        got = await reader.read(len(b"$3\r\nnew\r\n"))
        while got[-9:] != b"$3\r\nnew\r\n":
            got += await reader.read(1)
        got = b""
        async with worker.direct(3 - owner) as server, asyncio.timeout(LIMIT):
            # Word of the move may come late.
            while told("k") not in got:
                await reader.say("GET", "k")
                await server.set("k", "newer")
                got = await reader.heard()
        assert b"$5\r\nnewer\r\n" in await reader.say("GET", "k")


async def test_a_worker_that_is_not_told_says_so(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        await reader.say(*ON)
        await reader.say("GET", "k")
        owner = 1 + slot_of("k") // 512
        async with worker.direct(owner) as server:
            ours = [one for one in await server.client_list() if "t" in one["flags"]]
            assert len(ours) == 1
            await server.client_kill_filter(_id=ours[0]["id"])
        # When the connection is lost, and when there is one again.
        await expect(reader, EVERYTHING, EVERYTHING)
        async with asyncio.timeout(LIMIT):
            while told("k") not in await reader.heard():
                await reader.say("GET", "k")
                await writer.set("k", "new")


@pytest.mark.long
async def test_a_server_that_is_down_is_not_waited_for(worker: WorkerHarness) -> None:
    await worker.servers[1].stop()
    async with Wire(worker.settings.listen, 3) as reader, worker.client() as writer:
        assert await reader.say(*ON) == b"+OK\r\n"
        # Nothing is kept for longer than a second.
        await expect(reader, EVERYTHING, EVERYTHING, EVERYTHING)
        key = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
        assert await writer.set(key, "served")


async def test_another_identity_drops_everything(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader:
        await reader.say(*ON)
        worker.take_identity()
        await expect(reader, EVERYTHING, EVERYTHING)


async def test_slots_that_are_somewhere_else_all_at_once(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as reader:
        await reader.say(*ON)
        await worker.apply([Slot(7, 2)])
        await expect(reader, EVERYTHING)
        assert await reader.heard() == b""


async def test_the_keys_of_a_worker_are_limited(start_worker: StartWorker) -> None:
    worker = await start_worker(sessions_limit_bytes=8 * 100_000)
    async with Wire(worker.settings.listen, 3) as reader, Wire(worker.settings.listen, 3) as other:
        await reader.say(*ON)
        await other.say(*ON)
        for number in range(1000):
            reader.send("GET", f"key:{number}")
        # Room is made behind the reads.
        found = await reader.heard() + await reader.heard()
        assert found.count(b"_\r\n") == 1000
        # The oldest are told of, and no more than have to be.
        assert found.count(told("key:0")) >= 1
        assert told("key:999") not in found
        for number in range(1000):
            other.send("GET", f"key:{number}")
        await other.heard()
        found = await reader.heard()
        assert told("key:900") in found


async def test_what_cannot_be_had_is_refused(start_worker: StartWorker) -> None:
    worker = await start_worker(users=USERS)
    resp2 = await of_tracking(worker, protocol=2)
    assert resp2.startswith(b"-ERR CLIENT TRACKING ON is refused by Slotferry: a connection of RESP2")
    async with Wire(worker.settings.listen, 3) as wire:
        assert await wire.say("AUTH", "limited", "secret") == b"+OK\r\n"
        assert b"keys of all databases" in await wire.say(*ON, "BCAST")
        assert await wire.say(*ON) == b"+OK\r\n"


async def test_a_user_who_may_not_see_all_databases_hears_of_no_keys(start_worker: StartWorker) -> None:
    worker = await start_worker(users=USERS)
    async with Wire(worker.settings.listen, 3) as wire, worker.client(db=1) as writer:
        assert await wire.say(*ON, "BCAST") == b"+OK\r\n"
        assert await wire.say("AUTH", "limited", "secret") == b"+OK\r\n"
        await writer.set("another's", "key")
        assert await wire.ended() == b""


async def test_a_server_that_refuses(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.direct(1) as server:
        await server.execute_command("ACL", "SETUSER", "default", "-client|tracking")
    reply = await of_tracking(worker)
    assert reply.startswith(b"-ERR CLIENT TRACKING ON is refused by Slotferry: server 127.0.0.1:"), reply
    assert b"NOPERM" in reply
    async with worker.direct(1) as server:
        await server.execute_command("ACL", "SETUSER", "default", "+client|tracking")
    async with asyncio.timeout(LIMIT):
        while await of_tracking(worker) != b"+OK\r\n":
            await asyncio.sleep(0.05)


@pytest.mark.long
async def test_nobody_pays_for_connections_that_nobody_wants(worker: WorkerHarness) -> None:
    async with worker.direct(1) as server, worker.client() as client:
        await client.get("k")
        assert (await server.info("clients"))["tracking_clients"] == 0
        assert await of_tracking(worker) == b"+OK\r\n"
        assert (await server.info("clients"))["tracking_clients"] == 1
        async with asyncio.timeout(LIMIT):
            while (await server.info("clients"))["tracking_clients"]:
                await asyncio.sleep(0.1)
