"""The fewest bytes that have to move."""

import math

from slots.table import Group, Slot, SlotTable
from topom.balance.simulation.bound import Bound

TABLE = SlotTable(
    1, tuple(Slot(slot, 1 if slot < 2 else 2) for slot in range(4)), {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",))}
)


def test_the_cheapest_part_of_what_is_too_much() -> None:
    # Given: group 1 has 30 of 40, may have 20, and slot 1 has the most load for its bytes.
    bound = Bound(TABLE, {0: 100, 1: 40, 2: 1, 3: 1}, 1.0)
    bound.look([10.0, 20.0, 5.0, 5.0], 2)
    assert bound.bytes == 20
    # When group 2 has too much later, that comes on top; a lesser excess of group 1 does not.
    bound.look([10.0, 12.0, 9.0, 9.0], 2)
    assert bound.bytes == 20
    bound.look([5.0, 5.0, 20.0, 10.0], 2)
    assert math.isclose(bound.bytes, 21, abs_tol=1)
