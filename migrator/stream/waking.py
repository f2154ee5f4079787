"""How the thread that fills a spool wakes those that read from it: threads and tasks of any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from migrator.errors import MigrationError


class Waking:
    """One condition for all parts of a spool, and the error that ends it.

    Attributes:
        condition: held while something changes that others wait for.
        failure: why nothing more comes; None while more may come.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.failure: MigrationError | None = None
        self._tasks: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def wake(self) -> None:
        """Have everybody look again; the caller holds the condition."""
        self.condition.notify_all()
        for loop, future in self._tasks:
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(_finish, future)
        self._tasks.clear()

    def fail(self, error: MigrationError) -> None:
        """Nothing more comes; the first error stays."""
        with self.condition:
            if self.failure is None:
                self.failure = error
            self.wake()

    def wait(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Have this thread wait until ``ready()``, a failure, or the limit; say whether it is not the limit.

        The caller holds the condition.
        """
        return self.condition.wait_for(lambda: ready() or self.failure is not None, seconds)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Have this task wait until ``ready()``; raises the failure if that comes first."""
        loop = asyncio.get_running_loop()
        while True:
            with self.condition:
                if ready():
                    return
                if self.failure is not None:
                    raise self.failure
                entry = (loop, loop.create_future())
                self._tasks.add(entry)
            try:
                await entry[1]
            finally:
                with self.condition:
                    self._tasks.discard(entry)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
