"""Limits on a plan, and groups to drain."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slots.group import Group
from slots.slot import Slot
from tests.unit.topom.balance.planners.fleets import POLICIES, Fleet, fleets, sized
from topom.balance import planners
from topom.balance.planners import InvalidPlanRequest, NoGroup
from topom.balance.planners.packing import search
from topom.cluster.topology import Move


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> Iterator[None]:
    """Limits also have to hold for plans that are not the best, and a hundred examples make many plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MOST_NODES", 2_000)
        yield


@pytest.mark.long
@settings(deadline=None)
@given(fleets(), st.sampled_from(POLICIES), st.integers(0, 12) | st.none(), st.integers(0, 10**6) | st.none())
def test_limits_are_kept(fleet: Fleet, policy: str, most_slots: int | None, most_bytes: int | None) -> None:
    limited = fleet.asking(most_slots=most_slots, most_bytes=most_bytes).plan(policy)
    whole = fleet.plan(policy)
    assert set(limited.moves) <= set(whole.moves)
    assert most_slots is None or len(limited.moves) <= most_slots
    assert most_bytes is None or fleet.cost(limited.moves) <= most_bytes
    assert any("limit" in reason for reason in limited.reasons) == (limited.moves != whole.moves)


@pytest.mark.long
@settings(deadline=None)
@given(fleets(drains=False), st.integers(1, 5))
def test_every_limited_plan_helps_until_nothing_is_left(fleet: Fleet, most_slots: int) -> None:
    limited = fleet.asking(most_slots=most_slots)
    for _ in range(len(fleet.slots) + 1):
        moves = limited.plan().moves
        if not moves:
            break
        after = limited.carried_out(moves)
        # Slots without an owner have to go somewhere, and groups then hold more.
        placed = limited.carried_out(move for move in moves if move.source == 0)
        assert after.excess() < placed.excess() or all(move.source == 0 for move in moves)
        limited = after
    else:
        raise AssertionError("there is always something left to move")


def test_of_few_moves_those_that_help_most_are_made() -> None:
    # Given: group 1 has 400 too many, in slots of 200, 100, 60 and 40.
    fleet = sized([1, 1, 1, 1, 1, 2], [200, 100, 60, 40, 600, 200], 2, tolerance=0.0)
    # When, then
    assert fleet.asking(most_slots=1).plan().moves == (Move(0, 1, 2),)
    assert fleet.asking(most_bytes=150).plan().moves == (Move(1, 1, 2), Move(3, 1, 2))
    assert fleet.asking(most_bytes=150, most_slots=1).plan().moves == (Move(1, 1, 2),)


def test_slots_that_nobody_owns_go_first_then_those_of_a_group_to_drain() -> None:
    fleet = sized([0, 3, 3, 1, 1, 1], [0, 10, 20, 500, 400, 300], 3, drain=frozenset({3}))
    for most_slots, taken in ((1, [0]), (2, [0, 2]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])):
        assert [move.slot for move in fleet.asking(most_slots=most_slots).plan().moves] == taken
    assert [move.slot for move in fleet.asking(most_slots=2).plan("codis").moves] == [0, 1]


def test_codis_drains_a_group() -> None:
    fleet = sized([1, 1, 1, 2, 2, 2, 3, 3, 3], [0] * 9, 3, drain=frozenset({2}))
    moves = fleet.plan("codis").moves
    assert {move.slot for move in moves} >= {3, 4, 5}
    owners = [slot.group_id for slot in fleet.carried_out(moves).slots]
    assert {group: owners.count(group) for group in (1, 2, 3)} in ({1: 5, 2: 0, 3: 4}, {1: 4, 2: 0, 3: 5})


@pytest.mark.long
@settings(deadline=None)
@given(fleets())
def test_codis_leaves_nothing_that_rests_in_drained_groups(fleet: Fleet) -> None:
    after = fleet.carried_out(fleet.plan("codis").moves)
    assert not [slot for slot in after.slots if slot.group_id in fleet.request.drain and fleet.may_move(slot)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 5.0}, "from 0 to 1"),
        ({"tolerance": -0.1}, "from 0 to 1"),
        ({"tolerance": float("nan")}, "from 0 to 1"),
        ({"most_slots": -1}, "limit of slots is -1"),
        ({"most_bytes": -1}, "limit of bytes is -1"),
        ({"capacity": {1: 0.0}}, "capacity of group 1 is 0"),
        ({"capacity": {1: float("nan")}}, "capacity of group 1 is nan"),
        ({"capacity": {1: float("inf")}}, "capacity of group 1 is inf"),
        ({"capacity": {7: 1.0}}, "group 7 is to have a capacity"),
        ({"drain": frozenset({7})}, "group 7 is to be drained"),
        ({"bytes": {0: -1}}, "slot 0 has -1 bytes"),
        ({"keys": {0: -1}}, "slot 0 has -1 keys"),
    ],
)
def test_requests_that_cannot_be_meant(policy: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidPlanRequest, match=message):
        sized([1, 2], [1, 1], 2, **options).plan(policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_somebody_has_to_take_what_is_drained(policy: str) -> None:
    with pytest.raises(NoGroup, match="no group is left"):
        sized([1, 2], [1, 1], 2, drain=frozenset({1, 2})).plan(policy)
    with pytest.raises(NoGroup, match="no group has a server"):
        planners.plan(policy, [Group(1)], [Slot(0)])
