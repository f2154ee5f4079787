"""Which processes of a cluster are forked, rather than started with half a second of importing each."""

import os

from slotferry.local import environment_of
from tests.forking import imports_more


def test_what_a_cluster_starts_finds_nothing_more() -> None:
    environment = environment_of("SLOTFERRY_TOPOM_", {"port": 1})
    assert environment["PYTHONPATH"]
    assert not imports_more(environment, os.environ.get("PYTHONPATH", ""))


def test_another_folder_is_more() -> None:
    assert imports_more({"PYTHONPATH": os.pathsep.join(["/another", "/known"])}, "/known")
    assert not imports_more({"PYTHONPATH": "/known"}, "/known")
    assert not imports_more({}, "")
