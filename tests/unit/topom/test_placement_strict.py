"""Placement of a few groups: watermarks that are rounded inwards, and plans that come to rest with whatever servers."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.unit.topom.placement_sequences import check, empty, loads
from tests.unit.topom.test_placements import done, state_of
from topom.cluster.state import ClusterState, PoolServer
from topom.placement.picture import ConditionOf, draw
from topom.placement.plan import plan
from topom.placement.planner import Copies, Node, Rules, place
from topom.placement.planner.watermarks import Band, band, watermarks
from topom.servers.detector import Condition
from topom.term.settings import TopomSettings

STRICT = Rules(2, strict=True)
THREE = [Node(name) for name in "abc"]


def counts(table: dict[int, Copies], names: str) -> tuple[list[int], list[int]]:
    leads, follows = loads(table, names)
    return [leads[name] for name in names], [follows[name] for name in names]


def test_groups_are_placed_by_strict_watermarks() -> None:
    assert TopomSettings().placement_rules() == STRICT
    assert not Rules(2).strict


def test_strict_watermarks_hold_the_share_rounded_down_and_up() -> None:
    assert band(3, 3, 10, strict=True) == Band(1, 1)
    assert band(4, 3, 10, strict=True) == Band(1, 2)
    assert band(2, 3, 10, strict=True) == Band(0, 1)
    assert band(1024, 5, 10, strict=True) == Band(184, 225)
    for slots in range(1, 40):
        for nodes in range(1, 9):
            for copies in range(1, min(nodes, 4) + 1):
                marks = watermarks(slots, copies, nodes, 10, strict=True)
                share = slots * copies // nodes
                assert marks.copies.holds(share)
                assert marks.copies.holds(-(-slots * copies // nodes))
                # Whoever leads its part of what it holds, rounded down or up, is within.
                for held in (marks.copies.low, marks.copies.high):
                    for led in (held // copies, -(-held // copies)):
                        assert marks.leaders.holds(led)
                        assert marks.followers.holds(held - led)


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


def failed_on(node: str) -> ConditionOf:
    return lambda server: Condition.FAILED if server.split(":")[0] == node else Condition.ALIVE


def promoted(state: ClusterState, condition_of: ConditionOf) -> ClusterState:
    """What ``ha`` makes of masters that have failed."""
    for group in state.table.groups.values():
        alive = [server for server in group.servers if condition_of(server) is Condition.ALIVE]
        if alive and alive[0] != group.master:
            servers = (alive[0], *(server for server in group.servers if server != alive[0]))
            table = state.table.changed(state.table.epoch + 1, groups=[replace(group, servers=servers)])
            state = replace(state, table=table)
    return state


@pytest.mark.parametrize("seeds", [range(40), (75, 335, 461, 491)])
def test_whatever_servers_there_are_plans_end_and_none_begins_where_one_began(seeds: range | tuple[int, ...]) -> None:
    rounds = Counter[int]()
    for seed in seeds:
        chance = random.Random(seed)
        nodes = [f"n{number}" for number in range(chance.randint(2, 6))]
        places = {node: f"d{chance.randint(0, 2)}" if seed % 2 else "" for node in nodes}
        groups = {}
        for number in range(1, chance.randint(2, 10)):
            holders = chance.sample(nodes, min(len(nodes), chance.choice((1, 2, 2, 2, 3))))
            groups[number] = ",".join(f"{node}:" for node in holders)
        scarce = chance.choice((0, 1, 2, 12))
        pool = ",".join(f"{node}:{port}" for node in nodes for port in range(100, 100 + chance.randint(0, scarce)))
        state = state_of(groups, pool)
        state = replace(
            state, pool={one: PoolServer(one, one.split(":")[0], places[one.split(":")[0]]) for one in state.pool}
        )
        dead = ""
        for _ in range(4):
            condition_of = failed_on(dead)
            state = promoted(state, condition_of)
            begun = []
            while (found := plan(state, draw(state, condition_of), STRICT)).steps:
                table = draw(state, condition_of).table
                assert table not in begun, f"{seed}: it goes round in circles"
                begun.append(table)
                state = done(state, found.steps)
            rounds[len(begun)] += 1
            dead = chance.choice(nodes) if not dead and len(nodes) > 2 else ""
    assert max(rounds) < 8, rounds


def test_groups_whose_copies_share_a_datacenter_are_named() -> None:
    state = state_of({1: "a:,b:", 2: "b:,a:", 3: "a:,b:"})

    def sharing(*servers: str) -> list[str]:
        pooled = replace(state, pool={one: PoolServer(one, "c", "y") for one in servers})
        missing = plan(pooled, draw(pooled, failed_on("")), STRICT).missing
        return [sentence.split(":")[0] for sentence in missing if "share a datacenter" in sentence]

    assert sharing() == []
    # The third node may hold two copies of six.
    assert len(sharing("c:1", "c:2", "c:3")[0].split(",")) == 1
    assert len(sharing("c:1")[0].split(",")) == 2
