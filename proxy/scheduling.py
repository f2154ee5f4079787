"""How a worker gets its turn on a processor: when there is one free, or its share is due, and not at once.

A worker that interrupts whoever sends it a request serves that one request, and sleeps until the next: switching costs
as much as the request. One that lets the sender go on finds several requests, which take one look and share their
sends. Linux calls that SCHED_BATCH. On a processor that has nothing to do it makes no difference.
"""

import os

import structlog

log = structlog.get_logger()


def interrupt_nobody() -> None:
    """Have this thread, and those that it starts, wait for their turn; not where the system has no such thing.

    A policy that somebody else has chosen for the process stays.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        log.info("batch_scheduling_refused", reason=str(error))
