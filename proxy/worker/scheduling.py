"""How a worker gets its turn on a processor: when one is free, or its share is due, but not at once.

A worker that interrupts the sender of a request serves only that request, and sleeps until the next: the switch costs
as much as the request. A worker that lets the sender go on finds several requests, which share one look and one send.
Linux calls that SCHED_BATCH. On an idle processor it makes no difference.
"""

import os

import structlog

log = structlog.get_logger()


def interrupt_nobody() -> None:
    """Have this thread, and the threads that it starts, wait for their turn. Some systems do not support it.

    If the process already has another policy, that stays.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as error:
        log.info("batch_scheduling_refused", reason=str(error))
