"""The items that move are chosen anew if fewer or smaller ones are enough."""

from tests.unit.topom.balance.planners.packing.bins import bins
from topom.balance.planners.packing.rechoosing import rechoose
from topom.balance.planners.packing.trimming import trim


def test_two_moves_become_one_where_one_is_enough() -> None:
    # Given: the third bin has got 20 and 15, although the 30 alone is enough for it, and for the first bin.
    layout = bins([55, 30, 20, 20], [60, 30, 15], [40, 20], lower=90, upper=105)
    layout.move(2, 2)
    layout.move(6, 2)
    assert (layout.excess(), layout.cost()) == (0, 35)
    trim(layout)
    assert layout.cost() == 35, "one at a time saves nothing"
    rechoose(layout)
    assert (layout.excess(), layout.cost()) == (0, 30)
