"""A Celery application, as its worker process and the test import it. Broker and results: the proxy at CELERY_PROXY."""

import os

from celery import Celery, Task

PREFIX = "{celery}"
"""Celery and Kombu use several keys of theirs at once, so all of them share a hash tag."""

application = Celery("slotferry", broker=f"redis://{os.environ['CELERY_PROXY']}/4")
application.conf.update(
    result_backend=f"redis://{os.environ['CELERY_PROXY']}/4",
    broker_transport_options={"global_keyprefix": PREFIX},
    result_backend_transport_options={"global_keyprefix": PREFIX},
    task_acks_late=True,
    worker_hijack_root_logger=False,
)


@application.task
def add(*numbers: int) -> int:
    """The sum, of a list also."""
    return sum(numbers)


@application.task
def total(numbers: list[int]) -> int:
    """The sum of what the tasks before gave."""
    return sum(numbers)


@application.task(bind=True, max_retries=3)
def second_time(self: Task) -> int:
    """Fails when it is tried first; gives the number of retries."""
    if not self.request.retries:
        raise self.retry(countdown=0.01)
    return int(self.request.retries)


@application.task
def fail() -> None:
    """Fails."""
    raise ValueError("meant to fail")
