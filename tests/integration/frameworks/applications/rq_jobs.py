"""RQ with its default settings, but for its maintenance: a worker with its scheduler, and what is asked of it."""

from datetime import timedelta

import rq_tasks
from redis import Redis
from rq import Queue, Retry
from rq.job import JobStatus
from running import HOST, PORT, WHAT, tell, until, worker


def work() -> dict[str, object]:
    """What an application does."""
    with Redis(HOST, int(PORT)) as client:
        high, queue = Queue("high", connection=client), Queue(connection=client)
        of = "--worker-class", "rq_tasks.TidyWorker", "--url", f"redis://{HOST}:{PORT}"
        with worker("rq.cli", "worker", "high", "default", "--with-scheduler", *of):
            plain = [queue.enqueue(rq_tasks.add, number, 1) for number in range(8)]
            many = high.enqueue_many([Queue.prepare_data(rq_tasks.add, (number,)) for number in range(3)])
            after = queue.enqueue(rq_tasks.add, 5, 6, depends_on=plain[-1])
            later = queue.enqueue_in(timedelta(seconds=1), rq_tasks.add, 2, 3)
            again = queue.enqueue(rq_tasks.second_time, retry=Retry(max=2))
            failing = queue.enqueue(rq_tasks.fail)
            cancelled = queue.enqueue_in(timedelta(hours=1), rq_tasks.add, 1)
            cancelled.cancel()
            done = [*plain, *many, after, later, again]
            until(lambda: all(one.get_status() == JobStatus.FINISHED for one in done), "all jobs")
            until(lambda: failing.get_status() == JobStatus.FAILED, "the failure")
            return {
                "results": [one.return_value() for one in done],
                "failed": [one == failing.id for one in queue.failed_job_registry.get_job_ids()],
                "cancelled": cancelled.get_status().value,
                "finished": len(queue.finished_job_registry),
                "queues": sorted(one.name for one in Queue.all(client)),
                "left": len(queue) + len(high),
            }


def probe() -> object:
    """The first step that needs rules."""
    with Redis(HOST, int(PORT)) as client:
        return Queue(connection=client).enqueue(rq_tasks.add, 1).id


tell(work() if WHAT == "work" else probe())
