"""What the worker of RQ does."""

from rq import get_current_job


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
