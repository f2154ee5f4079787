"""No Python object comes into being for a request on the fast path.

A worker runs within the test, and another process sends it requests. What the interpreter allocates meanwhile is
counted call by call, so that an object that lives for a moment only is seen, too.
"""

import asyncio
import ctypes
import gc
import math
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from proxy.channel import Channel
from proxy.settings import ProxySettings
from proxy.worker.worker import Worker
from slots.messages.channel import Start, parse_supervisor
from slots.slot import Slot
from tests.integration.worker.harness import LIMIT, WorkerHarness

IDLE_SECONDS = 2.0
MOST_OF_A_REQUEST = 0.3
"""Allocations for each request; an object for each would be one at least. There are about 0.2 on a quiet machine."""
ATTEMPTS = 3
"""The best one counts: on a busy machine a turn of the event loop, which allocates, serves fewer requests."""
COUNTING = Path(__file__).with_name("counting.c")


def compiled(directory: Path) -> Any:
    """The counting library, made with the compiler that the project itself was built with."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    assert shutil.which(compiler), "a C compiler is needed, as for the project itself"
    made = directory / "counting.so"
    include = f"-I{sysconfig.get_path('include')}"
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", include, *undefined, COUNTING, "-o", made], check=True)
    library = ctypes.PyDLL(str(made))
    library.counted.restype = ctypes.c_longlong
    return library


class InProcess:
    """A worker in this very process, in the place of the harness's."""

    def __init__(self, log: Path, descriptor: int, *rest: Any) -> None:
        self._endpoint = socket.socket(fileno=os.dup(descriptor))
        self._task: asyncio.Task[int] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> int:
        channel = await Channel.open(self._endpoint, parse_supervisor)
        start = await channel.receive()
        assert isinstance(start, Start)
        return await Worker(channel, start, ProxySettings.from_wire(start.settings)).run()

    async def stop(self) -> None:
        assert self._task is not None
        await asyncio.wait_for(self._task, LIMIT)


@pytest.mark.parametrize(("connections", "depth", "requests"), [(50, 1, 20_000), (50, 16, 100_000)])
def test_no_python_object_for_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int, depth: int, requests: int
) -> None:
    monkeypatch.setattr("tests.integration.worker.harness.WorkerProcess", InProcess)
    library = compiled(tmp_path)

    async def load(harness: WorkerHarness, requests: int) -> None:
        port = harness.settings.listen.rpartition(":")[2]
        sender = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.worker.load_process", port),
            *map(str, (connections, depth, requests)),
        )
        assert await sender.wait() == 0

    async def calls_for(seconds: float) -> float:
        """Allocations a second of a worker that has nothing to do."""
        before = library.counted()
        await asyncio.sleep(seconds)
        return (library.counted() - before) / seconds

    async def measure() -> tuple[float, int]:
        # The slow log is Python, and on a busy machine requests are slow.
        harness = await WorkerHarness.start(tmp_path, slow_log_microseconds=0.0)
        await harness.apply([Slot(index, 2) for index in range(512, 1024)])
        await load(harness, 2_000)
        library.start()
        await calls_for(IDLE_SECONDS)  # what a worker does after its start is over by then
        idle = await calls_for(IDLE_SECONDS)
        gc.collect()
        blocks = sys.getallocatedblocks()
        calls = math.inf
        for _ in range(ATTEMPTS):
            before, began = library.counted(), time.monotonic()
            await load(harness, requests)
            calls = min(calls, library.counted() - before - idle * (time.monotonic() - began))
            if calls < requests * MOST_OF_A_REQUEST:
                break
        library.stop()
        gc.collect()
        left = sys.getallocatedblocks() - blocks
        await harness.stop()
        return calls, left

    calls, left = uvloop.run(measure())
    # What there is comes from the event loop's turns and the sessions' beginnings and ends.
    assert calls < requests * MOST_OF_A_REQUEST, f"{calls:.0f} allocations for {requests} requests"
    assert left < 2_000, f"{left} blocks are left of {requests} requests"
