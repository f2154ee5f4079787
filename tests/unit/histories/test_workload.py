"""What clients do: the operations of each kind of key."""

from collections import Counter

import pytest

from tests.histories.operations import Form
from tests.histories.workload import Workload

OPERATIONS = 20_000


def drawn(flushes: float) -> Counter[tuple[str, str]]:
    workload = Workload(7, flushes)
    counts: Counter[tuple[str, str]] = Counter()
    for _ in range(OPERATIONS):
        partition, calls, form = workload.next()
        counts[partition.kind, "FLUSHDB" if form is Form.FLUSH else calls[0].name] += 1
    return counts


def test_deadlines_of_keys_that_are_seldom_written_come_go_and_change() -> None:
    counts = drawn(1.0)
    kept = sum(counts["deadline", name] for name in ("PERSIST", "PEXPIRE", "GET", "APPEND"))
    assert counts["deadline", "PERSIST"] > counts["deadline", "PEXPIRE"] > counts["deadline", "SET"] > 0
    assert kept > 4 * (counts["deadline", "SET"] + counts["deadline", "SETNX"])


@pytest.mark.parametrize(("flushes", "least", "most"), [(0.0, 0, 0), (1 / 8, 1, 40), (1.0, 41, OPERATIONS)])
def test_flushes_are_as_many_as_the_run_is_to_have(flushes: float, least: int, most: int) -> None:
    assert least <= drawn(flushes)["flushed", "FLUSHDB"] <= most
