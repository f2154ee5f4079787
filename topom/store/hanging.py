"""Runs blocking calls on a thread of their own, each with a time limit.

A disk may take a call and never come back. Then only the thread hangs in that call. Its caller gets an error after the
limit, later callers get one at once, and when the disk is back all goes on. The process can end at any time, for the
thread does not keep it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Hangs(Exception):
    """The call did not come back in time, or an earlier one still has not. The call may still take effect."""


class OneThread:
    """Runs one call after the other.

    Args:
        seconds: how long a call may take.
    """

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._hung: asyncio.Future[Any] | None = None
        self._turn = asyncio.Lock()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call``, which runs after the calls before it. Raises :class:`Hangs`, and what ``call``
        raises.
        """
        async with self._turn:
            if self._hung is not None and not self._hung.done():
                raise Hangs(f"an earlier call has not come back; each may take {self._seconds():g} s")
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()
            done.add_done_callback(_heard)

            def work() -> None:
                try:
                    give = partial(_give, done, call(), None)
                except BaseException as error:
                    give = partial(_give, done, None, error)
                with suppress(RuntimeError):  # topom has ended
                    loop.call_soon_threadsafe(give)

            self._calls.put(work)
            try:
                async with asyncio.timeout(self._seconds()):
                    return await asyncio.shield(done)
            except TimeoutError:
                if done.done():
                    raise  # the call itself raised it
                self._hung = done
                raise Hangs(f"a call did not come back within {self._seconds():g} s") from None

    def end(self) -> None:
        """End the thread after the calls that it has."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _give(done: asyncio.Future[Any], outcome: object, error: BaseException | None) -> None:
    if not done.done():
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(outcome)


def _heard(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()  # perhaps nothing waits for it now
