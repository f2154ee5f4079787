"""Sheddable users: while a server is slow, their requests for it are refused at once, and those of others are not."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slots.slot import Slot
from tests.integration.worker.harness import LIMIT, WorkerHarness, slot_of
from tests.integration.worker.test_users import Client, connected, take_users

StartWorker = Callable[..., Awaitable[WorkerHarness]]

USERS = [
    {"name": "default", "no_password": True},
    {"name": "batch", "password": "b", "sheddable": True, "admin": True},
]
SLOW_SECONDS = 0.1
"""Longer than the engine's SLOW_TICKS."""


def key_of(group: int, number: int = 0) -> str:
    """One of the keys of a group, the slots of which are 0 to 511 or the rest."""
    found = (f"key:{index}" for index in range(1000) if (slot_of(f"key:{index}") < 512) == (group == 1))
    for _ in range(number):
        next(found)
    return next(found)


async def started(start_worker: StartWorker, **settings: Any) -> WorkerHarness:
    worker = await start_worker(users=USERS, backend_reply_seconds=60.0, **settings)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


def stopped(worker: WorkerHarness, group: int) -> Callable[[], None]:
    """Stop the server of a group. Gives what has it go on."""
    pid = worker.servers[group - 1].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


async def until_served(client: Client, request: str, reply: bytes) -> None:
    async with asyncio.timeout(LIMIT):
        while (given := await client(request)) != reply:
            assert given.startswith(b"-TRYAGAIN"), given
            await asyncio.sleep(0.01)


async def test_requests_to_a_slow_server_are_refused_and_those_to_others_are_served(start_worker: StartWorker) -> None:
    worker = await started(start_worker)
    slow, quick = key_of(1), key_of(2)
    several = f"{slow} 1 {key_of(1, 1)} 2 {quick} 3"
    async with (
        connected(worker.settings.listen) as usual,
        connected(worker.settings.listen) as other,
        connected(worker.settings.listen, "batch b") as batch,
    ):
        for key in (slow, quick):
            await until_served(batch, f"SET {key} v", b"+OK\r\n")
        # The engine learns where pages begin.
        await batch("SCAN 0")
        go_on = stopped(worker, 1)
        try:
            waiting = asyncio.create_task(usual(f"GET {slow}"))
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            refused = (f"-TRYAGAIN server {worker.addresses[0]} is slow, ").encode()
            for request in (
                f"GET {slow}",
                f"SET {slow} x",
                f"LPOP {slow}",
                f"BLPOP {slow} 0",
                f"MSET {several}",
                f"DEL {slow} {key_of(1, 1)}",
                f"EVAL return(1) 1 {slow}",
                "SCAN 0",
            ):
                assert (await batch(request)).startswith(refused), request
            assert (await batch(f"SET {slow} y")).endswith(b"nothing was run, try again later\r\n")
            # The engine runs the first of these transactions by itself.
            for queued in ((f"SET {slow} z",), ("SELECT 0", f"SET {slow} z")):
                for request in ("MULTI", *queued):
                    assert not (await batch(request)).startswith(b"-")
                assert (await batch("EXEC")).startswith(refused)
            assert await batch(f"GET {quick}") == b"$1\r\nv\r\n"
            assert await other(f"GET {quick}") == b"$1\r\nv\r\n"
            assert not waiting.done()
            counted = await worker.next(lambda message: getattr(message, "counters", {}).get("shed", 0) >= 10)
            assert counted.counters["errors"] >= counted.counters["shed"]
        finally:
            go_on()
        assert await waiting == b"$1\r\nv\r\n"
        await until_served(batch, f"GET {slow}", b"$1\r\nv\r\n")
        assert await batch("DBSIZE") == b":2\r\n"


async def test_requests_whose_replies_name_keys_with_a_prefix_give_way(start_worker: StartWorker) -> None:
    worker = await start_worker(
        users=[USERS[0], {"name": "shop", "password": "p", "sheddable": True, "prefix": "shop:"}],
        backend_reply_seconds=60.0,
    )
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    slow = next(key for key in map(str, range(1000)) if slot_of(f"shop:{key}") < 512)
    async with connected(worker.settings.listen) as usual, connected(worker.settings.listen, "shop p") as shop:
        await until_served(shop, f"GET {slow}", b"$-1\r\n")
        go_on = stopped(worker, 1)
        try:
            waiting = asyncio.create_task(usual(f"GET {key_of(1)}"))
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            async with asyncio.timeout(LIMIT):
                for request in (
                    f"XREAD COUNT 1 STREAMS {slow} 0",
                    f"XREADGROUP GROUP g c STREAMS {slow} >",
                    f"XPENDING {slow} g",
                    f"XCLAIM {slow} g c 0 1-1",
                    f"LMPOP 1 {slow} LEFT",
                    f"ZMPOP 1 {slow} MIN",
                ):
                    assert (await shop(request)).startswith(b"-TRYAGAIN server"), request
            await worker.next(lambda message: getattr(message, "counters", {}).get("shed", 0) >= 6)
        finally:
            go_on()
        assert await waiting == b"$-1\r\n"
        await until_served(shop, f"XREAD COUNT 1 STREAMS {slow} 0", b"*-1\r\n")


@pytest.mark.long
@pytest.mark.parametrize("counts", [False, True])
async def test_what_is_published_gives_way(start_worker: StartWorker, counts: bool) -> None:
    worker = await started(start_worker, publish_counts_clients=counts)
    slow, quick = key_of(1), key_of(2)
    async with (
        connected(worker.settings.listen) as usual,
        connected(worker.settings.listen, "batch b") as batch,
    ):
        for channel in (slow, quick):
            await until_served(batch, f"PUBLISH {channel} m", b":0\r\n")
        go_on = stopped(worker, 1)
        try:
            waiting = asyncio.create_task(usual(f"GET {slow}"))
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            assert (await batch(f"PUBLISH {slow} m")).startswith(b"-TRYAGAIN server")
            assert await batch(f"PUBLISH {quick} m") == b":0\r\n"
            await worker.next(lambda message: getattr(message, "counters", {}).get("shed", 0) >= 1)
        finally:
            go_on()
        assert await waiting == b"$-1\r\n"


async def test_a_reply_that_is_late_on_another_connection(start_worker: StartWorker) -> None:
    worker = await started(start_worker)
    slow = key_of(1)
    async with (
        connected(worker.settings.listen) as usual,
        connected(worker.settings.listen, "batch b") as batch,
    ):
        assert await batch("SELECT 3") == b"+OK\r\n"
        await until_served(batch, f"SET {slow} v", b"+OK\r\n")
        await until_served(batch, f"GET {key_of(2)}", b"$-1\r\n")
        go_on = stopped(worker, 1)
        try:
            waiting = asyncio.create_task(usual(f"GET {slow}"))
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            for _ in range(3):
                refused = await batch(f"GET {slow}")
                assert refused.startswith(f"-TRYAGAIN server {worker.addresses[0]} is slow, ".encode())
            assert not waiting.done()
        finally:
            go_on()
        assert await waiting == b"$-1\r\n"
        await until_served(batch, f"GET {slow}", b"$1\r\nv\r\n")


async def test_a_server_is_slow_for_all_connections_to_it(start_worker: StartWorker) -> None:
    worker = await started(start_worker)
    slow = key_of(1)
    async with (
        connected(worker.settings.listen) as usual,
        connected(worker.settings.listen, "batch b") as batch,
    ):
        assert await batch("SELECT 3") == b"+OK\r\n"
        await until_served(batch, f"SET {slow} v", b"+OK\r\n")
        refused = b""
        async with asyncio.timeout(LIMIT):
            while not refused.startswith(b"-TRYAGAIN"):
                go_on = stopped(worker, 1)
                waiting = asyncio.create_task(usual(f"GET {slow}"))
                await asyncio.sleep(SLOW_SECONDS)
                go_on()
                await waiting
                # Its own connection has had no request meanwhile.
                refused = await batch(f"GET {slow}")
        await until_served(batch, f"GET {slow}", b"$1\r\nv\r\n")


@pytest.mark.long
async def test_which_commands_give_way_is_said_in_words_of_rules(start_worker: StartWorker) -> None:
    users = [USERS[0], {"name": "batch", "password": "b", "sheddable": "+@slow +@write +mget -exec -set"}]
    worker = await start_worker(users=users, backend_reply_seconds=60.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    slow = key_of(1)
    refused = (f"-TRYAGAIN server {worker.addresses[0]} is slow, and such requests of this user are refused ").encode()
    async with (
        connected(worker.settings.listen) as usual,
        connected(worker.settings.listen, "batch b") as batch,
        connected(worker.settings.listen, "batch b") as other,
        connected(worker.settings.listen, "batch b") as third,
    ):
        await until_served(batch, f"RPUSH {slow} 1 2", b":2\r\n")
        await until_served(batch, f"GET {key_of(2)}", b"$-1\r\n")
        go_on = stopped(worker, 1)
        try:
            waiting = [asyncio.create_task(usual(f"LLEN {slow}"))]
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            for request in (
                f"LRANGE {slow} 0 -1",
                f"MGET {slow} {key_of(2)}",
                f"DEL {slow}",
                f"EVAL return(1) 1 {slow}",
                f"XINFO STREAM {slow}",
            ):
                assert (await batch(request)).startswith(refused), request
            # These wait for the server.
            waiting += [
                asyncio.create_task(batch(f"LLEN {slow}")),
                asyncio.create_task(other(f"SET {key_of(1, 1)} v")),
                asyncio.create_task(in_transaction(third, f"LPOP {slow}")),
            ]
            await asyncio.sleep(SLOW_SECONDS)
            assert not any(task.done() for task in waiting)
        finally:
            go_on()
        length, length_of_batch, stored, taken = await asyncio.gather(*waiting)
        # The server may have taken the element first.
        assert {length, length_of_batch} <= {b":2\r\n", b":1\r\n"}
        assert stored == b"+OK\r\n"
        assert taken == b"*1\r\n$1\r\n1\r\n"
        # What gives way changes with the user, whose sessions end.
        await take_users(worker, [USERS[0], {"name": "batch", "password": "b", "sheddable": "+@all -lrange"}])
    async with connected(worker.settings.listen) as usual, connected(worker.settings.listen, "batch b") as batch:
        await until_served(batch, f"LLEN {slow}", b":1\r\n")
        go_on = stopped(worker, 1)
        try:
            first = asyncio.create_task(usual(f"LLEN {slow}"))
            await worker.under_way()
            await asyncio.sleep(SLOW_SECONDS)
            assert (await batch(f"LLEN {slow}")).startswith(refused)
            assert (await batch(f"EVAL return(1) 1 {slow}")).startswith(refused)
            waits = asyncio.create_task(batch(f"LRANGE {slow} 0 -1"))
            await asyncio.sleep(SLOW_SECONDS)
            assert not waits.done()
        finally:
            go_on()
        assert await first == b":1\r\n"
        assert await waits == b"*1\r\n$1\r\n2\r\n"


async def in_transaction(client: Client, request: str) -> bytes:
    """The reply to EXEC of a transaction with one request."""
    assert await client("MULTI") == b"+OK\r\n"
    assert await client(request) == b"+QUEUED\r\n"
    return await client("EXEC")
