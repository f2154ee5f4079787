"""The best layout of few items is found, and known to be the best."""

from tests.unit.topom.balance.planners.packing.bins import bins
from topom.balance.planners.packing.search import MOST_ITEMS, search


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
