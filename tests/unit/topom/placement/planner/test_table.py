"""The planner's objects: which nodes hold a slot, what a placement costs, nodes and rules that make no sense."""

import pytest

from topom.placement.planner.table import (
    Copies,
    Copy,
    InvalidPlacement,
    Node,
    Placement,
    Promotion,
    Round,
    Rules,
    check_nodes,
)


def test_a_leader_holds_a_copy_too() -> None:
    assert Copies("a", ("b", "c")).holders == ("a", "b", "c")
    assert Copies("", ("b",)).holders == ("b",)
    assert Copies().holders == ()


def test_what_a_placement_costs() -> None:
    rounds = (
        Round((Promotion(0, "a"),), (Copy(1, "b", leads=True), Copy(2, "b"))),
        Round((Promotion(2, "b"), Promotion(3, "c")), (Copy(4, "c", instead_of="a"),)),
    )
    placed = Placement({}, rounds)
    assert (placed.promotions, placed.leader_copies, placed.follower_copies) == (3, 1, 2)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (Rules(0), "replicas is 0"),
        (Rules(1, watermark=-1), "the watermark is -1"),
        (Rules(1, watermark=101), "the watermark is 101"),
        (Rules(1, most_leader_changes=0), "the limit of leader changes a round is 0"),
        (Rules(1, most_follower_changes=0), "the limit of follower changes a round is 0"),
    ],
)
def test_rules_that_cannot_be_meant(rules: Rules, says: str) -> None:
    with pytest.raises(InvalidPlacement) as raised:
        rules.check()
    assert str(raised.value).startswith(says)
    Rules(1, 0, 1, 1).check()
    Rules(9, 100).check()


@pytest.mark.parametrize(
    ("names", "says"),
    [((), "there is no node"), (("a", ""), "a node has no name"), (("a", "b", "a"), "node a is listed")],
)
def test_nodes_that_cannot_be_meant(names: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidPlacement, match=says):
        check_nodes([Node(name) for name in names])
