"""CLIENT TRACKING of users with a prefix: they are told of their own keys, by the names that they know."""

from collections.abc import Awaitable, Callable

import pytest

from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_prefixes import USERS
from tests.integration.worker.test_redirections import FLUSHED, NO_SUCH_CLIENT, heard, listening
from tests.integration.worker.test_tracking import EVERYTHING, ON, expect, told
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]

SHOP = ("AUTH", "shop", "p")
SHOPPING = ("AUTH", "shopping", "p")
BOSS = ("AUTH", "default", "any")
OTHER_PREFIX = b"-ERR this user has another prefix, and the subscriptions, "


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """Two groups with half of the slots each."""
    worker = await start_worker(users=USERS)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


async def login(wire: Wire, user: tuple[str, ...]) -> None:
    assert await wire.say(*user) == b"+OK\r\n"


@pytest.mark.parametrize("options", [(), ("NOLOOP",), ("OPTIN",), ("OPTOUT",)], ids=str)
async def test_a_client_is_told_of_what_it_has_read(worker: WorkerHarness, options: tuple[str, ...]) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as shop, Wire(listen, 3) as other, Wire(listen, 3) as boss, Wire(listen) as writer:
        for wire, user in ((shop, SHOP), (other, SHOPPING), (boss, BOSS)):
            await login(wire, user)
            assert await wire.say(*ON, *options) == b"+OK\r\n"
            for request in (("GET", "k"), ("MGET", "k", "l"), ("GET", "shop:k")):
                if options == ("OPTIN",):
                    wire.send("CLIENT", "CACHING", "YES")
                await wire.say(*request)
        await writer.say("SET", "shop:k", "new")
        await expect(shop, told("k"))
        await expect(boss, told("shop:k"))
        for key in ("k", "l", "shop:l"):
            await writer.say("SET", key, "new")
        await expect(shop, told("l"))
        await expect(boss, told("k"), told("l"))
        await writer.say("SET", "shopping{x}k", "new")
        await writer.say("SET", "shop:shop:k", "new")
        await expect(other, told("k"))
        await expect(shop, told("shop:k"))
        for wire in (shop, other, boss):
            assert await wire.heard() == b""
        async with worker.direct(1) as server:
            await server.flushall()
        await expect(shop, EVERYTHING)


async def test_what_had_to_wait_and_what_a_transaction_has_read(worker: WorkerHarness) -> None:
    async with Wire(worker.settings.listen, 3) as shop, Wire(worker.settings.listen) as writer:
        await login(shop, SHOP)
        await shop.say(*ON)
        assert await shop.say("XREAD", "BLOCK", "10", "STREAMS", "s", "$") == b"_\r\n" + told("s")
        assert await shop.say("SUNION", "s", "k") in [b"~0\r\n" + told(*keys) for keys in (("s", "k"), ("k", "s"))]
        for request in (("MULTI",), ("GET", "k"), ("EXEC",)):
            shop.send(*request)
        await expect(shop, b"+OK\r\n", b"+QUEUED\r\n", b"*1\r\n_\r\n")
        await writer.say("SET", "shop:k", "new")
        await expect(shop, told("k"))


async def test_bcast(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen, 3) as every, Wire(listen, 3) as some, Wire(listen, 3) as boss, Wire(listen) as writer:
        await login(every, SHOP)
        await login(some, SHOP)
        assert await every.say(*ON, "BCAST") == b"+OK\r\n"
        assert await some.say(*ON, "BCAST", "PREFIX", "user:", "PREFIX", "shop:") == b"+OK\r\n"
        assert await boss.say(*ON, "BCAST", "PREFIX", "shop:") == b"+OK\r\n"
        for key in ("user:1", "shopping{x}user:1", "shop:user:1", "shop:other", "shop:shop:1"):
            await writer.say("SET", key, "new")
            # A turn of the server's loop for each.
            if key.startswith("shop:"):
                await expect(boss, told(key))
                await expect(every, told(key.removeprefix("shop:")))
        await expect(some, told("user:1"), told("shop:1"))
        assert await boss.heard() == await every.heard() == await some.heard() == b""
        assert (await every.say("CLIENT", "TRACKINGINFO")).endswith(b"$8\r\nprefixes\r\n*1\r\n$0\r\n\r\n")
        assert (await some.say("CLIENT", "TRACKINGINFO")).endswith(b"*2\r\n$5\r\nuser:\r\n$5\r\nshop:\r\n")
        assert b"Prefix 'user:1' overlaps with an existing prefix 'user:'." in await some.say(
            *ON, "BCAST", "PREFIX", "user:1"
        )
        assert await some.say(*ON, "BCAST", "PREFIX", "more") == EVERYTHING + b"+OK\r\n"
        assert (await some.say("CLIENT", "TRACKINGINFO")).endswith(b"$4\r\nmore\r\n")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_another_connection_is_told(worker: WorkerHarness, protocol: int) -> None:
    listen = worker.settings.listen
    async with (
        listening(listen, protocol, SHOP) as (target, number),
        listening(listen, protocol, SHOPPING) as (other, foreign),
        Wire(listen) as reader,
        Wire(listen) as writer,
    ):
        await login(reader, SHOP)
        # It is another user's.
        assert await reader.say(*ON, "REDIRECT", foreign) == NO_SUCH_CLIENT
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        await reader.say("GET", "k")
        for key in ("k", "shopping{x}k", "shop:k"):
            await writer.say("SET", key, "new")
        await expect(target, heard(protocol, "k"))
        async with worker.direct(1) as server:
            await server.flushall()
        await expect(target, FLUSHED[protocol])
        assert await target.heard() == await other.heard() == await reader.heard() == b""


async def test_a_target_that_has_another_user_is_told_no_names(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with (
        listening(listen, 3, SHOP) as (target, number),
        Wire(listen, 3) as reader,
        Wire(listen) as writer,
    ):
        await login(reader, SHOP)
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        await reader.say("GET", "k")
        await login(target, SHOPPING)
        await writer.say("SET", "shop:k", "new")
        await expect(reader, b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % number)
        assert await target.heard() == b""


@pytest.mark.parametrize(
    "request_", [("SUBSCRIBE", "news"), (*ON, "BCAST"), ("WATCH", "k")], ids=lambda words: words[0]
)
async def test_nobody_takes_names_to_another_prefix(worker: WorkerHarness, request_: tuple[str, ...]) -> None:
    async with Wire(worker.settings.listen, 3) as wire:
        for begins, others in ((BOSS, (SHOP, SHOPPING)), (SHOP, (BOSS, SHOPPING))):
            await login(wire, begins)
            await wire.say(*request_)
            for user in others:
                assert (await wire.say(*user)).startswith(OTHER_PREFIX)
                assert (await wire.say("HELLO", "3", *user)).startswith(OTHER_PREFIX)
            assert b"\r\n$%d\r\n%b\r\n" % (len(begins[1]), begins[1].encode()) in b"\r\n" + await wire.say(
                "ACL", "WHOAMI"
            )
            # A user with the same prefix may.
            await login(wire, ("AUTH", "few", "p") if begins == SHOP else BOSS)
            assert await wire.say("RESET") == b"+RESET\r\n"
            await wire.say("HELLO", "3")
            await login(wire, SHOP)
            assert await wire.say("SET", "k", "mine") == b"+OK\r\n"
