"""Missing copies go where they even nodes out."""

import random

from topom.placement.planner.filling import fill
from topom.placement.planner.layout import Layout


def test_what_is_missing_evens_nodes_out_though_few_may_take_it() -> None:
    names = [f"n{number}" for number in range(4)]
    for seed in range(40):
        chance = random.Random(seed)
        pairs = [chance.sample(names, 2) for _ in range(12)]
        layout = Layout([[int(name[1:]) for name in pair] for pair in pairs], [-1] * 12, [0] * 4)
        fill(layout, 3, [0] * 4, 36)
        for slot, holders in enumerate(layout.holders):
            (new,) = holders - layout.kept[slot]
            (other,) = set(range(4)) - holders
            assert layout.count(new) - layout.count(other) < 2, seed
