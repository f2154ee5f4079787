"""Which deadlines of a copy are withheld, and when."""

import pytest

from migrator.stream import deadlines
from migrator.stream.deadlines import MARGIN_MS, PLACEHOLDER_MS, DeadlineMissed, Deadlines, TooManyDeadlines

NOW = 1_700_000_000_000
HOUR = 3_600_000


def test_a_far_deadline_is_written_as_it_is_and_withheld_before_it_comes():
    some = Deadlines(NOW + HOUR)
    at = NOW + 60_000
    assert some.written(1, b"k", at, NOW) == at
    assert some.due(at - MARGIN_MS - 2 * deadlines.BUCKET_MS) == []
    assert some.due(at - MARGIN_MS) == [(1, b"k")]
    assert some.due(at - MARGIN_MS) == []
    assert list(some.withheld()) == [(1, b"k")]


def test_a_near_or_past_deadline_is_withheld_at_once():
    some = Deadlines(NOW + HOUR)
    for at in (NOW + MARGIN_MS, NOW, NOW - HOUR, 0):
        assert some.written(0, b"%d" % at, at, NOW) == PLACEHOLDER_MS
    assert len(list(some.withheld())) == 4
    assert some.due(NOW) == []


def test_a_deadline_beyond_the_end_of_the_copy_takes_no_memory():
    some = Deadlines(NOW + HOUR)
    assert some.written(0, b"k", NOW + HOUR + 1, NOW) == NOW + HOUR + 1
    assert some.due(NOW + HOUR - MARGIN_MS) == []


def test_a_copy_that_goes_on_for_too_long_is_given_up():
    some = Deadlines(NOW + HOUR)
    with pytest.raises(DeadlineMissed, match="longer"):
        some.due(NOW + HOUR)


def test_a_deadline_that_has_come_before_it_was_withheld_is_noticed():
    some = Deadlines(NOW + HOUR)
    some.written(0, b"k", NOW + 10_000, NOW)
    with pytest.raises(DeadlineMissed, match="stood still"):
        some.due(NOW + 10_000)


def test_what_the_source_deleted_is_no_longer_withheld():
    some = Deadlines(NOW + HOUR)
    some.withhold(0, b"k")
    some.gone(1, b"k")
    assert list(some.withheld()) == [(0, b"k")]
    some.gone(0, b"k")
    some.gone(0, b"k")
    assert list(some.withheld()) == []


def test_notes_have_a_limit_of_memory_that_is_given_back(monkeypatch):
    monkeypatch.setattr(deadlines, "MOST_NOTED", 10 * (deadlines.OVERHEAD + 4))
    some = Deadlines(NOW + HOUR)
    for turn in range(3):
        for number in range(10):
            some.written(0, b"key%d" % number, NOW + (turn + 1) * 60_000, NOW)
        if turn < 2:
            assert len(some.due(NOW + (turn + 1) * 60_000 - MARGIN_MS)) == 10
    with pytest.raises(TooManyDeadlines, match="bytes"):
        some.written(0, b"more", NOW + 60_000, NOW)


def test_only_so_many_keys_are_withheld(monkeypatch):
    monkeypatch.setattr(deadlines, "MOST_WITHHELD", 3)
    some = Deadlines(NOW + HOUR)
    for number in range(3):
        some.withhold(0, b"%d" % number)
    some.withhold(0, b"0")
    with pytest.raises(TooManyDeadlines, match="about to expire"):
        some.withhold(0, b"3")


def test_what_was_due_has_to_be_withheld_before_its_deadline() -> None:
    """A target that stands still meanwhile may have lost the key before it got the placeholder."""
    some = Deadlines(NOW + HOUR)
    some.written(0, b"k", NOW + 10_000, NOW)
    some.written(0, b"l", NOW + 10_400, NOW)
    assert len(some.due(NOW + 8_000)) == 2
    some.require_in_time(NOW + 9_999)
    with pytest.raises(DeadlineMissed, match="stood still"):
        some.require_in_time(NOW + 10_000)
    assert some.due(NOW + 12_000) == []
    some.require_in_time(NOW + 12_000)
