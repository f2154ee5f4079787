"""Which planner plans, and what it needs."""

import pytest

from slots.group import Group
from slots.slot import Slot
from topom.balance.planners import InvalidPlanRequest, NoGroup, PlanRequest, UnknownPolicy, plan
from topom.balance.planners.policies import POLICIES

SLOTS = [Slot(1, 0), Slot(0, 0)]
ONE = Group(2, ("b:1",))


def test_an_unknown_policy_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownPolicy, match=r"no policy 'best'; known are: bytes, codis"):
        plan("best", [ONE], SLOTS)


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_without_servers_take_nothing_and_groups_may_come_in_any_order(policy: str) -> None:
    moves = plan(policy, [Group(3, ("c:1",)), Group(1), ONE], SLOTS).moves
    assert [move.slot for move in moves] == [0, 1]
    assert {move.target for move in moves} == {2, 3}
    with pytest.raises(NoGroup, match="no group has a server"):
        plan(policy, [Group(1)], SLOTS)
    with pytest.raises(NoGroup, match=r"those to be drained \(2\)"):
        plan(policy, [Group(1), ONE], SLOTS, PlanRequest(drain=frozenset({2})))


@pytest.mark.parametrize("policy", POLICIES)
def test_no_planner_is_given_a_request_that_cannot_be_meant(policy: str) -> None:
    with pytest.raises(InvalidPlanRequest):
        plan(policy, [ONE], SLOTS, PlanRequest(most_slots=-1))
