"""Copies are in as many datacenters as nodes allow, even in a table at rest, and what that may cost."""

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.unit.topom.placement.planner.sequences import (
    check,
    check_sequence,
    empty,
    loads,
)
from topom.placement.planner import Copies, Node, Placement, Rules, place
from topom.placement.planner.filling import even_out
from topom.placement.planner.layout import Layout
from topom.placement.planner.spreading import spread
from topom.placement.planner.watermarks import Band, watermarks

FOUR = [Node("a", "x"), Node("b", "x"), Node("c", "y"), Node("d", "y")]


def in_one(table: Mapping[int, Copies], nodes: list[Node]) -> int:
    """Slots that have all copies in one datacenter."""
    where = {node.name: node.datacenter for node in nodes}
    return sum(len({where[name] for name in copies.holders}) == 1 for copies in table.values())


def checked(nodes: list[Node], table: Mapping[int, Copies], rules: Rules) -> Placement:
    placed = place(nodes, table, rules)
    check(table, [node.name for node in nodes], placed, rules, {node.name: node.datacenter for node in nodes})
    return placed


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 1500, 300))
def test_whatever_nodes_and_datacenters_come_and_go_every_promise_is_kept(first: int) -> None:
    found = sum((check_sequence(seed) for seed in range(first, first + 300)), Counter[str]())
    assert found["of several datacenters"] > 150
    assert found["by strict watermarks"] > 100
    assert found["steps after which copies had to share a datacenter"] > 10


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("slots", [1, 3, 6, 12, 64])
def test_a_datacenter_that_comes_back_gets_a_copy_of_each_slot_that_lacks_it(slots: int, strict: bool) -> None:
    rules = Rules(2, strict=strict)
    table = place(FOUR, empty(slots), rules).table
    assert in_one(table, FOUR) == 0
    alone = checked(FOUR[:2], table, rules).table
    assert in_one(alone, FOUR) == slots
    back = checked(FOUR, alone, rules)
    assert in_one(back.table, FOUR) == 0
    assert (back.leader_copies, back.follower_copies) == (0, slots)


@pytest.mark.parametrize("strict", [False, True])
def test_even_counts_are_no_rest_while_slots_are_in_one_datacenter(strict: bool) -> None:
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")] * 2
    table = {slot: Copies(leader, (follower,)) for slot, (leader, follower) in enumerate(pairs)}
    placed = checked(FOUR, table, Rules(2, strict=strict))
    assert in_one(placed.table, FOUR) == 0
    assert placed.follower_copies == 8
    assert [count for of in loads(placed.table, "abcd") for count in of.values()] == [2] * 8


def test_a_copy_goes_by_way_of_a_third_datacenter_where_none_may_go_directly() -> None:
    # Slot 0 is twice in x and not in y. The only node of y is full but may give a copy to the node of z.
    layout = Layout([[0, 1, 3], [2, 0], [2, 0]], [0, 2, 2], [0, 0, 1, 2])
    spread(layout, Band(0, 2))
    assert {2, 3} < layout.holders[0]
    assert sorted(map(sorted, layout.holders[1:])) == [[0, 2], [0, 3]]


def test_followers_go_rather_than_leaders_and_copies_that_are_not_made_yet_before_both() -> None:
    layout = Layout([[0, 1], [0]], [0, 0], [0, 0, 1, 1])
    layout.add(1, 1)
    spread(layout, Band(0, 2))
    assert layout.holders[0] & {0, 1} == {0}
    assert layout.holders[1] & {0, 1} == {0}


@pytest.mark.parametrize(("datacenters", "moved"), [([0, 1], 0), ([0, 0], 1)])
def test_evening_followers_out_takes_no_node_out_of_what_it_may_hold(datacenters: list[int], moved: int) -> None:
    layout = Layout([[], [], [], [1], [1], [1]], [-1, -1, -1, 1, 1, 1], datacenters)
    for slot in range(3):
        layout.add(slot, 0)
    even_out(layout, [0, 3], (), Band(0, 3))
    assert layout.count(1) == 3 + moved


def test_nodes_are_filled_up_to_the_high_watermark_and_no_further() -> None:
    nodes = [Node("a", "x"), Node("b", "x"), Node("c", "y")]
    placed = checked(nodes, empty(12), Rules(2))
    assert in_one(placed.table, nodes) == 2
    assert sum("c" in copies.holders for copies in placed.table.values()) == 10


def test_without_datacenters_or_with_a_single_one_it_is_all_the_same() -> None:
    table = place([Node(name) for name in "abcd"], empty(24), Rules(2)).table
    for nodes in ("abc", "abcde"):
        answers = [place([Node(name, datacenter) for name in nodes], table, Rules(2)) for datacenter in ("", "x")]
        assert answers[0] == answers[1]


def test_copies_are_spread_over_datacenters() -> None:
    nodes = [Node(f"{place}{number}", place) for place in ("east", "west", "south") for number in range(3)]
    where = {node.name: node.datacenter for node in nodes}
    for replicas in (2, 3):
        table = place(nodes, empty(72), Rules(replicas)).table
        assert all(len({where[name] for name in copies.holders}) == replicas for copies in table.values())
    rest = [node for node in nodes if node.name != "west1"]
    table = place(nodes, empty(72), Rules(2)).table
    placed = place(rest, table, Rules(2))
    assert all(len({where[name] for name in copies.holders}) == 2 for copies in placed.table.values())
    check(table, [node.name for node in rest], placed, Rules(2))


def test_a_datacenter_with_too_few_nodes_is_not_given_more_than_they_may_hold() -> None:
    nodes = [Node("west", "west"), *(Node(f"east{number}", "east") for number in range(5))]
    placed = place(nodes, empty(60), Rules(2))
    check(empty(60), [node.name for node in nodes], placed, Rules(2))
    assert sum("west" in copies.holders for copies in placed.table.values()) == watermarks(60, 2, 6, 10).copies.high


def test_datacenters_of_unequal_size_take_what_their_nodes_may_hold() -> None:
    nodes = [Node(f"n{number:02}", "small" if number % 4 == 0 else "large") for number in range(40)]
    placed = place(nodes, empty(400), Rules(2))
    check(empty(400), [node.name for node in nodes], placed, Rules(2))
    in_small = Counter(name for copies in placed.table.values() for name in copies.holders if int(name[1:]) % 4 == 0)
    assert sum(in_small.values()) == 10 * watermarks(400, 2, 40, 10).copies.high
