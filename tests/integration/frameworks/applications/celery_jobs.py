"""Celery with its default settings, except for the addresses of its broker and its results."""

import sys

from celery import Celery, Task, chord, group
from redis import Redis
from running import WHAT, address, tell, until, worker

URL = "redis://{}:{}/0".format(*address())
application = Celery("celery_jobs", broker=URL, backend=URL)


@application.task
def add(*numbers: int) -> int:
    """The sum."""
    return sum(numbers)


@application.task
def total(numbers: list[int]) -> int:
    """The sum of what the tasks before gave."""
    return sum(numbers)


@application.task(bind=True, max_retries=3)
def third_time(self: Task) -> int:
    """Fails twice; gives the number of retries."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)


@application.task
def fail() -> None:
    """Fails."""
    raise ValueError("meant to fail")


def work() -> dict[str, object]:
    """What an application does."""
    with worker("celery", "-A", "celery_jobs", "worker", "--concurrency", "2", "--loglevel", "WARNING"):
        until(lambda: application.control.ping(timeout=1), "the worker")
        plain = [add.delay(number, 1) for number in range(40)]
        urgent = [add.apply_async((number,), priority=9) for number in range(5)]
        later = add.apply_async((1, 2), countdown=1)
        revoked = add.apply_async((1, 2), countdown=600)
        application.control.revoke(revoked.id)
        seen = {
            "plain": [one.get(100) for one in plain],
            "urgent": [one.get(100) for one in urgent],
            "group": group(add.s(number, number) for number in range(10)).apply_async().get(100),
            "chords": [chord((add.s(n, 1) for n in range(8)), total.s())().get(100) for _ in range(3)],
            "chain": (add.s(1, 2) | add.s(3) | group(add.s(4), add.s(5)) | total.s()).apply_async().get(100),
            "retries": third_time.delay().get(100),
            "failure": str(fail.delay().get(100, propagate=False)),
            "later": later.get(100),
            "revoked": until(lambda: revoked.state == "REVOKED", "the task that was revoked"),
        }
        with Redis(*address()) as client:
            seen["left"] = until(lambda: not client.llen("celery"), "the queue to be empty")
    return seen


def probe() -> object:
    """The first step that needs rules."""
    return add.delay(1, 1).id


if __name__ == "__main__":
    tell(work() if WHAT == "work" else probe())
    sys.exit()
