"""Hours of the day: how they are written, midnight, the change to summer time and back, a clock that is set."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topom.cluster.hours import Hours, halt
from topom.errors import InvalidHours
from topom.reasons import Kind

PARIS = "Europe/Paris"


def at(text: str, fold: int = 0) -> float:
    """A moment by the clock in Paris."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(PARIS), fold=fold).timestamp()


def shown(moment: float | None) -> str:
    assert moment is not None
    return datetime.fromtimestamp(moment, ZoneInfo(PARIS)).isoformat(timespec="minutes")


@pytest.mark.parametrize(
    ("text", "clock", "within"),
    [
        ("22:00-06:00", "22:00", True),
        ("22:00-06:00", "21:59:59", False),
        ("22:00-06:00", "00:00", True),
        ("22:00-06:00", "05:59:59", True),
        ("22:00-06:00", "06:00", False),
        ("0:00-5:30, 12:00-13:00", "05:29", True),
        ("0:00-5:30, 12:00-13:00", "12:59", True),
        ("0:00-5:30, 12:00-13:00", "13:00", False),
        ("20:00-24:00", "23:59:59", True),
        ("20:00-24:00", "00:00", False),
        ("23:00-00:00", "23:30", True),
        ("00:00-24:00", "17:00", True),
        ("", "17:00", True),
        ("  ", "17:00", True),
    ],
)
def test_what_is_within(text: str, clock: str, within: bool) -> None:
    assert Hours.parse(text, PARIS).include(at(f"2026-02-10T{clock}")) is within


@pytest.mark.parametrize(
    ("text", "zone", "message"),
    [
        ("22:00", "", "'22:00' is not a span of hours such as 22:00-06:00"),
        ("22-06", "", "'22' is not a time of the day"),
        ("22:00-6:0", "", "'6:0' is not a time"),
        ("22:00-25:00", "", "'25:00' is not a time"),
        ("22:60-23:00", "", "'22:60' is not a time"),
        ("24:00-06:00", "", "has no minute in it"),
        ("06:00-06:00", "", "leave the hours empty for always"),
        ("22:00-06:00,", "", "'' is not a span"),
        ("-1:00-06:00", "", "not a time"),
        ("²2:00-06:00", "", "not a time"),
        ("1:00-2:00," * 40, "", "300 characters"),
        (",".join(["1:00-2:00"] * 25), "", "24 may be given"),
        ("", "Europe/Atlantis", "no time zone 'Europe/Atlantis'"),
        ("", "../etc/passwd", "no time zone"),
        ("", "Europe", "no time zone"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, zone: str, message: str) -> None:
    with pytest.raises(InvalidHours, match=message.replace("(", r"\(")):
        Hours.parse(text, zone)


@pytest.mark.parametrize(
    ("text", "now", "then"),
    [
        ("22:00-06:00", "2026-02-10T12:00", "2026-02-10T22:00+01:00"),
        ("02:00-06:00", "2026-02-10T12:00", "2026-02-11T02:00+01:00"),
        ("8:00-9:00,13:00-14:00", "2026-02-10T12:00", "2026-02-10T13:00+01:00"),
        ("00:00-01:00", "2026-12-31T23:59", "2027-01-01T00:00+01:00"),
        # The clock goes from 02:00 to 03:00: half past two is the moment at which it leaps.
        ("02:30-04:00", "2026-03-29T00:30", "2026-03-29T03:00+02:00"),
        ("02:10-02:40", "2026-03-29T00:30", "2026-03-30T02:10+02:00"),
        ("03:30-04:00", "2026-03-29T00:30", "2026-03-29T03:30+02:00"),
        ("22:00-23:00", "2026-03-29T00:30", "2026-03-29T22:00+02:00"),
        # The clock goes from 03:00 back to 02:00.
        ("02:30-02:45", "2026-10-25T00:30", "2026-10-25T02:30+02:00"),
        ("03:30-04:00", "2026-10-25T00:30", "2026-10-25T03:30+01:00"),
    ],
)
def test_when_they_begin(text: str, now: str, then: str) -> None:
    assert shown(Hours.parse(text, PARIS).next_beginning(at(now))) == then


def test_hours_that_the_clock_shows_twice_come_twice() -> None:
    hours = Hours.parse("02:30-02:45", PARIS)
    first, between, second = at("2026-10-25T02:40"), at("2026-10-25T02:50"), at("2026-10-25T02:40", fold=1)
    assert second - first == 3600
    assert [hours.include(moment) for moment in (first, between, second)] == [True, False, True]
    assert shown(hours.next_beginning(between)) == "2026-10-25T02:30+01:00"


@given(
    st.lists(
        st.tuples(st.integers(0, 1439), st.integers(0, 1440)).filter(lambda s: s[0] != s[1]), min_size=1, max_size=4
    ),
    st.sampled_from([PARIS, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "UTC"]),
    st.integers(0, 366 * 24 * 60),
)
def test_the_next_beginning_is_the_first_minute_within(spans: list[tuple[int, int]], zone: str, minutes: int) -> None:
    hours = Hours(tuple(spans), ZoneInfo(zone))
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + 60 * minutes
    beginning = hours.next_beginning(now)
    if hours.include(now):
        assert beginning is None
        return
    minute = now
    while not hours.include(minute):
        minute += 60
        assert minute < now + 4 * 86400
    assert beginning == minute


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("local_zone")
def test_without_a_zone_it_is_the_computers() -> None:
    assert os.environ["TZ"] == "America/New_York"
    hours = Hours.parse("22:00-06:00")
    noon_in_utc = datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()
    assert not hours.include(noon_in_utc)
    assert hours.include(noon_in_utc - 3 * 3600)
    assert hours.next_beginning(noon_in_utc) == datetime(2026, 7, 2, 2, tzinfo=UTC).timestamp()
    halted = halt(False, "22:00-06:00", "", noon_in_utc)
    assert halted is not None
    assert halted.until == "2026-07-01T22:00:00-04:00"


def test_why_it_is_halted_and_until_when() -> None:
    noon = at("2026-02-10T12:00")
    assert halt(False, "", "", noon) is None
    assert halt(False, "10:00-14:00", PARIS, noon) is None
    paused = halt(True, "10:00-14:00", PARIS, noon)
    assert paused is not None
    assert (paused.kind, paused.what, paused.until) == (Kind.PAUSED, "migration is paused", None)
    assert paused.to_do
    outside = halt(False, "22:00-06:00", PARIS, noon)
    assert outside is not None
    assert outside.kind is Kind.HOURS
    assert outside.what == "migration is outside its hours, 22:00-06:00; it goes on at 2026-02-10 22:00+01:00"
    assert outside.until == "2026-02-10T22:00:00+01:00"


def test_a_zone_that_is_not_known_here_halts_and_says_so() -> None:
    halted = halt(False, "10:00-14:00", "Europe/Atlantis", at("2026-02-10T12:00"))
    assert halted is not None
    assert "Europe/Atlantis" in halted.what
    assert (halted.kind, halted.to_do) == (Kind.OPERATOR, "set them anew")
