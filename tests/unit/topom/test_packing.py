"""The steps of planning by bytes, one at a time."""

from collections.abc import Sequence

from topom.balance.planners.packing.exchange import mend
from topom.balance.planners.packing.filling import fill
from topom.balance.planners.packing.layout import NOWHERE, Layout
from topom.balance.planners.packing.rechoosing import rechoose
from topom.balance.planners.packing.search import MOST_ITEMS, search
from topom.balance.planners.packing.trimming import trim


def bins(*contents: Sequence[int], lower: int, upper: int, unplaced: Sequence[int] = ()) -> Layout:
    """Bins of one band with items of these sizes in them; items that are in no bin come last."""
    placed = [(size, place) for place, sizes in enumerate(contents) for size in sizes]
    items = placed + [(size, NOWHERE) for size in unplaced]
    count = len(contents)
    return Layout(
        [lower] * count, [upper] * count, [0] * count, [size for size, _ in items], [origin for _, origin in items]
    )


def contents(layout: Layout) -> list[list[int]]:
    return [[size for size, _ in listed] for listed in layout.members]


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
    # Given: one of 90 and 80 has to leave, and nothing but the emptiest bin has room once it gave up what it has.
    layout = bins([90, 80, 10, 10, 10], [15, 15], [60], [60], lower=85, upper=105)
    fill(layout)
    mend(layout)
    assert layout.excess() == 0


def test_a_swap_mends_what_no_single_move_can() -> None:
    layout = bins([60, 50], [40, 50], lower=100, upper=100)
    mend(layout)
    assert contents(layout) == [[40, 60], [50, 50]]


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
    # Given: bin 0 gave 10 to bin 1, which did not need them, and bin 2 got its 10 from bin 3, which has room for them.
    layout = bins([100, 10], [95], [90], [85, 10], lower=95, upper=105)
    layout.move(1, 1)
    layout.move(5, 2)
    layout.lower[3] = 80
    trim(layout)
    assert (layout.moved(), layout.at[1]) == ([1], 2)


def test_the_best_layout_is_found_and_known_to_be() -> None:
    layout = bins([60, 50, 40, 30, 20], [10], lower=105, upper=105)
    assert search(layout)
    assert (layout.excess(), layout.cost(), len(layout.moved())) == (10, 90, 2)
    assert search(bins([1], [1], lower=0, upper=9))
    assert not search(bins([1] * (MOST_ITEMS + 1), lower=0, upper=9))


def test_of_equal_bytes_the_fewest_items_move() -> None:
    layout = bins([30, 20, 50, 100], [100], lower=150, upper=150)
    assert search(layout)
    assert [layout.size[item] for item in layout.moved()] == [50]


def test_two_moves_become_one_where_one_is_enough() -> None:
    # Given: the third bin has got 20 and 15, where the 30 alone is enough for it, and for the first.
    layout = bins([55, 30, 20, 20], [60, 30, 15], [40, 20], lower=90, upper=105)
    layout.move(2, 2)
    layout.move(6, 2)
    assert (layout.excess(), layout.cost()) == (0, 35)
    trim(layout)
    assert layout.cost() == 35, "one at a time saves nothing"
    rechoose(layout)
    assert (layout.excess(), layout.cost()) == (0, 30)
