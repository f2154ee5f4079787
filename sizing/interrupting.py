"""Ends a run early and in order: on Ctrl-C, on SIGTERM, and when its terminal is closed.

Only the main thread hears of signals. If it were in a call to Java then, the answer would be lost, and py4j would print
its stack. So the run is in a thread of its own, and the main thread has Spark end that thread's jobs, also those that
begin later. **bounded**: after that, Spark itself is ended.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from threading import Event, Thread, current_thread, main_thread
from typing import Any, TypeVar

Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_SECONDS = 2.0
"""How long a run may take to end once it was told."""
_POLL_SECONDS = 0.1


@contextmanager
def heard() -> Iterator[None]:
    """Have the signals raise KeyboardInterrupt while the block runs, except those that are ignored, as by ``nohup``."""
    with _with_handler(signal.default_int_handler):
        yield


@contextmanager
def beginning() -> Iterator[None]:
    """Have Spark begin in the block. Its own handler of Ctrl-C does not stay, because it calls Java wherever it comes.

    If a call is interrupted, py4j prints no stack."""
    root = logging.getLogger()
    with _kept():
        root.addFilter(_no_stack)
        try:
            yield
        finally:
            root.removeFilter(_no_stack)


def interruptible(work: Callable[[Event], Result], end_jobs: Callable[[], None], leave: Callable[[], None]) -> Result:
    """Do the work in another thread, and give its result.

    Args:
        work: is told by its argument that it was interrupted.
        end_jobs: has Spark end its present jobs.
        leave: ends Spark after an interruption, whatever it does then.

    Raises:
        KeyboardInterrupt: this thread was interrupted; and whatever the work raises.
    """
    told, done = Event(), Future[Result]()
    thread = Thread(target=_do, args=(work, told, done), name="sizing", daemon=True)
    try:
        thread.start()
        # A signal that comes just before a wait without end would be heard after it.
        while not wait([done], _POLL_SECONDS).done:
            pass
        return done.result()
    except KeyboardInterrupt:
        told.set()
        with _with_handler(signal.SIG_IGN):
            until = time.monotonic() + END_SECONDS
            # Whatever Spark says to that, it ends.
            with suppress(Exception):
                while thread.is_alive() and time.monotonic() < until:
                    end_jobs()
                    thread.join(_POLL_SECONDS)
            leave()
        raise


def _do(work: Callable[[Event], Result], told: Event, done: Future[Result]) -> None:
    try:
        done.set_result(work(told))
    except BaseException as error:
        done.set_exception(error)


def _no_stack(record: logging.LogRecord) -> bool:
    return "KeyboardInterrupt" not in str(record.msg)


@contextmanager
def _with_handler(handler: Any) -> Iterator[None]:
    with _kept() as before:
        for number, known in before.items():
            if known is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield


@contextmanager
def _kept() -> Iterator[dict[signal.Signals, Any]]:
    """Gives the handlers, and has them in force again after the block; none where there is no way to set any."""
    may = current_thread() is main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS if may}
    try:
        yield before
    finally:
        for number, known in before.items():
            # None: a handler that was not set by Python.
            if known is not None:
                signal.signal(number, known)
