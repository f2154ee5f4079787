"""Copies go from nodes with too many to nodes with too few, and no more of them than necessary."""

import pytest

from topom.placement.planner.layout import Layout
from topom.placement.planner.moving import move, moves_into
from topom.placement.planner.watermarks import Band


def moved(layout: Layout) -> int:
    return sum(len(holders - kept) for holders, kept in zip(layout.holders, layout.kept, strict=True))


@pytest.mark.parametrize(
    ("counts", "held", "moves"),
    [
        ([3, 3, 3], Band(2, 4), 0),
        ([6, 0], Band(2, 4), 2),
        ([5, 4, 0], Band(2, 4), 2),  # one copy relieves a node and fills another
        ([6, 5, 1], Band(1, 4), 3),
    ],
)
def test_how_many_moves_there_have_to_be(counts: list[int], held: Band, moves: int) -> None:
    assert moves_into(counts, held) == moves
    slots = [node for node, count in enumerate(counts) for _ in range(count)]
    layout = Layout([[node] for node in slots], slots, [0] * len(counts))
    move(layout, held, 0)
    assert all(held.holds(layout.count(node)) for node in range(len(counts)))
    assert moved(layout) == moves


def test_followers_go_rather_than_leaders() -> None:
    layout = Layout([[0, 1], [0, 1], [0, 1]], [0, 1, 1], [0, 0, 0])
    move(layout, Band(1, 3), 0)
    (slot,) = layout.held[2]
    assert layout.leaders[slot] in layout.holders[slot]


def test_a_node_that_is_to_lead_gets_slots_of_those_who_lead_most() -> None:
    # Node 0 leads three slots and node 1 one; node 2 follows both, node 3 is new.
    layout = Layout([[0, 2], [0, 2], [0, 2], [1, 2]], [0, 0, 0, 1], [0, 0, 0, 0])
    move(layout, Band(1, 3), 1)
    (slot,) = layout.held[3]
    assert layout.leaders[slot] == 0


def test_a_copy_goes_that_loses_its_slot_no_datacenter() -> None:
    # Slot 0 would be in x alone if it went from y; slot 1 has both its copies in y.
    layout = Layout([[0, 1], [1, 2]], [0, 2], [0, 1, 1, 0])
    move(layout, Band(1, 2), 0)
    assert layout.holders == [{0, 1}, {2, 3}] or layout.holders == [{0, 1}, {1, 3}]
    assert layout.crowded() == 0
