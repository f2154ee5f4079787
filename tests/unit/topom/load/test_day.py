"""The last day by minute."""

from array import array

from topom.load.day import KINDS, Day, DayMinute
from topom.load.measured import DAY_MINUTES, Kept


def minute(number: int, requests: float = 1.0) -> DayMinute:
    return DayMinute(60.0 * number, {kind: Kept((1,), array("f", (requests, 0, 0))) for kind in KINDS})


def numbers(day: Day) -> list[float]:
    return [one.began_at / 60 for one in day.newest("groups", DAY_MINUTES)]


def test_minutes_are_kept_for_a_day() -> None:
    day = Day()
    assert (day.newest_at, day.latest, day.newest("slots", 5)) == (0.0, None, [])
    for number in range(DAY_MINUTES + 5):
        day.add(minute(number, number))
    assert numbers(day) == list(range(5, DAY_MINUTES + 5))
    assert [(one.names, list(one.values)) for one in day.newest("users", 2)] == [
        ((1,), [DAY_MINUTES + 3, 0, 0]),
        ((1,), [DAY_MINUTES + 4, 0, 0]),
    ]


def test_what_is_older_than_a_day_goes_also_after_a_gap() -> None:
    day = Day()
    for number in (1, 2, 3, DAY_MINUTES + 2):
        day.add(minute(number))
    assert numbers(day) == [3, DAY_MINUTES + 2]


def test_the_last_minutes_are_those_of_so_much_time() -> None:
    """given that nobody measured for an hour."""
    day = Day()
    for number in (1, 2, 3, 63, 64):
        day.add(minute(number))
    assert [one.began_at / 60 for one in day.newest("groups", 60)] == [63, 64]
    assert [one.began_at / 60 for one in day.newest("groups", 63)] == [2, 3, 63, 64]


def test_those_after_a_moment() -> None:
    day = Day()
    day.take(minute(number) for number in (0, 1, 2, 5))
    assert [one.began_at / 60 for one in day.after(0.0)] == [1, 2, 5]
    assert [one.began_at / 60 for one in day.after(61.0)] == [2, 5]
    assert day.after(300.0) == []


def test_a_clock_that_is_set_back_takes_wrong_minutes_away() -> None:
    day = Day()
    for number in (1, 2, 70, 71, 3):
        day.add(minute(number))
    assert numbers(day) == [1, 2, 3]


def test_a_clock_that_leaps_ahead_and_is_set_back_takes_no_right_minute_away() -> None:
    day = Day()
    for number in (1, 2, 3, 9 * DAY_MINUTES):
        day.add(minute(number))
    assert numbers(day) == [9 * DAY_MINUTES], "by the clock, the others are older than a day"
    day.add(minute(4))
    assert numbers(day) == [1, 2, 3, 4]


def test_a_minute_whose_beginning_is_known_stays_as_it_is() -> None:
    """Another topom led until some second of it."""
    day = Day()
    day.take([minute(1), minute(2, 7.0)])
    day.add(minute(2, 1.0))
    assert numbers(day) == [1, 2]
    assert day.newest("groups", 1)[0].values[0] == 7.0


def test_of_another_topom_only_newer_minutes_are_taken() -> None:
    day = Day()
    day.add(minute(5, 7.0))
    day.take([minute(3), minute(5), minute(6)])
    assert numbers(day) == [5, 6]
    assert day.newest("groups", 2)[0].values[0] == 7.0
