"""Celery: a worker process of its own takes tasks from the proxy and puts their results there.

All keys share the hash tag of ``global_keyprefix``; Celery is used with a Redis behind a proxy like this, too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chord, group
from celery.exceptions import TimeoutError as NotInTime

from slotferry.local import LocalCluster
from tests.forking import bound

ROOT = Path(__file__).parents[3]
APPLICATION = "tests.integration.clients.celery_application"
SECONDS = 90
NOTICED_SECONDS = 10


@pytest.fixture(scope="module")
def tasks(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The application's module, while a worker does its tasks."""
    environment = {**os.environ, "CELERY_PROXY": cluster.proxy_addresses[0], "PYTHONPATH": str(ROOT)}
    log = tmp_path_factory.mktemp("celery") / "worker.log"
    command = [
        "-m",
        "celery",
        "-A",
        APPLICATION,
        "worker",
        "--pool",
        "threads",
        "--concurrency",
        "4",
        "--loglevel",
        "INFO",
    ]
    with pytest.MonkeyPatch.context() as patch, log.open("wb") as output:
        patch.setenv("CELERY_PROXY", cluster.proxy_addresses[0])
        # Made anew for each cluster: the address is read when it is imported.
        sys.modules.pop(APPLICATION, None)
        module = __import__(APPLICATION, fromlist=["application"])
        worker = subprocess.Popen(
            bound([sys.executable, *command]), cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield module
        finally:
            worker.terminate()
            try:
                status = worker.wait(SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
                raise
            finally:
                module.application.close()
                print(f"--- the worker's log\n{log.read_text()[-4000:]}")
        assert status == 0


def result_of(result: Any) -> Any:
    """What a task, or a group of them, gave.

    Celery does not wait for the confirmation of SUBSCRIBE. On a machine with too few processors, a worker of the proxy
    may read it only after the result was published through the other worker. The stored result is found when it is
    asked for again.
    """
    try:
        return result.get(timeout=NOTICED_SECONDS)
    except NotInTime:
        return result.get(timeout=SECONDS)


@pytest.mark.long
def test_tasks_are_done_and_give_results(tasks: Any, address: tuple[str, int]) -> None:
    results = [tasks.add.delay(number, 1) for number in range(50)]
    assert [result_of(result) for result in results] == list(range(1, 51))
    with redis.Redis(*address, db=4) as client:
        names = list(client.scan_iter(count=1000))
    assert names
    assert all(name.startswith(tasks.PREFIX.encode()) for name in names), names


def test_a_group_and_a_chord(tasks: Any) -> None:
    several = group(tasks.add.s(number, number) for number in range(20)).apply_async()
    assert result_of(several) == [2 * number for number in range(20)]
    # The results are collected at the server; the last of the tasks has the next one begin.
    summed = chord((tasks.add.s(number, 1) for number in range(20)), tasks.total.s())()
    assert result_of(summed) == 210


@pytest.mark.long
def test_a_chain_a_retry_and_a_failure(tasks: Any) -> None:
    assert result_of((tasks.add.s(1, 2) | tasks.add.s(3) | tasks.add.s(4)).apply_async()) == 10
    assert result_of(tasks.second_time.delay()) == 1
    with pytest.raises(ValueError, match="meant to fail"):
        result_of(tasks.fail.delay())
