"""Huey with its default settings: a consumer, and what is asked of it."""

from huey.exceptions import TaskException
from huey_tasks import add, fail, huey, second_time
from running import WHAT, tell, worker


def work() -> dict[str, object]:
    """What an application does."""
    with worker("huey.bin.huey_consumer", "huey_tasks.huey", "--workers", "2", "--quiet"):
        plain = [add(number, 1) for number in range(30)]
        urgent = [add(number, priority=10) for number in range(3)]
        later = add.schedule((2, 3), delay=1)
        chained = huey.enqueue(add.s(1, 2).then(add, 3).then(add, 4))
        again, failing = second_time(), fail()
        revoked = add.schedule((1, 2), delay=600)
        revoked.revoke()
        seen = {
            "plain": [one(blocking=True, timeout=30) for one in plain],
            "urgent": [one(blocking=True, timeout=30) for one in urgent],
            "later": later(blocking=True, timeout=30),
            "chained": chained.get(blocking=True, timeout=30),
            "again": again(blocking=True, timeout=30),
            "revoked": revoked.is_revoked(),
        }
        try:
            failing(blocking=True, timeout=30)
        except TaskException as error:
            seen["failure"] = error.metadata["error"]
        return seen


tell(work() if WHAT == "work" else add(1, 1).id)
