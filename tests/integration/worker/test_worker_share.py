"""How much of a worker's time a user may take, with requests that are dear in different ways."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.engine.backend import command
from slots.messages.load import UserDemand
from tests.integration.worker.harness import LIMIT, WorkerHarness
from tests.integration.worker.test_users import connected, take_users

StartWorker = Callable[..., Awaitable[WorkerHarness]]

BOSS = {"name": "boss", "password": "b"}
PERCENT = 3
"""So little that the user asks for more on any machine."""
TOLERANCE = 0.1
LEAST = 0.3
"""Of the processor time that a worker uses for one user alone, at least so much counts as that user's. The rest is the
event loop's own."""
CONNECTIONS = 4
KEYS = [f"key:{number}" for number in range(300)]
REQUESTS: dict[str, tuple[str, ...]] = {
    "in parts": ("MGET", *KEYS),
    "large": ("SET", "large", "x" * 50_000),
    "by Python": ("SUNION", "one", "two"),
}


def tenant(percent: int) -> dict[str, Any]:
    return {"name": "tenant", "password": "t", "worker_percent": percent}


def processor_seconds(worker: WorkerHarness) -> float:
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@asynccontextmanager
async def asking(worker: WorkerHarness, request: tuple[str, ...]) -> AsyncIterator[None]:
    """The tenant asks for as much as it can."""

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(*worker.settings.listen.split(":"))
        writer.write(command(("AUTH", "tenant", "t")))
        assert await reader.readline() == b"+OK\r\n"

        async def take() -> None:
            while data := await reader.read(2**20):
                assert b"-TRYAGAIN" not in data

        taking = asyncio.create_task(take())
        try:
            while not taking.done():
                writer.write(command(request))
                await writer.drain()
                await asyncio.sleep(0)
            taking.result()
        finally:
            taking.cancel()
            writer.close()

    tasks = [asyncio.create_task(ask()) for _ in range(CONNECTIONS)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


async def told(worker: WorkerHarness) -> UserDemand:
    """What the worker says next of the tenant: each second."""
    worker.messages.clear()
    message = await worker.next(lambda message: "tenant" in getattr(message, "limited", {}))
    found: UserDemand = message.limited["tenant"]
    return found


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_user_keeps_to_its_share_and_others_go_on(start_worker: StartWorker, kind: str) -> None:
    worker = await start_worker(servers=2, users=[tenant(100), BOSS])
    async with connected(worker.settings.listen, "boss b") as boss:
        assert await boss(["MSET", *[word for key in KEYS for word in (key, "value")]]) == b"+OK\r\n"
        for key in ("one", "two"):
            assert await boss(["SADD", key, *[f"{key} {number}" for number in range(100)]]) == b":100\r\n"
        async with asking(worker, REQUESTS[kind]):
            # What it may take, it takes, and that is known.
            await told(worker)
            before, worked = processor_seconds(worker), 0
            while processor_seconds(worker) - before < 0.2:
                worked += (await told(worker)).worked
            assert worked / 1e6 > LEAST * (processor_seconds(worker) - before)
        await take_users(worker, [tenant(PERCENT), BOSS])
        async with asking(worker, REQUESTS[kind]):
            await worker.next(lambda message: "tenant" in getattr(message, "limited", {}))
            while not (await told(worker)).delayed:
                pass
            began, worked, share, answered = time.monotonic(), 0, 1.0, 0
            async with asyncio.timeout(LIMIT):
                while time.monotonic() - began < 2 or abs(share - PERCENT / 100) > TOLERANCE * PERCENT / 100:
                    for _ in range(20):
                        assert (await boss("GET key:1")) == b"$5\r\nvalue\r\n"
                        answered += 1
                    worked += (await told(worker)).worked
                    share = worked / 1e6 / (time.monotonic() - began)
        assert answered >= 40
