"""Workers for the tests of this folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from slotferry.redis_server import RedisServer, start_redis
from slots.slot import Slot
from tests.integration.worker.blocked import keep_connections
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]


@pytest.fixture
def kept() -> int:
    """How many connections of sessions' own a worker keeps as it begins."""
    return 0


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A Redis server by itself, to compare with; no worker knows it."""
    server = await start_redis("plain", tmp_path)
    yield server
    await server.stop()


@pytest.fixture
async def start_worker(tmp_path: Path, kept: int) -> AsyncIterator[StartWorker]:
    """Starts workers, each with servers of its own, and ends them after the test."""
    started: list[WorkerHarness] = []

    async def start(**options: Any) -> WorkerHarness:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        harness = await WorkerHarness.start(directory, **options)
        started.append(harness)
        await keep_connections(harness, min(kept, harness.settings.own_connections))
        return harness

    yield start
    for harness in started:
        await harness.stop()


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """One worker with two servers, slots 0-511 at group 1 and the rest at group 2."""
    harness = await start_worker()
    await harness.apply([Slot(index, 2) for index in range(512, 1024)])
    return harness
