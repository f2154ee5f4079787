"""What any placement promises, no matter which nodes come and go."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.topom.placement.planner.sequences import (
    apart,
    by_scheme,
    check,
    empty,
    loads,
    named,
    placements,
    sequence,
)
from topom.placement.planner import Copies, Node, Rules, place
from topom.placement.planner.watermarks import watermarks


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_whatever_nodes_come_and_go_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + 100):
        one = sequence(seed)
        for before, nodes, placed in placements(one):
            check(before, nodes, placed, Rules(one.replicas))


@given(st.data())
def test_any_table_whatever_comes_to_rest(data: st.DataObject) -> None:
    names = [f"n{number}" for number in range(data.draw(st.integers(1, 6)))]
    gone = ["gone", "left"]
    rules = Rules(
        replicas=data.draw(st.integers(1, 5)),
        watermark=data.draw(st.sampled_from((0, 1, 10, 30, 100))),
        most_leader_changes=data.draw(st.integers(1, 3)),
        most_follower_changes=data.draw(st.integers(1, 3)),
    )
    holders = st.lists(st.sampled_from(names + gone), unique=True, max_size=4)
    table = {}
    for slot in range(data.draw(st.integers(1, 14))):
        held = data.draw(holders)
        led = bool(held) and data.draw(st.booleans())
        table[slot] = Copies(held[0], tuple(held[1:])) if led else Copies("", tuple(held))
    check(table, names, place([Node(name) for name in names], table, rules), rules)


@pytest.mark.parametrize("first", range(250, 1450, 300))
def test_tables_in_which_the_same_nodes_stand_together_again_and_again(first: int) -> None:
    for seed in range(first, first + 60):
        chance = random.Random(seed)
        names = [f"n{number}" for number in range(chance.randint(2, 7))]
        slots, replicas = chance.randint(3, 24), chance.randint(2, 4)
        table: dict[int, Copies] = {}
        for slot in range(slots):
            among = names[: max(2, len(names) - 1)] if chance.random() < 0.7 else names
            held = chance.sample(among, min(replicas, max(2, len(names) - 1)))
            repeated = chance.random() < 0.6 and slot > 0
            table[slot] = table[chance.randint(0, slot - 1)] if repeated else Copies(held[0], tuple(held[1:]))
        check(table, names, place([Node(name) for name in names], table, Rules(replicas)), Rules(replicas))


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_loss_of_a_node_costs_what_it_held_and_no_more(replicas: int) -> None:
    table = place(named(8), empty(96), Rules(replicas)).table
    for node in named(8):
        rest = [other for other in named(8) if other != node]
        placed = place(rest, table, Rules(replicas))
        held = sum(node.name in copies.holders for copies in table.values())
        led = sum(node.name == copies.leader for copies in table.values())
        assert (placed.leader_copies, placed.follower_copies) == (0, held)
        assert len(placed.rounds) == 1
        # A round may also even out leaders.
        assert led <= placed.promotions <= led + 6
        assert all(copies.leader in table[slot].holders for slot, copies in placed.table.items())
        check(table, [other.name for other in rest], placed, Rules(replicas))


@pytest.mark.parametrize("replicas", [2, 3])
def test_a_node_that_comes_alone_gets_its_even_share(replicas: int) -> None:
    table = place(named(7), empty(96), Rules(replicas)).table
    placed = place(named(8), table, Rules(replicas))
    names = [node.name for node in named(8)]
    leads, follows = loads(placed.table, names)
    assert set(leads.values()) == {12}
    assert set(follows.values()) == {12 * (replicas - 1)}
    assert (placed.leader_copies, placed.follower_copies) == (0, 12 * replicas)
    # All copies at ten a round; the copies that are promoted last were made in the round before.
    assert len(placed.rounds) <= -(-placed.follower_copies // 10) + 1
    made = by_scheme(replicas, 96, names, {slot: (copies.leader, copies.followers) for slot, copies in table.items()})
    assert made is not None
    theirs, _ = made
    assert placed.follower_copies < theirs.copies - theirs.leader_copies
    assert len(placed.rounds) < theirs.rounds


@pytest.mark.parametrize("replicas", [2, 3])
def test_nodes_that_come_together_get_a_copy_more_only_for_what_it_evens_out(replicas: int) -> None:
    table = place(named(7), empty(96), Rules(replicas)).table
    placed = place(named(9), table, Rules(replicas))
    marks = watermarks(96, replicas, 9, 10)
    leads, follows = loads(placed.table, [node.name for node in named(9)])
    held = [leads[name] + follows[name] for name in ("n7", "n8")]
    assert all(count >= marks.leaders.low + marks.followers.low for count in held)
    assert (placed.leader_copies, placed.follower_copies) == (0, sum(held))
    further = sum(held) - 2 * (marks.leaders.low + marks.followers.low)
    highest_if_low = -(-(96 - 2 * marks.leaders.low) // 7), -(-(96 * (replicas - 1) - 2 * marks.followers.low) // 7)
    apart_if_low = highest_if_low[0] - marks.leaders.low + highest_if_low[1] - marks.followers.low
    assert further <= apart_if_low - apart(leads) - apart(follows)


def test_a_slot_without_any_copy_is_the_only_one_to_have_its_leader_copied() -> None:
    table = dict(place(named(4), empty(16), Rules(2)).table)
    table[5] = Copies("gone", ("left",))
    placed = place(named(4), table, Rules(2))
    assert placed.leader_copies == 1
    assert [copy.slot for one in placed.rounds for copy in one.copies if copy.leads] == [5]


def test_replicas_are_raised_and_lowered() -> None:
    two = place(named(5), empty(40), Rules(2)).table
    three = place(named(5), two, Rules(3))
    assert (three.leader_copies, three.follower_copies) == (0, 40)
    assert len(three.rounds) == 1
    back = place(named(5), three.table, Rules(2))
    assert back.follower_copies == back.leader_copies == 0
    check(three.table, [node.name for node in named(5)], back, Rules(2))


def test_the_order_in_which_nodes_are_named_changes_nothing() -> None:
    table = place(named(6), empty(64), Rules(3)).table
    nodes = named(6, first=1)
    shuffled = random.Random(4).sample(nodes, len(nodes))
    assert place(nodes, table, Rules(3)) == place(shuffled, dict(reversed(table.items())), Rules(3))


def test_the_slots_of_a_node_that_leaves_find_leaders_on_many_nodes() -> None:
    table = place(named(6), empty(120), Rules(2)).table
    pairs = Counter((copies.leader, copies.followers[0]) for copies in table.values())
    assert len(pairs) == 30
    assert max(pairs.values()) <= 6


def test_nodes_far_apart_in_number_still_come_to_rest() -> None:
    table = dict.fromkeys(range(64), Copies("n0"))
    placed = place(named(40), table, Rules(2))
    check(table, [node.name for node in named(40)], placed, Rules(2))
    leads, _ = loads(placed.table, [node.name for node in named(40)])
    assert apart(leads) <= 3
