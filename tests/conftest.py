"""No test hangs: one that its own time limit does not end is ended with its process, and what it waits for is shown."""

import asyncio
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Generator

import pytest

MOST_SECONDS = 1200
"""For one test with its fixtures: more than any test's own limit."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """pytest-timeout raises once, in the test; what hangs in the clean-up after that is left to this."""
    watch = threading.Timer(MOST_SECONDS, _give_up, (item.nodeid,))
    watch.daemon = True
    watch.start()
    try:
        return (yield)
    finally:
        watch.cancel()


def _give_up(name: str) -> None:
    out = sys.__stderr__ or sys.stderr
    print(f"\n{name} has not ended within {MOST_SECONDS} s; its process ends here. Threads:", file=out, flush=True)
    faulthandler.dump_traceback(out)
    for task in [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]:
        task.print_stack(file=out)
    out.flush()
    os._exit(70)
