"""What the consumer of Huey does, with its default settings."""

from huey import PriorityRedisHuey
from running import address

huey = PriorityRedisHuey("jobs", host=address()[0], port=address()[1])


@huey.task()
def add(*numbers: int) -> int:
    """The sum."""
    return sum(numbers)


@huey.task(retries=2)
def second_time() -> int:
    """Fails when it is tried first."""
    if not huey.storage.conn.set("tried", 1, nx=True):
        return 2
    raise ValueError("meant to fail once")


@huey.task()
@huey.lock_task("counting")
def fail() -> None:
    """Fails."""
    raise ValueError("meant to fail")
