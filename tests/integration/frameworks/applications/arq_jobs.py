"""arq with its default settings: a worker with a cron job, and what is asked of it."""

import asyncio
from typing import Any

from arq import ArqRedis, Retry, create_pool, cron
from arq.connections import RedisSettings
from arq.jobs import Job, JobStatus
from running import WHAT, address, tell, worker

SETTINGS = RedisSettings(*address())


async def add(context: dict[str, Any], *numbers: int) -> int:
    """The sum."""
    return sum(numbers)


async def second_time(context: dict[str, Any]) -> int:
    """Is to be tried again at first."""
    if context["job_try"] == 1:
        raise Retry(defer=0.1)
    return int(context["job_try"])


async def fail(context: dict[str, Any]) -> None:
    """Fails."""
    raise ValueError("meant to fail")


async def tick(context: dict[str, Any]) -> None:
    """Each second."""
    await context["redis"].incr("ticks")


async def long(context: dict[str, Any]) -> None:
    """Is aborted."""
    await asyncio.sleep(600)


class WorkerSettings:
    """For the worker."""

    functions = (add, second_time, fail, long)
    cron_jobs = (cron(tick, second=set(range(60))),)
    redis_settings = SETTINGS
    allow_abort_jobs = True


async def enqueued(pool: ArqRedis, name: str, *arguments: int, **options: object) -> Job:
    """A job that is enqueued for sure.

    arq gives None if its transaction is not run. It takes that for a job of the same id, but the cause may be that the
    slot has moved to another server since the WATCH.
    """
    while True:
        job = await pool.enqueue_job(name, *arguments, **options)
        if job is not None:
            return job


async def work() -> dict[str, object]:
    """What an application does."""
    pool = await create_pool(SETTINGS)
    with worker("arq", "arq_jobs.WorkerSettings"):
        plain = [await enqueued(pool, "add", number, 1) for number in range(30)]
        one = [await enqueued(pool, "add", 1, _job_id="one"), await pool.enqueue_job("add", 1, _job_id="one")]
        later = await enqueued(pool, "add", 2, 3, _defer_by=1)
        again = await enqueued(pool, "second_time")
        failing = await enqueued(pool, "fail")
        aborted = await enqueued(pool, "long")
        while await aborted.status() != JobStatus.in_progress:
            await asyncio.sleep(0.02)
        seen: dict[str, object] = {
            "aborted": await aborted.abort(timeout=30),
            "plain": [await job.result(30, poll_delay=0.02) for job in plain],
            "one": [job is not None and await job.result(30, poll_delay=0.02) for job in one],
            "later": await later.result(30, poll_delay=0.02),
            "again": await again.result(30, poll_delay=0.02),
        }
        try:
            await failing.result(30)
        except ValueError as error:
            seen["failure"] = str(error)
        while int(await pool.get("ticks") or 0) < 2:
            await asyncio.sleep(0.02)
        seen["results"] = sum(result.function != "cron:tick" for result in await pool.all_job_results())
        seen["status"] = (await Job("one", pool).status()).value
        seen["queued"] = [job.function for job in await pool.queued_jobs() if job.function != "cron:tick"]
    return seen


async def probe() -> object:
    """The first step that needs rules."""
    pool = await create_pool(SETTINGS)
    job = await pool.enqueue_job("add", 1)
    return job is not None


if __name__ == "__main__":
    tell(asyncio.run(work() if WHAT == "work" else probe()))
