"""Which tests run in one process of ``scripts/test``, one after the other, and which begin.

A file's tests stay together. So do those of several files for which the same is started: Spark, a cluster for clients,
etcd and ZooKeeper; it is started once then, and not once a process. What takes longest begins, so that no process is
left with it in the end. After that, tests that compute come between tests that wait, so that neither keeps all
processes at once.
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
    "tests/integration/page/test_acts.py": "page",
    "tests/integration/page/test_page.py": "page",
    "tests/integration/page/test_fleet.py": "page",
}
LONGEST = (
    "tests/integration/sizing/test_job.py",
    "tests/integration/faults/",
    "tests/integration/test_documents.py",
    "tests/behaviour/",
    "tests/integration/sizing/test_runs.py",
    "tests/integration/sizing/test_cluster.py",
    "tests/integration/test_model.py",
    "tests/integration/slotferry/test_wheels.py",
    "tests/integration/test_image.py",
    "tests/integration/upgrades/",
    "tests/unit/topom/test_odd_servers.py",
    "tests/integration/histories/",
    "tests/differential/",
    "tests/integration/reloading/test_through_topom.py",
    "tests/integration/frameworks/",
    CLIENTS,
)
"""What begins, in this order."""
COMPUTING = (
    "tests/unit/",
    "tests/integration/migrator/test_pieces",
    "tests/integration/sizing/",
)
"""What computes; the rest mostly waits."""


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
    """Put those that begin before the others. Of these, files that compute are spread evenly among files that wait.

    In each of the two kinds the order stays, and a file's tests stay together.
    """
    files = list(dict.fromkeys(map(_file, items)))
    places: dict[str, float] = {}
    for kind in (True, False):
        of_kind = [file for file in files if computes(file) is kind]
        places |= {file: at / len(of_kind) for at, file in enumerate(of_kind)}
    items.sort(key=lambda item: (rank(item.nodeid), places[_file(item)], _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def computes(file: str) -> bool:
    """Whether the tests of a file keep a core busy for most of their time."""
    return file.startswith(COMPUTING)
