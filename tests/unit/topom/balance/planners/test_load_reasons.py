"""What a plan by load says of groups that stay above their limits."""

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.unit.topom.balance.planners.fleets import Fleet
from topom.balance.planners import PlanRequest
from topom.balance.planners.request import SlotLoad


def fleet(owners: list[Slot], rates: list[float], groups: int = 2) -> Fleet:
    return Fleet(
        tuple(Group(group_id, ("s:1",)) for group_id in range(1, groups + 1)),
        tuple(owners),
        PlanRequest(loads={slot: SlotLoad(rate) for slot, rate in enumerate(rates)}),
    )


def test_a_slot_that_is_larger_than_a_share_is_named_and_how_to_help() -> None:
    [reason] = fleet([Slot(0, 1), Slot(1, 2)], [9.0, 1.0]).plan("load").reasons
    assert reason == (
        "group 1 is to have 80% above its share of all load: slot 0 alone has 90.0% of all load, 1.8 times that share, "
        "and cannot be divided. No plan can help; find the keys that its clients ask for most, and spread them"
    )


def test_slots_in_motion_that_are_too_many_are_the_reason() -> None:
    slots = [Slot(slot, 1, Action(SlotState.PENDING, 2)) for slot in range(4)]
    [reason] = fleet(slots, [1.0] * 4).plan("load").reasons
    assert "slots that are on their way to it, and are not touched" in reason


def test_whole_slots_that_do_not_divide_evenly_are_the_reason() -> None:
    [reason] = fleet([Slot(0, 1), Slot(1, 1), Slot(2, 2)], [10.0, 10.0, 10.0]).plan("load").reasons
    assert "slots are moved whole" in reason


def test_of_many_groups_some_are_spoken_of_and_the_others_counted() -> None:
    reasons = fleet([Slot(slot, slot + 1) for slot in range(12)], [9.0] * 12, 40).plan("load").reasons
    assert len(reasons) == 11
    assert reasons[-1] == "2 more groups are to have too much load"
