"""How busy rows are."""

import struct
from array import array

import pytest

from slots.slotrates import HALF_LIFE_SECONDS, Rates

PERIOD = 5.0


def told(*rows: tuple[int, int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<HIIQQ", *row) for row in rows)


def test_a_steady_rate_is_right_from_the_first_period_on() -> None:
    rates = Rates(4)
    for _ in range(40):
        rates.add(2, 50, 5, 500, 5000, 100, 45)
        rates.decay(PERIOD)
        assert rates.rates(2) == pytest.approx((10, 1, 100, 1000, 20, 9))
    assert rates.rates(1) == (0, 0, 0, 0, 0, 0)


def test_what_has_ended_weighs_half_after_the_half_life() -> None:
    rates = Rates(1)
    for _ in range(200):
        rates.add(0, 50, 0, 0, 0)
        rates.decay(PERIOD)
    for _ in range(int(HALF_LIFE_SECONDS / PERIOD)):
        rates.decay(PERIOD)
    assert rates.rates(0)[0] == pytest.approx(5)


def test_a_row_that_begins_anew_was_not_idle_before() -> None:
    rates = Rates(2)
    for _ in range(20):
        rates.decay(PERIOD)
    rates.clear(1)
    rates.add(1, 50, 0, 0, 0)
    rates.decay(PERIOD)
    assert rates.rates(1)[0] == pytest.approx(10)


def test_a_minute_is_there_once_it_has_ended() -> None:
    rates = Rates(1)
    rates.add(0, 50, 1, 2, 3, 4, 5)
    rates.decay(PERIOD)
    assert rates.minute(0) == (0, 0, 0, 0, 0, 0)
    rates.turn()
    assert rates.minute(0) == (50, 1, 2, 3, 4, 5)
    rates.turn()
    assert rates.minute(0) == (0, 0, 0, 0, 0, 0)


def test_what_proxies_tell_is_added_by_slot_in_the_share_that_is_asked_for() -> None:
    rates = Rates(1024)
    rates.add_told(told((7, 100, 10, 2**40, 2**41), (1023, 1, 0, 5, 6)), 1000, 2**42)
    rates.add_told(told((7, 100, 10, 0, 0)), 1000, 2**42, 0.5)
    rates.decay(1.0)
    assert rates.rates(7) == pytest.approx((150, 15, 2**40, 2**41, 0, 0))
    assert rates.rates(1023) == pytest.approx((1, 0, 5, 6, 0, 0))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (told((0, 1, 0, 0, 0), (4, 1, 0, 0, 0)), ValueError),
        (told((0, 1, 0, 0, 0)) + b"x", ValueError),
        (told((0, 1, 0, 0, 0), (1, 101, 0, 0, 0)), OverflowError),
        (told((0, 1, 0, 0, 0), (1, 0, 101, 0, 0)), OverflowError),
        (told((0, 1, 0, 0, 0), (1, 0, 0, 1001, 0)), OverflowError),
        (told((0, 1, 0, 0, 0), (1, 0, 0, 0, 2**64 - 1)), OverflowError),
        (told((0, 60, 0, 0, 0), (1, 60, 0, 0, 0)), OverflowError),
        (told(*[(0, 0, 0, 2**63, 0)] * 4), OverflowError),
    ],
)
def test_of_what_is_wrong_nothing_is_added(wrong: bytes, error: type[Exception]) -> None:
    rates = Rates(4)
    with pytest.raises(error):
        rates.add_told(wrong, 100, 1000)
    rates.decay(1.0)
    assert all(rates.rates(row)[0] == 0 for row in range(4))


def test_a_period_is_added_up_by_other_rows() -> None:
    slots, groups = Rates(4), Rates(2)
    slots.add_told(told((0, 1, 0, 0, 0), (1, 2, 0, 0, 0), (2, 4, 0, 0, 0), (3, 8, 0, 0, 0)), 100, 1000)
    slots.add_period_to(groups, array("i", [0, 1, 0, -1]))
    groups.decay(1.0)
    assert [groups.rates(row)[0] for row in range(2)] == pytest.approx([5, 2])
    with pytest.raises(IndexError):
        slots.add_period_to(groups, array("i", [0, 1, 0, 2]))
    with pytest.raises(IndexError):
        slots.add_period_to(groups, array("i", [0]))


def test_rows_stay_when_there_are_more() -> None:
    rates = Rates(1)
    rates.add(0, 5, 0, 0, 0)
    rates.grow(100)
    rates.add(99, 7, 0, 0, 0)
    rates.decay(1.0)
    assert (len(rates), rates.rates(0)[0], rates.rates(99)[0]) == (100, pytest.approx(5), pytest.approx(7))


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_is_not_there(row: int) -> None:
    rates = Rates(2)
    for ask in (rates.rates, rates.minute, rates.clear, lambda row: rates.add(row, 1, 1, 1, 1)):
        with pytest.raises(IndexError):
            ask(row)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="period"):
            rates.decay(wrong)
