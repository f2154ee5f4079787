"""Running the command ``slotferry`` as a shell would."""

import asyncio
import json
import os
import signal
import tempfile
from dataclasses import dataclass
from typing import Any

from slotferry.local import environment_of
from tests.forking import Forked, fork

LIMIT = 150.0
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line on standard output as JSON."""
        assert self.status == 0, self
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)


async def slotferry(*arguments: str, given: str = "", **environment: str) -> Outcome:
    """Run ``slotferry ARGUMENTS`` with ``given`` on standard input, to its end."""
    with tempfile.TemporaryFile() as taken, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        taken.write(given.encode())
        taken.seek(0)
        process = fork(
            "tests.commanding",
            arguments,
            {0: taken.fileno(), 1: out.fileno(), 2: err.fileno()},
            {**environment_of("", {}), **environment},
        )
        status = await _ended(process)
        out.seek(0)
        err.seek(0)
        return Outcome(status, out.read().decode(), err.read().decode())


async def _ended(process: Forked) -> int:
    try:
        async with asyncio.timeout(LIMIT):
            while (status := process.poll()) is None:
                await asyncio.sleep(LOOK_SECONDS)
            return status
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
