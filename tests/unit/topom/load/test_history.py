"""Minutes as series."""

from array import array

from topom.load.history import RANKED_MINUTES, series
from topom.load.measured import Minute


def minute(at: int, requests: dict[str, float]) -> Minute[str]:
    values = [value for each in requests.values() for value in (each, 2 * each, 3 * each)]
    return Minute(60.0 * at, list(requests), array("f", values))


def test_the_busiest_have_a_series_with_a_value_a_minute() -> None:
    found = series([minute(0, {"a": 1, "b": 5}), minute(1, {"b": 5, "c": 7}), minute(2, {"c": 7, "a": 2})], 2)
    assert [(one.name, one.columns) for one in found] == [
        ("c", ([None, 7, 7], [None, 14, 14], [None, 21, 21])),
        ("b", ([5, 5, None], [10, 10, None], [15, 15, None])),
    ]


def test_of_a_long_time_some_minutes_say_which_are_busiest() -> None:
    kept = [minute(at, {"a": 1.0, "b": 2.0}) for at in range(10 * RANKED_MINUTES)]
    [found] = series(kept, 1)
    assert (found.name, len(found.columns[0])) == ("b", 10 * RANKED_MINUTES)


def test_the_newest_minute_counts_always() -> None:
    kept = [minute(at, {"a": 0.0}) for at in range(2 * RANKED_MINUTES)] + [minute(200, {"b": 1.0})]
    assert [one.name for one in series(kept, 1)] == ["b"]


def test_nothing_is_kept_at_first() -> None:
    assert series([], 5) == []
