"""Placement of a few slots by strict watermarks."""

import pytest

from tests.unit.topom.placement.planner.sequences import check, empty, loads
from topom.placement.planner import Copies, Node, Rules, place

STRICT = Rules(2, strict=True)
THREE = [Node(name) for name in "abc"]


def counts(table: dict[int, Copies], names: str) -> tuple[list[int], list[int]]:
    leads, follows = loads(table, names)
    return [leads[name] for name in names], [follows[name] for name in names]


@pytest.mark.parametrize("groups", [3, 4, 5, 6, 7])
def test_a_node_that_comes_back_gets_its_share_of_a_few_groups_again(groups: int) -> None:
    fresh = place(THREE, empty(groups), STRICT).table
    without = place(THREE[1:], fresh, STRICT).table
    back = place(THREE, without, STRICT)
    check(without, "abc", back, STRICT)
    low, high = groups // 3, -(-groups // 3)
    for of in counts(dict(back.table), "abc"):
        assert low <= min(of) <= max(of) <= high
    assert back.leader_copies == 0


def test_leaders_two_one_none_are_evened_by_one_promotion() -> None:
    table = {0: Copies("a", ("b",)), 1: Copies("a", ("c",)), 2: Copies("b", ("c",))}
    assert place(THREE, table, Rules(2)).rounds == ()
    placed = place(THREE, table, STRICT)
    assert (placed.promotions, placed.follower_copies, placed.leader_copies) == (1, 0, 0)
    assert counts(dict(placed.table), "abc") == ([1, 1, 1], [1, 1, 1])
    both = {0: Copies("a", ("b",)), 1: Copies("a", ("b",))}
    assert place(THREE[:2], both, STRICT).promotions == 1


def test_copies_that_are_missing_are_passed_on_before_one_is_moved() -> None:
    held = (("n0", "n1", "n2"), ("n3", "n5", "n0"), ("n2", "n1", "n5"), ("n1", "n0", "n3"))
    table = {slot: Copies(leader, tuple(followers)) for slot, (leader, *followers) in enumerate(held)}
    nodes = ("n0", "n2", "n3", "n5")
    rules = Rules(3, strict=True)
    placed = place([Node(name) for name in nodes], table, rules)
    check(table, nodes, placed, rules)
    assert (placed.leader_copies, placed.follower_copies) == (0, 3)
