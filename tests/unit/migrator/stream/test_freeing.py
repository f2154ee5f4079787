"""Where a file is closed."""

import asyncio
import threading
from queue import SimpleQueue

from migrator.stream.freeing import free, prepare


def test_a_thread_frees_at_once() -> None:
    closed: list[int] = []
    free(lambda: closed.append(threading.get_ident()))
    assert closed == [threading.get_ident()]


async def test_an_event_loop_has_another_thread_free() -> None:
    prepare()
    closed: SimpleQueue[int] = SimpleQueue()
    for _ in range(2):
        free(lambda: closed.put(threading.get_ident()))
    one, other = [await asyncio.to_thread(closed.get, timeout=30) for _ in range(2)]
    assert one == other != threading.get_ident()
