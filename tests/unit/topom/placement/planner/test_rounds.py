"""Changes are made in rounds, a few at a time."""

from tests.unit.topom.placement.planner.sequences import (
    check,
    empty,
    loads,
    named,
    replay,
)
from topom.placement.planner import Rules, place
from topom.placement.planner.watermarks import watermarks


def test_slots_that_lost_their_leaders_are_led_by_copies_made_for_them_from_the_second_round_on() -> None:
    table = place(named(2), empty(64), Rules(2)).table
    placed = place(named(2, first=1), table, Rules(2))
    assert (placed.leader_copies, placed.follower_copies, len(placed.rounds)) == (0, 64, 2)
    leads, follows = loads(placed.table, ["n1", "n2"])
    assert set(leads.values()) == set(follows.values()) == {32}
    # The leaders that are still there are replaced, six a round.
    there = {slot for slot, copies in table.items() if copies.leader == "n1"}
    assert sum(promotion.slot in there for one in placed.rounds for promotion in one.promotions) <= 12
    check(table, ["n1", "n2"], placed, Rules(2))


def test_a_leader_that_is_lost_is_followed_by_a_follower_in_the_first_round() -> None:
    table = place(named(3), empty(12), Rules(2)).table
    placed = place(named(2), table, Rules(2))
    orphans = {slot for slot, copies in table.items() if copies.leader == "n2"}
    assert orphans <= {promotion.slot for promotion in placed.rounds[0].promotions}
    assert all(placed.table[slot].leader in table[slot].followers for slot in orphans)


def test_with_one_replica_leaders_are_copied_a_few_a_round() -> None:
    table = place(named(1), empty(20), Rules(1)).table
    placed = place(named(2), table, Rules(1))
    assert placed.leader_copies == watermarks(20, 1, 2, 10).leaders.low == 9
    assert [len(one.copies) for one in placed.rounds] == [6, 3]
    assert placed.follower_copies == placed.promotions == 0


def test_limits_of_a_round_are_kept() -> None:
    rules = Rules(2, most_leader_changes=1, most_follower_changes=2)
    table = place(named(3), empty(30), rules).table
    placed = place(named(4), table, rules)
    replay(table, [node.name for node in named(4)], placed, rules)
    assert len(placed.rounds) >= placed.follower_copies / 2
