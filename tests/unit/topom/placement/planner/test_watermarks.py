"""Watermarks: those of SOFARegistry, or strict ones that are rounded towards the even share."""

from topom.placement.planner import Rules
from topom.placement.planner.watermarks import Band, band, watermarks
from topom.term import features
from topom.term.settings import TopomSettings

STRICT = Rules(2, strict=True)


def test_groups_are_placed_by_strict_watermarks() -> None:
    assert features.placement(TopomSettings()) == STRICT
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
                # A node that leads its part of what it holds, rounded down or up, is within.
                for held in (marks.copies.low, marks.copies.high):
                    for led in (held // copies, -(-held // copies)):
                        assert marks.leaders.holds(led)
                        assert marks.followers.holds(held - led)


def test_watermarks_are_those_of_sofaregistry() -> None:
    assert band(1024, 5, 10) == Band(183, 226)
    assert band(16, 7, 10) == Band(1, 4)
    assert band(3, 7, 10) == Band(0, 2)
    assert band(100, 10, 0) == Band(9, 11)
