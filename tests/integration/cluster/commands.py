"""Running the command ``slotferry`` as a shell would."""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

from cli.local import environment_of

LIMIT = 60.0


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
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment_of("", {}), **environment},
    )
    try:
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())
