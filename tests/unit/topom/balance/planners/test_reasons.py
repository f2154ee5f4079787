"""What a plan says of what it could not do."""

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.unit.topom.balance.planners.fleets import Fleet, sized
from topom.balance.planners import PlanRequest
from topom.cluster.topology import Move


def test_a_slot_that_is_larger_than_a_share_is_named() -> None:
    [above, below] = sized([1, 1, 2], [9000, 100, 200], 2).plan().reasons
    assert "group 1 is to have 9,000 bytes, 93.5% above its share of 4,650 bytes" in above
    assert "slot 0 alone has 9,000 bytes" in above
    assert "group 2 is to have 300 bytes, 93.5% below its share" in below


def test_slots_in_motion_that_are_too_many_are_the_reason() -> None:
    fleet = sized([1] * 5, [1000] * 5, 2)
    slots = tuple(Slot(slot.id, 1, Action(SlotState.PENDING, 2)) for slot in fleet.slots)
    [above, _] = Fleet(fleet.groups, slots, fleet.request).plan().reasons
    assert "on their way to it, and are not touched, have 5,000" in above


def test_whole_slots_that_do_not_divide_evenly_are_the_reason() -> None:
    [above, _] = sized([1, 1, 2], [1000, 1000, 1000], 2).plan().reasons
    assert "slots are moved whole" in above


def test_of_many_groups_some_are_spoken_of_and_the_others_counted() -> None:
    reasons = sized([1], [1000], 50).plan().reasons
    assert len(reasons) == 11
    assert reasons[-1] == "40 more groups are to be further than 5% from their shares"


def test_sizes_that_nobody_knows_are_said() -> None:
    plan = sized([1, 1, 0], [0, 0, 0], 2).plan()
    assert plan.moves == (Move(2, 0, 2),)
    assert "no slot is known to have any bytes" in plan.reasons[0]


def test_what_keeps_a_group_from_being_drained_is_said() -> None:
    groups = (Group(1, ("a:1",)), Group(2, ("b:1",)), Group(3))
    slots = (Slot(0, 1, Action(SlotState.MIGRATING, 2)), Slot(1, 2), Slot(2, 3))
    fleet = Fleet(groups, slots, PlanRequest(bytes={0: 5, 1: 5, 2: 5}, drain=frozenset({2, 3}), tolerance=0.0))
    for policy in ("bytes", "codis"):
        plan = fleet.plan(policy)
        assert plan.moves == (Move(1, 2, 1),)
        [arriving, resting] = plan.reasons
        assert "slot 0 is on the way to group 2" in arriving
        assert "group 3 has no server, so slot 2 cannot be moved away" in resting


def test_a_limit_that_lets_no_slot_pass_is_said() -> None:
    reasons = sized([1, 1, 1, 1], [1000] * 4, 2, most_bytes=999).plan().reasons
    assert reasons == (
        "the limit of 999 bytes leaves out 2 moves of 2,000 bytes; plan again when the others are done",
        "every slot that would move has more than 999 bytes; the smallest is slot 0 with 1,000",
    )


def test_codis_says_that_it_looks_at_no_capacity() -> None:
    assert "capacity" in sized([1], [1], 1, capacity={1: 2.0}).plan("codis").reasons[0]
