"""How many bytes each group should have."""

import pytest

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import SlotState
from topom.balance.planners.request import PlanRequest
from topom.balance.planners.shares import band, shares, weights

GROUPS = [Group(1, ("a:1",)), Group(2, ("b:1",)), Group(3)]


def test_a_group_without_a_capacity_has_the_mean_of_the_others() -> None:
    assert weights([3, 1, 2], {}) == {1: 1.0, 2: 1.0, 3: 1.0}
    assert weights([1, 2, 3], {1: 2.0, 3: 6.0}) == {1: 2.0, 2: 4.0, 3: 6.0}


def test_what_groups_have_and_nobody_owns_is_shared_out_by_weight() -> None:
    slots = [Slot(0, 1), Slot(1, 2), Slot(2, OFFLINE), Slot(3, 3)]
    request = PlanRequest(bytes={0: 10, 1: 20, 2: 30, 3: 40}, capacity={1: 1.0, 2: 2.0})
    assert shares(GROUPS, slots, request) == {1: 20.0, 2: 40.0}, "what rests where no server is can be moved nowhere"


def test_what_rests_in_a_group_to_drain_is_for_the_others_and_what_comes_to_it_for_nobody() -> None:
    slots = [Slot(0, 1), Slot(1, 2), Slot(2, 1, Action(SlotState.PENDING, 2)), Slot(3, 2, Action(SlotState.PENDING, 3))]
    request = PlanRequest(bytes={0: 10, 1: 20, 2: 70, 3: 90}, drain=frozenset({2}))
    assert shares(GROUPS, slots, request) == {1: 30.0}


def test_what_is_on_its_way_counts_where_it_comes_to_rest() -> None:
    slots = [Slot(0, 3, Action(SlotState.MIGRATING, 1)), Slot(1, 1, Action(SlotState.MIGRATING, 3))]
    assert shares(GROUPS, slots, PlanRequest(bytes={0: 10, 1: 7})) == {1: 5.0, 2: 5.0}


@pytest.mark.parametrize(
    ("share", "tolerance", "within"), [(100.0, 0.05, (95, 105)), (10.5, 0.0, (10, 11)), (3.0, 1.0, (0, 6))]
)
def test_a_band_is_rounded_away_from_its_share(share: float, tolerance: float, within: tuple[int, int]) -> None:
    assert band(share, tolerance) == within
