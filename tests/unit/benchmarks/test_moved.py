"""The figures of a move, from made-up ones."""

import pytest

from benchmarks.moved import Phase, Run, ratios


def run(way: str, seconds: float, begun: float, goal: float = 0.0) -> Run:
    phases = {name: Phase(1.0, 1, 1.0, p99, 1.0, 1.0, {}) for name, p99 in [("quiet", 1.0), ("moving", 6.0)]}
    phases["after"] = Phase(1.0, 1, 1.0, 3.0, 1.0, 1.0, {})
    return Run(way, goal, [], 1000, 0, seconds, begun, [], phases, {}, [], {}, 0, {})


def test_the_quiet_p99_is_the_mean_of_before_and_after() -> None:
    assert (run("keys", 1, 1).quiet, run("keys", 1, 1).added, run("keys", 1, 1).slower) == (2.0, 4.0, 3.0)


def test_ways_are_compared_within_a_turn_and_a_goal() -> None:
    runs = [run("keys", 4, 3), run("stream", 2, 1), run("keys", 6, 6), run("stream", 3, 2), run("stream", 9, 9, 10.0)]
    assert ratios(runs, 0.0) == [pytest.approx((2.0, 3.0)), pytest.approx((2.0, 3.0))]
    assert ratios(runs, 10.0) == []
