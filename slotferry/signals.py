"""Ends a program in order: SIGINT, SIGTERM and the end of its terminal cancel its work, so that it can clean up."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def until_signal(work: Coroutine[Any, Any, Result]) -> Result | None:
    """Run ``work`` to its end and give its result; None if SIGINT, SIGTERM or SIGHUP ended it early.

    A second signal does not interrupt the clean-up, which has limits of its own. ``nohup`` has SIGHUP ignored, and that
    stays.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)
    told = False

    def end() -> None:
        nonlocal told
        if not told:
            told = True
            task.cancel()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not told:
            raise
        return None
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
