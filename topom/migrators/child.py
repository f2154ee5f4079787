"""The migrator that topom starts on its own machine, so that one topom needs nothing else.

It is started once slots are to move by the stream and there is no other, and a while after the term began: those of
other machines have to find this topom first. It is started again if it ends. It ends with the term, and with this
process however that ends: the pipe that it gets its settings by is its life line (:mod:`migrator.process.child`). Its
log is this process's.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

from slots.backoff import Backoff
from slots.python import TOLD
from topom.migrators.members import Migrators

COMMAND = (*TOLD, "-m", "migrator.process.child")
OTHERS_SECONDS = 3.0
"""How long after the beginning of a term those of other machines may take to register."""
STOP_SECONDS = 5.0
"""How long the child may take to end; then it is killed."""
RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 10.0
HEALTHY_SECONDS = 30.0
"""After so long the next start is not a retry."""

log = structlog.get_logger(__name__)


class Child:
    """Keeps the child.

    Args:
        settings: of :class:`migrator.process.settings.MigratorSettings`, as JSON has them.
    """

    name = "own migrator"

    def __init__(self, migrators: Migrators, settings: Mapping[str, Any]) -> None:
        self._migrators = migrators
        self._settings = dict(settings)
        self._changed = asyncio.Event()
        self.pid: int | None = None
        """Its process id while it runs."""

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Let these settings hold, also in the child that runs."""
        if settings != self._settings:
            self._settings = dict(settings)
            self._changed.set()

    async def run(self) -> None:
        """Keep the child running, once one is wanted, until cancelled."""
        await asyncio.sleep(OTHERS_SECONDS)
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        clock = asyncio.get_running_loop().time
        while True:
            await self._migrators.wanted.wait()
            if self._migrators.all():
                # Whoever finds none later wants one again.
                self._migrators.wanted.clear()
                continue
            began = clock()
            try:
                status = await self._keep()
                log.warning("own_migrator_ended", status=status)
            except OSError as error:
                log.error("own_migrator_not_started", reason=error.strerror or str(error))
            if clock() - began >= HEALTHY_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _keep(self) -> int:
        """One child, from its start to its end; gives its status."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=subprocess.PIPE,
            # It imports the same modules as this process, from any working directory.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            # A Ctrl-C at the terminal is for topom, which ends it.
            start_new_session=True,
        )
        self.pid = process.pid
        telling = asyncio.create_task(self._tell(process))
        try:
            log.info("own_migrator_started", pid=process.pid)
            return await process.wait()
        finally:
            self.pid = None
            telling.cancel()
            await _end(process)

    async def _tell(self, process: asyncio.subprocess.Process) -> None:
        """Tell a child the settings, and again when they change. bounded: of a child that does not read, the pipe holds
        so much as it takes to make this wait, and only the newest settings come after it."""
        assert process.stdin is not None, "it has a pipe"
        with suppress(OSError):  # it has ended
            while True:
                self._changed.clear()
                process.stdin.write(json.dumps(self._settings).encode() + b"\n")
                await process.stdin.drain()
                await self._changed.wait()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None, "it has a pipe"
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
