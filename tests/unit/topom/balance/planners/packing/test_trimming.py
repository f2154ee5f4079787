"""Moves that were not needed are taken back, or become smaller."""

from tests.unit.topom.balance.planners.packing.bins import bins
from topom.balance.planners.packing.trimming import trim


def test_moves_that_were_not_needed_are_taken_back() -> None:
    layout = bins([50, 50, 4], [96], lower=95, upper=105)
    layout.move(2, 1)
    trim(layout)
    assert layout.moved() == []


def test_a_smaller_item_goes_in_place_of_a_larger_one() -> None:
    layout = bins([50, 60, 20, 15], [85], lower=90, upper=130)
    layout.move(2, 1)
    trim(layout)
    assert [layout.size[item] for item in layout.moved()] == [15]


def test_an_item_that_moves_anyway_goes_where_it_is_needed() -> None:
    # Given: bin 0 gave 10 to bin 1, which did not need them. Bin 2 got its 10 from bin 3, which has room for them.
    layout = bins([100, 10], [95], [90], [85, 10], lower=95, upper=105)
    layout.move(1, 1)
    layout.move(5, 2)
    layout.lower[3] = 80
    trim(layout)
    assert (layout.moved(), layout.at[1]) == ([1], 2)
