"""Workers for the tests of this folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from slots.table import Slot
from tests.integration.worker.harness import WorkerHarness

StartWorker = Callable[..., Awaitable[WorkerHarness]]


@pytest.fixture
async def start_worker(tmp_path: Path) -> AsyncIterator[StartWorker]:
    """Starts workers, each with servers of its own, and ends them after the test."""
    started: list[WorkerHarness] = []

    async def start(**options: Any) -> WorkerHarness:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(await WorkerHarness.start(directory, **options))
        return started[-1]

    yield start
    for harness in started:
        await harness.stop()


@pytest.fixture
async def worker(start_worker: StartWorker) -> WorkerHarness:
    """One worker with two servers, slots 0-511 at group 1 and the rest at group 2."""
    harness = await start_worker()
    await harness.apply([Slot(index, 2) for index in range(512, 1024)])
    return harness
