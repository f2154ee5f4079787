"""What a run of the tests leaves out."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import searching
from tests.conftest import LONG, TESTS, left_out


def test_what_searches_for_long_runs_if_it_is_asked_for_or_named() -> None:
    assert left_out(long=False, named=False) == [str(TESTS / name) for name in LONG]
    assert left_out(long=True, named=False) == left_out(long=False, named=True) == []


def test_what_is_left_out_is_there() -> None:
    assert all((TESTS / name).exists() for name in LONG)


@pytest.mark.long
def test_processes_that_tests_are_spread_over_leave_out_the_same() -> None:
    """Of the tests that are chosen here, two search for long and this one is marked; ``--setup-plan`` runs none."""
    chosen = ("-k", "test_what_is_left_out_is_there or test_fuzz or leave_out_the_same", "--setup-plan", "-n1")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--dist", "loadfile", *chosen],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 worker [1 item]" in run.stdout, run.stdout + run.stderr


def test_tests_by_chance_look_at_fewer_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(searching, "_whole", True)
    profiles = SimpleNamespace(
        register_profile=lambda name, max_examples, **_: chosen.append(max_examples), load_profile=lambda name: None
    )
    monkeypatch.setattr(searching, "settings", profiles)
    assert searching.examples(150) == 150
    searching.choose(whole=False)
    assert (searching.examples(150), searching.examples(3), chosen) == (30, 1, [20])
