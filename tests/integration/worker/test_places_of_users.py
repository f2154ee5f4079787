"""Where users may come from, and how many connections each may have."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slots.messages.channel import Shares
from slots.messages.load import Connections
from slots.messages.questions import WorkerCounters
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_users import connected, take_users

StartWorker = Callable[..., Awaitable[WorkerHarness]]

NOT_FROM_HERE = b"-NOPERM user app may not log in from 127.0.0.1: it is not one of its addresses\r\n"
TOO_MANY = (
    b"-NOPERM user app may not log in once more: of its 2 connections at all proxies together, none is free here\r\n"
)


async def refused(worker: WorkerHarness, count: int) -> None:
    await worker.next(lambda message: message.type == "counters" and message.counters["logins_refused"] == count)


def let_in(worker: WorkerHarness, user: str, count: int) -> None:
    """Tell a worker how many connections a user may have there."""
    worker.channel.send(Shares(shares={}, connections={user: count}))


def of_app(message: Any) -> Connections:
    """What a worker's message says of the user's connections."""
    found: dict[str, Connections] = getattr(message, "connections", {})
    return found.get("app", Connections(0, 0, 0, 0, 0))


async def test_a_user_logs_in_from_its_addresses_only(start_worker: StartWorker) -> None:
    app: dict[str, Any] = {"name": "app", "password": "p", "addresses": ["10.0.0.0/8", "::1"]}
    worker = await start_worker(servers=1, users=[app])
    async with connected(worker.settings.listen) as client:
        assert (await client("AUTH app wrong")).startswith(b"-WRONGPASS"), "nothing is told to who has no password"
        assert await client("AUTH app p") == NOT_FROM_HERE
        assert await client("HELLO 3 AUTH app p") == NOT_FROM_HERE
        assert (await client("GET k")).startswith(b"-NOAUTH")
        await refused(worker, 2)
        await take_users(worker, [app | {"addresses": ["10.0.0.0/8", "127.0.0.1"]}])
        assert await client("AUTH app p") == b"+OK\r\n"
        assert await client("GET k") == b"$-1\r\n"
        await take_users(worker, [app])
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client("GET k")


async def test_who_need_not_log_in_has_to_where_it_is_not_let_in(start_worker: StartWorker) -> None:
    users = [{"name": "default", "no_password": True, "addresses": ["10.0.0.1"]}, {"name": "app", "password": "p"}]
    worker = await start_worker(servers=1, users=users)
    async with connected(worker.settings.listen) as client:
        assert (await client("GET k")).startswith(b"-NOAUTH")
        assert await client("AUTH app p") == b"+OK\r\n"
        assert await client("GET k") == b"$-1\r\n"
        await client("RESET")
        assert (await client("GET k")).startswith(b"-NOAUTH")


async def test_a_user_has_so_many_connections(start_worker: StartWorker) -> None:
    app: dict[str, Any] = {"name": "app", "password": "p", "connections": 2}
    worker = await start_worker(servers=1, users=[app, {"name": "boss", "password": "b"}])
    listen = worker.settings.listen
    async with connected(listen) as early:
        assert await early("AUTH app p") == TOO_MANY, "the worker has no share yet"
    let_in(worker, "app", 2)
    await worker.asked(WorkerCounters())
    async with connected(listen, "app p") as one, connected(listen, "boss b") as boss, connected(listen) as third:
        async with connected(listen, "app p") as two:
            assert await third("AUTH app p") == TOO_MANY
            assert await two("AUTH app p") == b"+OK\r\n", "it is one of the two"
            assert await boss("AUTH app p") == TOO_MANY
            assert await boss("ACL WHOAMI") == b"$4\r\nboss\r\n"
            await one("RESET")
            assert await third("AUTH app p") == b"+OK\r\n"
            assert await one("AUTH app p") == TOO_MANY
        async with asyncio.timeout(60):  # until the worker has seen that the second has left
            while await one("AUTH app p") != b"+OK\r\n":
                await asyncio.sleep(0.01)
        await take_users(worker, [app | {"connections": 1}, {"name": "boss", "password": "b"}])
        assert await one("GET k") == b"$-1\r\n", "those that are there go on"
        assert await boss("GET k") == b"$-1\r\n"
        assert await boss("AUTH app p") == TOO_MANY.replace(b"2", b"1")
        await worker.next(lambda message: of_app(message)[:2] == (1, 2) and of_app(message).wanted > 0)


async def test_clients_that_need_not_log_in_are_counted(start_worker: StartWorker) -> None:
    open_to_two = {"name": "default", "no_password": True, "connections": 2}
    worker = await start_worker(servers=1, users=[open_to_two])
    let_in(worker, "default", 2)
    await worker.asked(WorkerCounters())
    listen = worker.settings.listen
    async with connected(listen) as one, connected(listen) as two:
        assert await one("PING") == await two("PING") == b"+PONG\r\n"
        async with connected(listen) as third:
            assert (await third("PING")).startswith(b"-NOAUTH")
        await refused(worker, 1)
