"""Where slots go that carry nothing."""

from slots.slot import Slot
from topom.balance.planners.empty import spread_empty


def test_they_go_where_the_fewest_slots_are_for_the_weight() -> None:
    slots = [Slot(0, 1), Slot(1, 1), Slot(2, 0), Slot(3, 0), Slot(4, 0), Slot(5, 0)]
    target = {5: 2}
    spread_empty({1: 1.0, 2: 2.0}, slots, slots[2:], target)
    assert target == {5: 2, 2: 2, 3: 2, 4: 2}
