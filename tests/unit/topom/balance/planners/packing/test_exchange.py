"""Swaps mend what no single move can."""

from tests.unit.topom.balance.planners.packing.bins import bins, contents
from topom.balance.planners.packing.exchange import mend


def test_a_swap_mends_what_no_single_move_can() -> None:
    layout = bins([60, 50], [40, 50], lower=100, upper=100)
    mend(layout)
    assert contents(layout) == [[40, 60], [50, 50]]
