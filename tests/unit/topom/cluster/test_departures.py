"""Which groups slots have left within a day."""

import pytest

from topom.cluster import departures
from topom.cluster.departures import KEPT_SECONDS, added, recent


def test_what_left_a_group_is_known_for_a_day() -> None:
    first = added({}, 1, [3, 4], 1000.0)
    assert first == {1: {3: 1000.0, 4: 1000.0}}
    second = added(first, 2, [3], 2000.0)
    assert second == {1: {3: 1000.0, 4: 1000.0}, 2: {3: 2000.0}}
    again = added(second, 1, [4], 3000.0)
    assert again == {1: {3: 1000.0, 4: 3000.0}, 2: {3: 2000.0}}
    # A day later, what is older is forgotten, so no more is stored than left within a day.
    assert added(again, 2, [5], 2000.0 + KEPT_SECONDS) == {1: {4: 3000.0}, 2: {5: 2000.0 + KEPT_SECONDS}}


def test_a_clock_that_was_set_keeps_nothing_for_longer() -> None:
    left = {1: 1000.0, 2: 2000.0}
    assert recent(left, 1500.0) == left
    assert recent(left, 1500.0 - KEPT_SECONDS) == {1: 1000.0}
    assert recent(left, 0.0 - 2 * KEPT_SECONDS) == {}


def test_bounded_the_oldest_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "KEPT_MOST", 3)
    known = added(added({}, 1, [1], 1.0), 2, [2, 3], 2.0)
    assert added(known, 1, [4], 3.0) == {1: {4: 3.0}, 2: {2: 2.0, 3: 2.0}}
    assert added(known, 3, [4, 5], 3.0) == {1: {}, 2: {}, 3: {4: 3.0, 5: 3.0}}, "of the same time, all or none"
