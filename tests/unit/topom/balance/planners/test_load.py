"""The policy load: what has to be true for any of its plans, and how even they are."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import SlotState
from tests.unit.topom.balance.planners.fleets import Fleet, fleets, sized
from topom.balance.planners import PlanRequest
from topom.balance.planners.load import load_limits
from topom.balance.planners.request import SlotLoad, loads_of
from topom.balance.planners.shares import shares
from topom.cluster.topology import Move


def loaded(owners: list[int], requests: list[float], groups: int, **request: object) -> Fleet:
    """Slot after slot with its group and its requests a second; every slot has 100 bytes."""
    fleet = sized(owners, [100] * len(owners), groups)
    return fleet.asking(loads={slot: SlotLoad(rate) for slot, rate in enumerate(requests)}, **request)


def moves(fleet: Fleet) -> list[Move]:
    return list(fleet.plan("load").moves)


def totals(fleet: Fleet, plan: list[Move]) -> dict[int, int]:
    """The load of each group, once all that moves has arrived."""
    return replace(fleet, request=PlanRequest(bytes=loads_of(fleet.request))).loads(plan)


def most(fleet: Fleet) -> dict[int, int]:
    share = shares(fleet.groups, fleet.slots, fleet.request, loads_of(fleet.request))
    return load_limits(share, fleet.request.tolerance)


def excess(fleet: Fleet, plan: list[Move]) -> int:
    total = totals(fleet, plan)
    return sum(max(0, total[group_id] - limit) for group_id, limit in most(fleet).items())


@pytest.mark.long
@given(fleets(drains=False))
def test_no_group_is_worse_off(fleet: Fleet) -> None:
    # Given: no slot has to go somewhere.
    fleet = replace(
        fleet,
        slots=tuple(slot if slot.group_id else Slot(slot.id, fleet.takers[0], slot.action) for slot in fleet.slots),
    )
    plan = moves(fleet)
    before, after, limit = totals(fleet, []), totals(fleet, plan), most(fleet)
    giants = max(loads_of(fleet.request).values(), default=0) > max(limit.values())
    for group_id in fleet.takers:
        assert after[group_id] <= max(before[group_id], limit[group_id]) or giants
    assert max(after[group_id] for group_id in fleet.takers) <= max(
        *(before[group_id] for group_id in fleet.takers), *limit.values()
    )
    assert excess(fleet, plan) <= excess(fleet, [])


@given(fleets())
def test_a_plan_moves_what_may_move_and_empties_groups_to_drain(fleet: Fleet) -> None:
    plan = moves(fleet)
    slots = {slot.id: slot for slot in fleet.slots}
    assert [move.slot for move in plan] == sorted({move.slot for move in plan})
    for move in plan:
        assert fleet.may_move(slots[move.slot])
        assert move.source == slots[move.slot].group_id != move.target
        assert move.target in fleet.takers
    moved = {move.slot for move in plan}
    for slot in fleet.slots:
        if fleet.may_move(slot) and slot.group_id not in fleet.takers:
            assert slot.id in moved


@pytest.mark.long
@given(fleets(), st.data())
def test_a_closed_group_gets_no_slot_of_any_kind(fleet: Fleet, data: st.DataObject) -> None:
    closed = data.draw(st.frozensets(st.sampled_from(fleet.takers)))
    fleet = fleet.asking(closed=closed)
    assert not closed & {move.target for move in moves(fleet)}


@pytest.mark.long
@given(fleets(), st.data())
def test_a_group_gets_no_slot_that_is_barred_from_it(fleet: Fleet, data: st.DataObject) -> None:
    barred = data.draw(
        st.dictionaries(st.sampled_from(fleet.takers), st.frozensets(st.integers(0, len(fleet.slots) - 1)))
    )
    fleet = fleet.asking(barred=barred)
    for move in moves(fleet):
        homeless = move.source == OFFLINE or move.source in fleet.request.drain
        assert homeless or move.slot not in barred.get(move.target, ())


@given(fleets())
def test_equal_input_gives_equal_plans_in_any_order(fleet: Fleet) -> None:
    turned = replace(
        fleet,
        groups=fleet.groups[::-1],
        slots=fleet.slots[::-1],
        request=replace(fleet.request, loads=dict(reversed(fleet.request.loads.items()))),
    )
    assert turned.plan("load") == fleet.plan("load")


def test_the_hot_slot_itself_leaves_if_another_group_has_room() -> None:
    # Given: slot 0 has as much as five others of group 1 together. Its bytes are those of one.
    fleet = loaded([1] * 11 + [2] * 4, [50.0] + [10.0] * 14, 2, tolerance=0.1)
    fleet = fleet.asking(bytes={slot: 100 if slot < 11 else 250 for slot in range(15)})
    # When, then
    assert moves(fleet) == [Move(0, 1, 2)]


def test_no_more_leaves_than_brings_a_group_under_its_limit() -> None:
    # Given: a share is 60, the limit 63, and group 1 has 80, in slots of 10.
    plan = moves(loaded([1] * 8 + [2] * 4, [10.0] * 12, 2))
    assert plan == [Move(0, 1, 2), Move(1, 1, 2)]


def test_the_cheapest_bytes_go() -> None:
    # Given: each of four slots of group 1 would do, and slot 2 has the fewest bytes.
    fleet = loaded([1, 1, 1, 1, 2], [10.0, 10.0, 10.0, 10.0, 10.0], 2, tolerance=0.25)
    fleet = fleet.asking(bytes={0: 50, 1: 40, 2: 30, 3: 50, 4: 90})
    assert moves(fleet) == [Move(2, 1, 2)]


def test_hot_slots_come_apart() -> None:
    plan = moves(loaded([1, 1, 1, 2, 2, 3, 3], [90.0, 90.0, 90.0, 1.0, 1.0, 1.0, 1.0], 3, bytes={}))
    assert sorted(move.target for move in plan) == [2, 3]
    assert all(move.source == 1 and move.slot < 3 for move in plan)


def test_slots_that_are_alike_move_as_ranges() -> None:
    fleet = loaded([1] * 32, [1.0] * 32, 4, tolerance=0.0)
    target = {move.slot: move.target for move in moves(fleet)}
    changes = sum(target.get(slot) != target.get(slot + 1) for slot in range(31))
    assert len(target) == 24
    assert changes == 3


def test_a_group_with_little_memory_gets_no_slot_for_which_it_has_none() -> None:
    # Given: group 2 has little load, and nearly all bytes that it may have; group 3 has room.
    fleet = loaded([1, 1, 1, 1, 2, 3], [10.0, 10.0, 10.0, 10.0, 1.0, 2.0], 3)
    fleet = fleet.asking(bytes={0: 60, 1: 60, 2: 60, 3: 60, 4: 199, 5: 60})
    assert {move.target for move in moves(fleet)} == {3}


def test_a_group_with_too_much_memory_gives_some_away() -> None:
    fleet = loaded([1, 1, 1, 2], [10.0, 10.0, 10.0, 30.0], 2)
    fleet = fleet.asking(bytes={0: 900, 1: 900, 2: 900, 3: 100}, loads={slot: SlotLoad(0) for slot in range(4)})
    assert len(moves(fleet)) == 1
    assert moves(fleet.asking(even_memory=False)) == []


def test_capacity_says_how_much_a_group_should_have() -> None:
    fleet = loaded([1] * 6, [10.0] * 6, 2, capacity={1: 2.0, 2: 1.0})
    assert len(moves(fleet)) == 2


def test_a_slot_above_the_share_of_a_group_is_left_alone_and_named() -> None:
    # Given: slot 0 has more than half of all. Its neighbours have room elsewhere.
    fleet = loaded([1, 1, 1, 2, 3], [600.0, 50.0, 50.0, 50.0, 50.0], 3, hot_keys={0: ("cart:17", 590.0)})
    plan = fleet.plan("load")
    assert [(move.slot, move.source) for move in plan.moves] == [(1, 1), (2, 1)]
    [reason] = plan.reasons
    assert "slot 0 alone has 75.0% of all load, 2.25 times that share" in reason
    assert "No plan can help" in reason
    assert "the key cart:17, 590 times a second" in reason


def test_of_two_such_slots_in_one_group_one_leaves() -> None:
    plan = moves(loaded([1, 1, 2, 3, 4, 5], [500.0, 400.0, 10.0, 1.0, 10.0, 10.0], 5))
    assert plan == [Move(1, 1, 3)]


def test_slots_in_motion_count_where_they_go() -> None:
    fleet = loaded([1, 1, 1, 1], [10.0] * 4, 2)
    slots = (*(Slot(slot, 1, Action(SlotState.MIGRATING, 2)) for slot in (0, 1)), *fleet.slots[2:])
    assert moves(replace(fleet, slots=slots)) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("exponent", [0.3, 0.5])
def test_fleets_whose_slots_allow_it_come_under_the_limit(exponent: float, seed: int) -> None:
    rng = random.Random(seed)
    rates = [1e6 / rank**exponent for rank in range(1, 1025)]
    rng.shuffle(rates)
    fleet = loaded([1 + slot * 60 // 1024 for slot in range(1024)], rates, 60)
    fleet = fleet.asking(bytes={slot: rng.randint(10**6, 10**7) for slot in range(1024)})
    plan = fleet.plan("load")
    assert plan.reasons == ()
    assert excess(fleet, list(plan.moves)) == 0
    # What has to leave, at the price of the mean slot, and twice that for whole slots: hot slots cost less.
    needed = excess(fleet, []) / sum(loads_of(fleet.request).values()) * sum(fleet.request.bytes.values())
    assert fleet.cost(plan.moves) <= 2 * needed
    assert fleet.carried_out(plan.moves).plan("load").moves == ()


def test_without_load_nothing_is_evened_out_and_it_is_said() -> None:
    fleet = Fleet((Group(1, ("a:1",)), Group(2, ("b:1",))), (Slot(0, 1), Slot(1, 1), Slot(2, 0)), PlanRequest())
    plan = fleet.plan("load")
    assert plan.moves == (Move(2, 0, 2),)
    assert plan.reasons == ("no slot is known to have any load, so there is nothing to even out",)
