"""Limits are shared out by demand, and never to more than the whole."""

import random

from slots.limitshares import FLOOR, WHOLE, floor, share, shared_out


def test_shares_go_by_demand_with_a_small_part_for_each() -> None:
    assert shared_out({"a": 0, "b": 0}, WHOLE) == {"a": WHOLE // 2, "b": WHOLE // 2}
    assert shared_out({"a": 7, "b": 0}, WHOLE) == {"a": WHOLE - FLOOR // 2, "b": FLOOR // 2}
    assert shared_out({"a": 7}, WHOLE // 3) == {"a": WHOLE // 3}
    assert share(1, 2, 2) == WHOLE // 2
    assert share(0, 2, 4) == floor(4) == FLOOR // 4
    assert shared_out({}, WHOLE) == {}


def test_all_together_is_the_whole_but_for_what_is_rounded() -> None:
    chance = random.Random(1)
    for _ in range(500):
        demands = {number: chance.choice([0, 1, chance.randrange(10**12)]) for number in range(chance.randint(1, 50))}
        whole = chance.randint(0, WHOLE)
        together = sum(shared_out(demands, whole).values())
        assert whole - 2 * len(demands) - whole * len(demands) // WHOLE <= together <= whole
