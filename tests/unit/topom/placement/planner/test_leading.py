"""New copies lead only if they have to."""

from topom.placement.planner.layout import Layout
from topom.placement.planner.leading import Leading
from topom.placement.planner.watermarks import Band


def test_new_copies_lead_only_where_the_watermarks_ask_for_it() -> None:
    layout = Layout([[0, 2], [0, 2], [0], [0]], [0, 0, 0, 0], [0, 0, 0])
    layout.add(2, 1)
    layout.add(3, 1)
    leading = Leading(layout, [Band(0, 4)] * 3)
    leading.even(10)
    assert leading.counts == [2, 0, 2]
    needed = Leading(layout, [Band(0, 4), Band(1, 4), Band(0, 4)])
    assert needed.balance()
    assert needed.counts == [3, 1, 0]
