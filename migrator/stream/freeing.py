"""Closes files, in a thread of its own where an event loop would wait: the system takes seconds to free a large one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

_waiting: SimpleQueue[Callable[[], object]] = SimpleQueue()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def prepare() -> None:
    """Whoever makes a file that may get large calls this first. It starts the thread, which may not be done when a file
    is let go of: that happens anywhere."""
    global _thread
    with _starting:
        if _thread is None or not _thread.is_alive():  # a forked process has none
            _thread = threading.Thread(target=_run, name="free", daemon=True)
            _thread.start()


def free(close: Callable[[], object]) -> None:
    """Have a file closed: at once, or soon if this is the thread of an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        close()
    else:
        _waiting.put(close)


def _run() -> None:
    while True:
        close = _waiting.get()
        with suppress(OSError):
            close()
        del close  # not kept until the next one comes
