"""How many requests and bytes a second a user may ask for, at one worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.meter import LONGEST_SECONDS
from slots.limitshares import WHOLE
from slots.messages.channel import Shares
from slots.messages.load import Share, UserDemand
from slots.messages.questions import WorkerCounters
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_users import Client, connected, take_users

StartWorker = Callable[..., Awaitable[WorkerHarness]]

BOSS = {"name": "boss", "password": "b"}
MANY = 1_000_000
REFUSED = b"-TRYAGAIN user tenant asks for more than its "


def tenant(**limits: Any) -> dict[str, Any]:
    return {"name": "tenant", "password": "t", **limits}


async def start(start_worker: StartWorker, **limits: Any) -> WorkerHarness:
    return await start_worker(servers=1, users=[tenant(**limits), BOSS])


def of_tenant(message: Any) -> UserDemand:
    """What a worker's message says of the tenant."""
    found: dict[str, UserDemand] = getattr(message, "limited", {})
    return found.get("tenant", UserDemand(0, 0, 0, 0, 0))


async def two(client: Client) -> bytes:
    """The reply to the second of two requests."""
    await client("GET k")
    return await client("GET k")


async def test_what_is_above_the_limit_waits_for_its_turn_and_others_do_not(start_worker: StartWorker) -> None:
    worker = await start(start_worker, requests_per_second=20)
    worker.channel.send(Shares(shares={"tenant": Share(WHOLE, WHOLE)}))
    async with (
        connected(worker.settings.listen, "tenant t") as client,
        connected(worker.settings.listen, "boss b") as boss,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ask() -> None:
            for _ in range(60):
                assert await client("GET k") == b"$-1\r\n"

        asking = asyncio.create_task(ask())
        for _ in range(200):
            assert await boss("GET k") == b"$-1\r\n"
        assert not asking.done()
        await asking
        # What comes in a quarter of a second is there at the beginning.
        assert loop.time() - began > 60 / 20 - 0.5
        delayed = await worker.next(lambda message: of_tenant(message).delayed > 0)
        assert delayed.limited["tenant"].refused == 0


@pytest.mark.long
async def test_limits_change_while_clients_are_there_and_go_with_the_user(start_worker: StartWorker) -> None:
    worker = await start(start_worker)
    async with connected(worker.settings.listen, "tenant t") as client:
        assert await client("SET k v") == b"+OK\r\n"
        await take_users(worker, [tenant(requests_per_second=1, over_limit="refuse"), BOSS])
        replies = [await client("GET k") for _ in range(20)]
        assert replies[0] == b"$1\r\nv\r\n"
        assert replies[-1] == (
            REFUSED + b"1 request a second; nothing was run, try again later, or have its limits raised\r\n"
        )
        refused = await worker.next(lambda message: of_tenant(message).refused > 0)
        assert refused.limited["tenant"].requests >= refused.limited["tenant"].refused // 2
        await take_users(worker, [tenant(requests_per_second=MANY), BOSS])
        worker.channel.send(Shares(shares={"tenant": Share(WHOLE, WHOLE)}))
        async with asyncio.timeout(LIMIT):
            while await client("AUTH boss b") != b"+OK\r\n":
                await asyncio.sleep(0.01)
        await take_users(worker, [tenant(requests_per_second=1, over_limit="refuse"), BOSS])
        assert {await client("GET k") for _ in range(20)} == {b"$1\r\nv\r\n"}
        assert await client("AUTH tenant t") == b"+OK\r\n"
        assert any([(await client("GET k")).startswith(REFUSED) for _ in range(20)])
        await take_users(worker, [tenant(requests_per_second=1), BOSS])
        # No token comes, and one at most is left.
        worker.channel.send(Shares(shares={"tenant": Share(0, 0)}))
        await worker.asked(WorkerCounters())
        waiting = asyncio.create_task(two(client))
        await worker.next(lambda message: of_tenant(message).delayed > 0)
        await take_users(worker, [tenant(), BOSS])
        assert await waiting == b"$1\r\nv\r\n"
        assert {await client("GET k") for _ in range(20)} == {b"$1\r\nv\r\n"}


async def test_each_request_counts_whatever_it_does(start_worker: StartWorker) -> None:
    worker = await start(start_worker, requests_per_second=10)
    worker.channel.send(Shares(shares={"tenant": Share(WHOLE, WHOLE)}))
    requests = [
        *(("BLPOP", "empty", "0.1"), ("MULTI",), ("SET", "k", "1"), ("GET", "k"), ("EXEC",), ("MGET", "a", "b", "c")),
        *(("WATCH", "k"), ("MULTI",), ("SELECT", "1"), ("DISCARD",), ("SUBSCRIBE", "channel"), ("PING",)),
    ]
    reader, writer = await worker.connect()
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(b"".join(command(request) for request in (("AUTH", "tenant", "t"), *requests)))
    seen = b""
    async with asyncio.timeout(LIMIT):
        while not seen.endswith(b"$4\r\npong\r\n$0\r\n\r\n"):
            seen += await reader.read(1000)
    # A quarter of a second's are there at the beginning.
    assert loop.time() - began > (len(requests) - 2.5) / 10 - 0.1
    assert b"*2\r\n+OK\r\n$1\r\n1\r\n" in seen
    writer.close()


@pytest.mark.parametrize("over_limit", ["delay", "refuse"])
async def test_a_login_has_not_to_wait_for_those_who_are_not_logged_in(
    start_worker: StartWorker, over_limit: str
) -> None:
    """given clients without a login that ask for more than they may."""
    everybody = {"name": "default", "no_password": True, "requests_per_second": 1, "over_limit": over_limit}
    worker = await start_worker(servers=1, users=[everybody, BOSS])
    # No token comes, and one is there.
    worker.channel.send(Shares(shares={"default": Share(0, 0)}))
    _, writer = await worker.connect()
    writer.write(command(("GET", "k")) * 2)
    await worker.next(
        lambda message: (found := getattr(message, "limited", {}).get("default")) and found.delayed + found.refused
    )
    logins = (
        *(command(("AUTH", "boss", "b")), command(("hello", "3", "AUTH", "boss", "b")), b"AUTH boss b\r\n"),
        *(command(("HELLO", "2", "SETNAME", "name", "auth", "boss", "b")), b"auth boss b\r\n"),
    )
    for login in logins:
        reader, other = await worker.connect()
        other.write(login + command(("SET", "k", "v")))
        seen = b""
        async with asyncio.timeout(LONGEST_SECONDS / 2):
            while not seen.endswith(b"+OK\r\n") or seen.count(b"+OK\r\n") + seen.count(b"server") < 2:
                seen += await reader.read(1000)
                assert REFUSED[:9] not in seen
        other.close()
    writer.close()


@pytest.mark.parametrize("login", ["AUTH tenant t", "HELLO 3 AUTH tenant t", "AUTH tenant wrong"])
async def test_who_has_logged_in_passes_no_limit_by_more_logins(start_worker: StartWorker, login: str) -> None:
    worker = await start(start_worker, requests_per_second=MANY, over_limit="refuse")
    # No token comes, and one is there.
    worker.channel.send(Shares(shares={"tenant": Share(0, 0)}))
    await worker.asked(WorkerCounters())
    async with connected(worker.settings.listen, "tenant t") as client:
        assert await client("SET k v") == b"+OK\r\n"
        for _ in range(3):
            assert (await client(login)).startswith(REFUSED)
        # As on a new connection.
        worker.channel.send(Shares(shares={"tenant": Share(WHOLE, WHOLE)}))
        async with asyncio.timeout(LIMIT):
            while await client("RESET") != b"+RESET\r\n":
                await asyncio.sleep(0.01)
        assert await client("AUTH tenant t") == b"+OK\r\n"


@pytest.mark.parametrize(
    "login", ["AUTH nobody wrong", "AUTH", "HELLO 2 AUTH nobody wrong", "HELLO 2 SETNAME one SETNAME two"]
)
async def test_a_login_that_fails_passes_the_limits_only_once(start_worker: StartWorker, login: str) -> None:
    """given clients without a login that have used up their limit."""
    everybody = {"name": "default", "no_password": True, "requests_per_second": MANY, "over_limit": "refuse"}
    worker = await start_worker(servers=1, users=[everybody, BOSS])
    # No token comes, and one is there.
    worker.channel.send(Shares(shares={"default": Share(0, 0)}))
    await worker.asked(WorkerCounters())
    refused = REFUSED.replace(b"tenant", b"default")
    async with connected(worker.settings.listen) as client:
        assert await client("GET k") == b"$-1\r\n"
        assert not (await client(login)).startswith(refused)
        for _ in range(3):
            assert (await client(login)).startswith(refused)


@pytest.mark.long
async def test_those_who_leave_do_not_wait(start_worker: StartWorker) -> None:
    """given clients that come, ask for something and leave, they take no room; and those who stay have their turn."""
    worker = await start(start_worker, requests_per_second=MANY)
    # No token comes, and one is there.
    worker.channel.send(Shares(shares={"tenant": Share(0, 0)}))
    await worker.asked(WorkerCounters())
    async with (
        connected(worker.settings.listen, "tenant t") as client,
        connected(worker.settings.listen, "boss b") as boss,
    ):
        assert await client("SET k v") == b"+OK\r\n"
        before = asyncio.create_task(client("GET k"))
        await worker.next(lambda message: of_tenant(message).delayed > 0)
        for _ in range(30):
            reader, writer = await worker.connect()
            writer.write(command(("AUTH", "tenant", "t")) + command(("SET", "k", "w")))
            assert await reader.readline() == b"+OK\r\n"
            writer.close()
        async with asyncio.timeout(LONGEST_SECONDS / 2):
            while b"\r\nconnected_clients:2\r\n" not in await boss("INFO clients"):
                await asyncio.sleep(0.01)
        assert not before.done()
        worker.channel.send(Shares(shares={"tenant": Share(WHOLE, WHOLE)}))
        assert await before == b"$1\r\nv\r\n"
