"""No process of a cluster looks through its own modules for garbage while slots are locked or clients wait."""

import os
import signal
from pathlib import Path

import pytest

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, log_of

TELLING = """
import gc, os, pathlib, signal

def tell(*arguments):
    path = pathlib.Path(__file__).with_name(str(os.getpid()))
    path.with_suffix(".new").write_text(str(gc.get_freeze_count()))
    path.with_suffix(".new").rename(path)

signal.signal(signal.SIGUSR2, tell)
"""
"""Python imports it at every start, by its name; then a process can be asked from outside."""
LEAST = 20_000
"""A process has at least so many lasting objects; it really has two to four times as many."""


@pytest.mark.long
async def test_collections_spare_what_a_process_consists_of(
    start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(TELLING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    cluster = await start_cluster(groups=1, proxies=1, workers=2)

    async def ready() -> int:
        return sum(entry.get("event") == "worker_ready" for entry in log_of(cluster.proxies[0]))

    await eventually(ready, (2).__eq__, "both workers to be ready")
    pids = [cluster.topom.pid, cluster.proxies[0].pid, *cluster.worker_pids(0).values()]
    assert len(pids) == 4
    for pid in pids:
        os.kill(pid, signal.SIGUSR2)

    async def told() -> bool:
        return all((tmp_path / str(pid)).exists() for pid in pids)

    await eventually(told, bool, "all processes to tell")
    assert all(int((tmp_path / str(pid)).read_text()) > LEAST for pid in pids)
