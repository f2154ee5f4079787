"""What planning makes of the measured load."""

from typing import NamedTuple

import pytest

from topom.balance.measured import MOST_KEY, NotMeasured, doubts, hottest, require, slot_loads
from topom.balance.planners.request import SlotLoad
from topom.load.book import Book


class Asked(NamedTuple):
    slot: int
    key: bytes
    rate: float


class Loads(NamedTuple):
    measured_seconds: float = 0.0
    whole_seconds: float = 0.0
    rates: tuple[tuple[float, float, float], ...] = ()
    keys: tuple[Asked, ...] = ()

    def slots(self) -> tuple[tuple[float, float, float], ...]:
        return self.rates

    def hot_keys(self) -> tuple[Asked, ...]:
        return self.keys


def test_load_has_to_be_measured_for_a_while() -> None:
    require(Loads(60.0))
    with pytest.raises(NotMeasured, match="no proxy has told any yet"):
        require(Book(16))
    with pytest.raises(NotMeasured, match="measured for 20 s, and a plan by load needs 60 s; try again in 40 s"):
        require(Loads(20.0))


def test_load_that_not_every_proxy_has_told_is_doubted() -> None:
    assert doubts(Loads(100.0, 60.0)) == []
    [doubt] = doubts(Loads(100.0, 59.0))
    assert "not every proxy has told its load for 60 s" in doubt


def test_slots_without_load_are_left_out() -> None:
    assert slot_loads(Loads(rates=((1.0, 2.0, 3.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)))) == {
        0: SlotLoad(1.0, 2.0, 3.0),
        2: SlotLoad(0.0, 0.0, 1.0),
    }
    assert slot_loads(Book(16)) == {}


def test_the_hottest_key_of_a_slot_is_named_as_text() -> None:
    keys = (Asked(7, b"a", 9.0), Asked(7, b"b", 8.0), Asked(3, b"\xff\n", 7.0), Asked(4, b"k" * 100, 6.0))
    assert hottest(Loads(keys=keys)) == {7: ("a", 9.0), 3: ("\\xff\\n", 7.0), 4: ("k" * (MOST_KEY - 1) + "…", 6.0)}
    assert hottest(Book(16)) == {}
