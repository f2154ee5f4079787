"""The policy bytes: near the best plan, and what has to be true for any of its plans."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planning import bound
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from tests.searching import examples
from tests.unit.topom.balance.planners.fleets import Fleet, fleets, optimum, sized, zipf
from topom.balance.planners import Plan
from topom.cluster.topology import Move


def moved(fleet: Fleet) -> list[Move]:
    return list(fleet.plan().moves)


@settings(max_examples=examples(150), deadline=None)
@given(fleets(most_slots=9, most_groups=3))
def test_small_fleets_get_the_best_plan_there_is(fleet: Fleet) -> None:
    moves = moved(fleet)
    assert (fleet.excess(moves), fleet.cost(moves)) == optimum(fleet)


SIZES = {
    "even": lambda rng: rng.randint(1, 10**6),
    "skewed": lambda rng: 10**6 // rng.randint(1, 50),
    "alike": lambda rng: rng.randint(9 * 10**5, 10**6),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("owners", [(1, 2, 3), (1,), (0, 1, 2, 3)], ids=["random", "one", "some-offline"])
@pytest.mark.timeout(300)
def test_twelve_slots_in_three_groups_get_the_best_plan_there_is(kind: str, owners: tuple[int, ...]) -> None:
    rng = random.Random(f"{kind} {owners}")
    fleet = sized([rng.choice(owners) for _ in range(12)], [SIZES[kind](rng) for _ in range(12)], 3)
    moves = moved(fleet)
    assert (fleet.excess(moves), fleet.cost(moves)) == optimum(fleet)


def fewest(fleet: Fleet) -> int:
    """No plan that brings every group into its band moves fewer bytes."""
    owned: dict[int, list[int]] = {group: [] for group in fleet.bands()}
    for slot in fleet.slots:
        owned[slot.group_id].append(fleet.size(slot))
    return bound(owned, fleet.bands())


def in_ranges(exponent: float, seed: int) -> Fleet:
    rng = random.Random(seed)
    sizes = [round(2**30 / rank**exponent) for rank in range(1, 1025)]
    rng.shuffle(sizes)
    return sized([1 + slot * 50 // 1024 for slot in range(1024)], sizes, 50)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("exponent", [0.3, 0.5])
def test_ranges_of_slots_are_evened_out_near_the_bound(exponent: float, seed: int) -> None:
    # Given: most groups are a slot or less from their bands, so that whole slots set the bound.
    fleet = in_ranges(exponent, seed)
    moves = moved(fleet)
    assert fleet.excess(moves) == 0
    assert fleet.cost(moves) <= 1.1 * fewest(fleet)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.7, 1.0])
def test_large_fleets_are_near_the_bound(exponent: float, seed: int) -> None:
    fleet = zipf(1024, 50, exponent, seed)
    moves = moved(fleet)
    assert fleet.cost(moves) <= 1.1 * fewest(fleet)
    load, bands = fleet.loads(moves), fleet.bands()
    biggest = dict.fromkeys(bands, 0)
    target = {move.slot: move.target for move in moves}
    for slot in fleet.slots:
        group = target.get(slot.id, slot.group_id)
        biggest[group] = max(biggest[group], fleet.size(slot))
    too_big = [group for group, (_, high) in bands.items() if biggest[group] > high]
    for group, (low, high) in bands.items():
        if group in too_big:
            assert load[group] == biggest[group], "a slot that is too big for any group is alone in its group"
        else:
            assert load[group] <= high
            assert exponent > 0.7 or load[group] >= low, "all that is missing is in slots that are too big"
    assert bool(too_big) == (exponent > 0.5)


def test_a_new_group_costs_little_more_than_what_it_gets() -> None:
    # Given: 49 groups in their bands, and one that has just come.
    rng = random.Random(7)
    sizes = [round(2**30 / rank**0.5) for rank in range(1, 1025)]
    rng.shuffle(sizes)
    even = sized([1 + slot * 49 // 1024 for slot in range(1024)], sizes, 49)
    even = even.carried_out(moved(even))
    fleet = sized([slot.group_id for slot in even.slots], sizes, 50)
    # When, then
    moves = moved(fleet)
    assert fleet.excess(moves) == 0
    assert fleet.cost(moves) <= 1.03 * fewest(fleet)


@pytest.mark.long
def test_the_largest_fleet_is_planned() -> None:
    fleet = zipf(16384, 1000, 0.5, 1)
    moves = moved(fleet)
    assert fleet.cost(moves) <= 1.1 * fewest(fleet)
    assert fleet.excess(moves) < fleet.excess() / 10


@pytest.mark.long
@settings(deadline=None)
@given(fleets())
def test_only_slots_at_rest_move_and_all_that_have_to(fleet: Fleet) -> None:
    moves = moved(fleet)
    slots = {slot.id: slot for slot in fleet.slots}
    assert [move.slot for move in moves] == sorted({move.slot for move in moves})
    for move in moves:
        slot = slots[move.slot]
        assert fleet.may_move(slot)
        assert move.source == slot.group_id != move.target
        assert move.target in fleet.takers
    placed = {move.slot for move in moves}
    for slot in fleet.slots:
        if fleet.may_move(slot) and slot.group_id not in fleet.takers:
            assert slot.id in placed, "offline, or in a group to drain"
        elif not fleet.size(slot):
            assert slot.id not in placed, "nothing is gained by moving what is empty"


@pytest.mark.long
@settings(deadline=None)
@given(fleets())
def test_no_plan_makes_it_worse(fleet: Fleet) -> None:
    moves = moved(fleet)
    by_force = [move for move in moves if move.source not in fleet.takers]
    placed = fleet.excess(moves)
    if not by_force:
        assert placed < fleet.excess() or not moves


@pytest.mark.long
@settings(deadline=None)
@given(fleets(drains=False))
def test_groups_in_their_bands_are_left_alone(fleet: Fleet) -> None:
    even = fleet.asking(tolerance=1.0, capacity={})
    load, bands = even.loads(), even.bands()
    # Slots without a group need room, and other slots may have to go for that.
    if not load[0] and all(low <= load[group] <= high for group, (low, high) in bands.items()):
        assert not any(even.request.bytes.get(move.slot) for move in moved(even))


@pytest.mark.long
@settings(deadline=None)
@given(fleets(), st.randoms())
def test_plans_are_deterministic_whatever_the_order(fleet: Fleet, rng: random.Random) -> None:
    groups, slots = list(fleet.groups), list(fleet.slots)
    rng.shuffle(groups)
    rng.shuffle(slots)
    sizes = list(fleet.request.bytes.items())
    rng.shuffle(sizes)
    other = Fleet(tuple(groups), tuple(slots), fleet.asking(bytes=dict(sizes)).request)
    assert other.plan() == fleet.plan()


@pytest.mark.long
@settings(deadline=None)
@given(fleets(actions=False))
def test_carried_out_plans_are_followed_by_none(fleet: Fleet) -> None:
    moves = moved(fleet)
    assert moved(fleet.carried_out(moves)) == []


@settings(deadline=None)
@given(fleets(most_slots=9, most_groups=3))
def test_plans_under_way_are_followed_by_none(fleet: Fleet) -> None:
    moves = moved(fleet)
    assert moved(fleet.begun(moves)) == []


@pytest.mark.parametrize(
    ("slots", "groups", "exponent", "seed"),
    # The last fleet is one that planning once does not finish.
    [(1024, 50, 0.5, 3), (1024, 50, 0.8, 3), (1024, 50, 1.1, 3), (100, 9, 0.9, 8)],
)
def test_large_plans_are_followed_by_none(slots: int, groups: int, exponent: float, seed: int) -> None:
    fleet = zipf(slots, groups, exponent, seed)
    moves = moved(fleet)
    assert moves
    assert moved(fleet.carried_out(moves)) == []


@pytest.mark.long
@settings(deadline=None)
@given(fleets())
def test_drained_groups_keep_nothing_that_rests(fleet: Fleet) -> None:
    after = fleet.carried_out(moved(fleet))
    for slot in after.slots:
        if slot.group_id in fleet.request.drain and fleet.may_move(slot):
            raise AssertionError(f"{slot} is left")


def test_capacity_weighs() -> None:
    fleet = sized([1] * 60, [100] * 60, 3, capacity={1: 1.0, 2: 2.0, 3: 3.0}, tolerance=0.0)
    assert fleet.loads(moved(fleet)) == {0: 0, 1: 1000, 2: 2000, 3: 3000}


def test_a_group_without_a_capacity_has_the_mean_of_the_others() -> None:
    fleet = sized([1] * 60, [100] * 60, 3, capacity={1: 1.0, 3: 3.0}, tolerance=0.0)
    assert fleet.loads(moved(fleet)) == {0: 0, 1: 1000, 2: 2000, 3: 3000}


def test_slots_in_motion_count_where_they_come_to_rest() -> None:
    fleet = sized([1, 1, 1], [100, 100, 200], 2)
    # Given: what group 2 should have is on its way. When, then
    arriving = (*fleet.slots[:2], Slot(2, 1, Action(SlotState.PREPARING, 2)))
    assert Fleet(fleet.groups, arriving, fleet.request).plan() == Plan(())
    # Given: it was called off. When, then
    turning = (*fleet.slots[:2], Slot(2, 1, Action(SlotState.MIGRATING, 2, Course.TURNING)))
    assert Fleet(fleet.groups, turning, fleet.request).plan() == Plan((Move(0, 1, 2), Move(1, 1, 2)))


def test_offline_slots_of_unknown_size_are_spread_by_number_and_weight() -> None:
    fleet = sized([0] * 12, [0] * 12, 3, capacity={1: 1.0, 2: 1.0, 3: 2.0})
    targets = [move.target for move in moved(fleet)]
    assert {group: targets.count(group) for group in (1, 2, 3)} == {1: 3, 2: 3, 3: 6}


def test_empty_slots_of_a_group_to_drain_are_spread_by_number() -> None:
    fleet = sized([1] * 4 + [2] * 3 + [3], [0] * 8, 3, drain=frozenset({1}))
    targets = [move.target for move in moved(fleet)]
    assert {group: targets.count(group) for group in (1, 2, 3)} == {1: 0, 2: 1, 3: 3}
