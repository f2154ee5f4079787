"""The worker of RQ, and what it does."""

from typing import Any

from rq import Worker, get_current_job


class TidyWorker(Worker):
    """Looks every second for jobs that were left.

    If the slot moves to another server while a job is enqueued that has waited for others, RQ leaves that to its next
    maintenance. By default, that is 10 minutes away.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "maintenance_interval": 1})

    @property
    def dequeue_timeout(self) -> int:
        """An idle worker looks only when it has waited for so many seconds."""
        return 1


def add(*numbers: int) -> int:
    """The sum."""
    return sum(numbers)


def second_time() -> int:
    """Fails when it is tried first."""
    job = get_current_job()
    assert job is not None
    if job.number_of_retries is None and job.retries_left == 2:
        raise ValueError("meant to fail once")
    return 2


def fail() -> None:
    """Fails."""
    raise ValueError("meant to fail")
