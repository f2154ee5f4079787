"""Items that are in no bin get one: giants first, then boulders, then what fills the bins up."""

from tests.unit.topom.balance.planners.packing.bins import bins, contents
from topom.balance.planners.packing.exchange import mend
from topom.balance.planners.packing.filling import fill


def test_a_full_bin_sheds_just_what_it_has_too_much() -> None:
    layout = bins([50, 40, 35, 30, 20, 5], [20], lower=95, upper=105)
    fill(layout)
    assert layout.excess() == 0
    assert layout.cost() == 75


def test_an_empty_bin_draws_from_bins_that_can_spare() -> None:
    layout = bins([50, 50, 2], [50, 50, 3], [50, 47], lower=98, upper=105)
    fill(layout)
    assert sorted(layout.moved()) == [2]
    assert contents(layout)[2] == [2, 47, 50]


def test_giants_get_bins_of_their_own() -> None:
    layout = bins([400, 300], [10], [90], lower=150, upper=200, unplaced=[250])
    fill(layout)
    assert sorted(max(listed) for listed in contents(layout)) == [250, 300, 400]
    assert layout.at[0] == 0, "the largest stays"


def test_boulders_take_room_before_smaller_items_do() -> None:
    # Given: 90 or 80 has to leave, and only the emptiest bin has room, once it has given up what it has.
    layout = bins([90, 80, 10, 10, 10], [15, 15], [60], [60], lower=85, upper=105)
    fill(layout)
    mend(layout)
    assert layout.excess() == 0
