"""What the book of the load says to planners and viewers."""

from array import array

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.slots.test_slotrates import told
from tests.unit.topom.load.test_notable import said
from topom.load import notable
from topom.load.book import SILENT_SECONDS, Book, SlotRate
from topom.load.day import KINDS, Day, DayMinute
from topom.load.measured import Counts, Kept

SLOTS = 16
PERIOD = 5.0
A, B = "10.0.0.1:6379", "10.0.0.2:6379"


def table(owners: dict[int, int], epoch: int = 1) -> SlotTable:
    groups = {1: Group(1, (A,)), 2: Group(2, (B,))}
    return SlotTable(epoch, tuple(Slot(slot, owners.get(slot, 0)) for slot in range(SLOTS)), groups)


class Clock:
    def __init__(self) -> None:
        self.now = 600.0

    def __call__(self) -> float:
        return self.now


def period(book: Book, clock: Clock, owners: dict[int, int], *rows: tuple[int, int, int, int, int]) -> None:
    if rows:
        book.by_slot.table.add_told(told(*rows), 1e9, 1e12)
        book.told()
    clock.now += PERIOD
    book.end_period(PERIOD, table(owners))


def test_planners_see_what_is_asked_of_each_slot() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    period(book, clock, {}, (3, 50, 0, 500, 5000))
    assert len(book.slots()) == SLOTS
    assert book.slots()[3] == pytest.approx(SlotRate(10, 100, 1000))
    assert book.slots()[4] == SlotRate(0, 0, 0)
    assert book.measured_seconds == PERIOD


def test_the_time_that_counts_cover_begins_with_the_first_answer() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    for _ in range(3):
        period(book, clock, {})
    assert book.measured_seconds == 0
    period(book, clock, {}, (3, 50, 0, 500, 5000))
    period(book, clock, {})
    assert book.measured_seconds == 2 * PERIOD


def test_the_time_in_which_every_proxy_told_begins_anew_with_one_that_does_not() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    book.end_period(PERIOD, table({}))
    assert book.whole_seconds == 0, "nobody has told anything"
    for _ in range(2):
        period(book, clock, {}, (3, 50, 0, 500, 5000))
    assert book.whole_seconds == 2 * PERIOD
    book.told()
    book.end_period(PERIOD, table({}), whole=False)
    assert (book.whole_seconds, book.measured_seconds) == (0, 3 * PERIOD)
    period(book, clock, {}, (3, 50, 0, 500, 5000))
    assert book.whole_seconds == PERIOD


def test_a_book_to_which_nobody_tells_anything_begins_anew() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    period(book, clock, {3: 1}, (3, 50, 0, 500, 5000))
    for _ in range(int(SILENT_SECONDS / PERIOD) - 1):
        period(book, clock, {3: 1})
    assert book.measured_seconds > 0
    assert book.slots()[3].requests > 0
    period(book, clock, {3: 1})
    assert book.measured_seconds == 0
    assert book.slots()[3] == SlotRate(0, 0, 0)
    assert [row.rates.requests for row in book.by_group] == [0, 0]


def test_a_group_has_what_its_slots_have() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    period(book, clock, {1: 1, 2: 1, 3: 2}, (1, 5, 0, 0, 0), (2, 10, 0, 0, 0), (3, 20, 0, 0, 0), (4, 40, 0, 0, 0))
    assert {row.name: row.rates.requests for row in book.by_group} == pytest.approx({1: 3, 2: 4})


def test_a_slot_that_moved_counts_for_its_new_group_from_then_on() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    period(book, clock, {1: 1}, (1, 5, 0, 0, 0))
    for _ in range(100):
        period(book, clock, {1: 2}, (1, 5, 0, 0, 0))
    found = {row.name: row.rates.requests for row in book.by_group}
    assert found[1] < 0.001
    assert found[2] == pytest.approx(1, abs=0.001)


def test_a_server_that_no_group_has_any_more_is_forgotten() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    for server in (A, B):
        book.by_server.add(server, Counts(5, 0, 0, 0, 0, 0))
    book.end_period(PERIOD, table({}))
    assert {row.name for row in book.by_server} == {A, B}
    book.end_period(PERIOD, SlotTable(2, table({}).slots, {2: Group(2, (B,))}))
    assert {row.name for row in book.by_server} == {B}
    assert {row.name for row in book.by_group} == {2}


def test_a_minute_ends_with_the_minute_of_the_clock() -> None:
    clock = Clock()
    clock.now += 20
    book = Book(SLOTS, clock)
    for _ in range(8):
        period(book, clock, {1: 1}, (1, 5, 0, 10, 20))
    assert book.minute_seconds == 40
    assert book.by_slot.get(1).minute.requests == 40
    [minute] = book.day.newest("groups", 10)
    assert (minute.began_at, minute.names, list(minute.values)) == (600.0, (1, 2), [1, 2, 4, 0, 0, 0])
    [minute] = book.day.newest("slots", 10)
    assert (minute.names, list(minute.values)) == ([1], [1, 2, 4])


def test_a_minute_in_which_no_proxy_told_anything_is_not_kept() -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    for minute in range(4):
        for _ in range(12):
            period(book, clock, {1: 1}, *([(1, 5, 0, 10, 20)] if minute in (0, 3) else []))
    assert [one.began_at for one in book.day.newest("groups", 10)] == [600.0, 780.0]


def test_a_book_goes_on_with_the_minutes_that_are_known() -> None:
    clock = Clock()
    known = Day()
    known.add(DayMinute(540.0, {kind: Kept((), array("f")) for kind in KINDS}))
    book = Book(SLOTS, clock, known)
    for _ in range(12):
        period(book, clock, {1: 1}, (1, 5, 0, 10, 20))
    assert [one.began_at for one in book.day.newest("groups", 10)] == [540.0, 600.0]
    assert book.measured_seconds == 60


def test_a_proxy_that_is_none_any_more_has_no_part() -> None:
    book = Book(SLOTS, Clock())
    book.by_proxy.add(1, Counts(5, 0, 0, 0, 0, 0))
    book.keys.take(1, [], False)
    book.end_period(PERIOD, table({}))
    book.end_proxy(1)
    assert list(book.by_proxy) == []


def test_notable_requests_stay_for_their_time_also_when_nobody_tells_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    book = Book(SLOTS, clock)
    book.notable.take(1, [said()], False)
    period(book, clock, {3: 1}, (3, 50, 0, 500, 5000))
    for _ in range(round(SILENT_SECONDS / PERIOD) + 1):
        period(book, clock, {3: 1})
    assert book.measured_seconds == 0
    assert len(book.notable.newest()) == 1
    monkeypatch.setattr(notable, "KEPT_SECONDS", 0.0)
    period(book, clock, {3: 1})
    assert book.notable.newest() == []
