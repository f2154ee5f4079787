"""The picture: drawn of any series, well-formed, with what it shows."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotferry.picture import decades, draw, nice_steps, short
from slotferry.series import Sample, Series
from slotferry.traffic.driver import Report
from slotferry.traffic.latency import Histogram


def series_of(requests: list[int], began: float | None = 1.5) -> Series:
    series = Series(keys=1000, slots_to_move=341, rebalance_began=began, rebalance_ended=3.5 if began else None)
    for second, count in enumerate(requests):
        report = Report(at=second, duration=1.0, requests=count, latency=Histogram({200: count, 900: 1}))
        series.add(report, second + 1.0, {"slots_moved": min(341, 100 * second), "keys_moved": 1000 * second})
    return series


def words_of(svg: str) -> str:
    return " ".join(text for text in ElementTree.fromstring(svg).itertext() if text)


def test_a_run() -> None:
    words = words_of(draw(series_of([4000, 5000, 5100, 4900])))
    assert "0 errors, 0 wrong values in 19,000 requests" in words
    for expected in ("requests/s", "p50 ms", "p99 ms", "slots moved", "slots are moving", "up to 1,000 keys/s", "6k"):
        assert expected in words


def test_each_pair_of_groups_has_a_row_that_names_its_ways() -> None:
    series = series_of([4000, 5000, 5100, 4900])

    def saw(at: float, *batches: tuple[int, str | None]) -> None:
        notes = ["s:1 is slow", "by the stream: 9 keys take 1 s"]
        of = [
            {"source": source, "target": 3, "way": way, "notes": notes if source == 2 else []}
            for source, way in batches
        ]
        series.saw(at, {"batches": of})

    saw(1.0, (1, None))
    saw(1.5, (1, "keys"), (2, "stream"))
    saw(2.0)
    saw(2.5, (1, "keys"))
    saw(3.0, (1, "stream"))
    assert [(move.source, move.way, move.began, move.ended) for move in series.moves] == [
        (1, "keys", 1.5, 2.5),
        (2, "stream", 1.5, 1.5),
        (1, "stream", 3.0, 3.0),
    ]
    assert [*map(str, series.moves)][:2] == [
        "from group 1 to group 3 by keys",
        "from group 2 to group 3 by the stream: 9 keys take 1 s",
    ]
    words = words_of(draw(series))
    assert (words.count("by keys"), words.count("by the stream"), words.count("1 to 3")) == (1, 2, 1)


@pytest.mark.parametrize("series", [Series(keys=1), series_of([0]), series_of([0, 0], began=None), series_of([7])])
def test_a_run_with_next_to_nothing_in_it(series: Series) -> None:
    ElementTree.fromstring(draw(series))


def test_both_themes_are_there() -> None:
    assert "prefers-color-scheme: dark" in draw(series_of([1, 2]))


@given(st.floats(min_value=0, max_value=1e9))
def test_steps_enclose_the_highest(highest: float) -> None:
    steps = nice_steps(highest)
    assert steps[0] == 0
    assert highest <= steps[-1] * (1 + 1e-9)
    assert 2 <= len(steps) <= 6


@given(st.floats(min_value=0.001, max_value=1e5), st.floats(min_value=0.001, max_value=1e5))
def test_decades_enclose_both(one: float, other: float) -> None:
    marks = decades(min(one, other), max(one, other))
    assert marks[0] <= min(one, other)
    assert marks[-1] >= max(one, other)
    assert len(marks) >= 2


def test_short_numbers() -> None:
    assert [short(value) for value in (0, 0.3, 12, 1500, 12000, 2_500_000)] == ["0", "0.3", "12", "1.5k", "12k", "2.5M"]


def test_a_sample_has_rates_by_time_passed() -> None:
    series = series_of([100])
    report = Report(at=3, duration=0.5, requests=100, errors=1, latency=Histogram({10: 100}))
    sample = series.add(report, 3.0, {"slots_moved": 5, "keys_moved": 500})
    assert isinstance(sample, Sample)
    assert (sample.requests, sample.keys_per_second, series.errors) == (200, 250, 1)
