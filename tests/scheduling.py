"""Which tests run in one process of ``scripts/test``, one after the other, and which begin.

A file's tests stay together. So do those of several files for which the same is started: Spark, a cluster for clients,
etcd and ZooKeeper; it is started once then, and not once a process. What takes longest begins, so that no process is
left with it in the end.
"""

import pytest
from xdist.scheduler import LoadFileScheduling

CLIENTS = "tests/integration/clients/"
TOPOLOGIES = ("one-group", "three-groups", "moving-slots")
SHARED = {
    "tests/integration/sizing/test_job.py": "spark",
    "tests/integration/sizing/test_rdb_spark.py": "spark",
    "tests/integration/sizing/test_source.py": "spark",
    "tests/integration/stores/test_elections.py": "stores",
    "tests/integration/stores/test_stores.py": "stores",
}
LONGEST = (
    "tests/integration/sizing/test_job.py",
    "tests/integration/faults/",
    "tests/behaviour/",
    "tests/integration/sizing/test_runs.py",
    "tests/integration/sizing/test_cluster.py",
    "tests/integration/test_model.py",
    "tests/unit/test_wheel.py",
    CLIENTS,
)
"""What begins, in this order; everything else comes after in its own."""


def group(test: str) -> str:
    """What a test belongs to, by the test's name; two with the same run in one process."""
    file, _, rest = test.partition("::")
    if file.startswith(CLIENTS):
        return next((f"{CLIENTS}{name}" for name in TOPOLOGIES if f"[{name}" in rest), file)
    return SHARED.get(file, file)


def rank(test: str) -> int:
    """Lower ones begin."""
    return next((at for at, start in enumerate(LONGEST) if test.startswith(start)), len(LONGEST))


class Scheduling(LoadFileScheduling):
    """By :func:`group`."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def sort(items: list[pytest.Item]) -> None:
    """Put those that begin before the others, whose order stays."""
    items.sort(key=lambda item: rank(item.nodeid))
