"""Tests that share something slow to start run in one process, and the longest tests begin first."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import scheduling
from tests.conftest import LONG

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tests/unit/test_wheel.py::test_one", "tests/unit/test_wheel.py::test_other[x]"),
        (
            "tests/integration/clients/test_redis_cli.py::test_a[one-group]",
            "tests/integration/clients/test_celery.py::test_b[one-group-2]",
        ),
        ("tests/integration/sizing/test_job.py::test_a", "tests/integration/sizing/test_source.py::test_b"),
    ],
)
def test_these_run_in_one_process(one: str, other: str) -> None:
    assert scheduling.group(one) == scheduling.group(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tests/unit/test_wheel.py::test_one", "tests/unit/test_imports.py::test_one"),
        (
            "tests/integration/clients/test_redis_cli.py::test_a[one-group]",
            "tests/integration/clients/test_redis_cli.py::test_a[three-groups]",
        ),
        (
            "tests/integration/clients/test_cluster_clients.py::test_a",
            "tests/integration/clients/test_celery.py::test_a[one-group]",
        ),
    ],
)
def test_these_may_run_in_two(one: str, other: str) -> None:
    assert scheduling.group(one) != scheduling.group(other)


def test_what_is_named_is_there() -> None:
    for place in (*scheduling.SHARED, *scheduling.LONGEST):
        assert (ROOT / place).exists(), place
    for start in scheduling.COMPUTING:
        assert any(str(file.relative_to(ROOT)).startswith(start) for file in ROOT.glob("tests/**/*.py")), start


def test_files_that_compute_come_between_those_that_wait() -> None:
    waiting = [f"tests/integration/worker/test_{name}.py::test_{n}" for name in "abcd" for n in (1, 2)]
    computing = [f"tests/unit/test_{name}.py::test_{n}" for name in "ef" for n in (1, 2)]
    longest = [f"{scheduling.LONGEST[0]}::test_1"]
    items = [SimpleNamespace(nodeid=name) for name in waiting + computing + longest]
    scheduling.sort(items)  # type: ignore[arg-type]
    names = [item.nodeid for item in items]
    assert names[0] == longest[0]
    assert "".join(re.findall(r"/test_([a-f])\.py", " ".join(names))) == "aaeebbffccdd"


def test_the_longest_begin() -> None:
    assert scheduling.rank(f"{scheduling.LONGEST[0]}::test") < scheduling.rank(
        f"{scheduling.LONGEST[1]}test_x.py::test"
    )
    assert scheduling.rank("tests/unit/slots/test_x.py::test") == len(scheduling.LONGEST)


@pytest.mark.parametrize("name", [name for name in LONG if name != "fuzz"])
def test_what_a_short_run_leaves_out_begins_in_a_long_one(name: str) -> None:
    """It takes minutes."""
    file = f"tests/{name}" if name.endswith(".py") else f"tests/{name}/test_x.py"
    assert scheduling.rank(f"{file}::test") < len(scheduling.LONGEST)
