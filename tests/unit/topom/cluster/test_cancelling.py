"""Cancel, skip and retry as functions of the state: what becomes of a slot in each state and course."""

from collections.abc import Mapping

import pytest

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.balance import planners
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.state import ClusterState
from topom.errors import SlotsInAction
from topom.migration.batches import next_batches
from topom.reasons import Kind, Reason

FORWARD, TURNING, BACK = Course.FORWARD, Course.TURNING, Course.BACK
PENDING, PREPARING, PREPARED = SlotState.PENDING, SlotState.PREPARING, SlotState.PREPARED
MIGRATING, FINISHED = SlotState.MIGRATING, SlotState.FINISHED

KINDS: list[tuple[SlotState, Course]] = [
    (PENDING, FORWARD),
    (PREPARING, FORWARD),
    (PREPARED, FORWARD),
    (MIGRATING, FORWARD),
    (FINISHED, FORWARD),
    (MIGRATING, TURNING),
    (PREPARED, BACK),
    (MIGRATING, BACK),
    (FINISHED, BACK),
]
"""Every state with every course that it may have, for a slot of group 1 that was sent to group 2."""


WHY = Reason(Kind.PAUSED, "an operator wanted it so", 1.0)


def slot_in(slot_id: int, state: SlotState, course: Course, epoch: int = 0) -> Slot:
    source, target = (2, 1) if course is BACK else (1, 2)
    return Slot(slot_id, source, Action(state, target, course, epoch=epoch))


def state_of(slots: Mapping[int, Slot], skipped: Mapping[int, Reason] | None = None) -> ClusterState:
    table = SlotTable(
        5,
        tuple(slots.get(number, Slot(number, 1)) for number in range(16)),
        {number: Group(number, (f"s{number}:1",)) for number in (1, 2, 3)},
    )
    return ClusterState(5, "w", PRODUCT, table, skipped=skipped or {})


def all_kinds() -> ClusterState:
    return state_of({number: slot_in(number, *kind) for number, kind in enumerate(KINDS)})


def test_cancelling_in_each_state() -> None:
    state, outcome = interventions.cancel(all_kinds(), 6, range(16))
    assert (outcome.ended, outcome.returning, outcome.too_late) == ([0, 1, 2], [3, 5, 6, 7, 8], [4])
    assert list(state.table.slots[:3]) == [Slot(number, 1) for number in range(3)]
    assert state.table.slots[3] == slot_in(3, MIGRATING, TURNING)
    assert state.table.slots[4:] == all_kinds().table.slots[4:], "nothing is cancelled twice"
    assert state.table.epoch == 6
    again, outcome = interventions.cancel(state, 7, range(16))
    assert again is state
    assert (outcome.ended, outcome.returning, outcome.too_late) == ([], [3, 5, 6, 7, 8], [4])


def test_only_what_is_named_is_cancelled() -> None:
    state, outcome = interventions.cancel(all_kinds(), 6, [1, 15])
    assert outcome.ended == [1]
    assert state.table.slots[0] == slot_in(0, PENDING, FORWARD)


def test_an_offline_slot_that_was_cancelled_is_offline_again() -> None:
    state, _ = interventions.cancel(state_of({0: Slot(0, 0, Action(PREPARED, 2))}), 6, [0])
    assert state.table.slots[0] == Slot(0, 0)


def test_skipping_in_each_state() -> None:
    state = interventions.skip(all_kinds(), 6, dict.fromkeys(range(16), WHY))
    assert sorted(state.skipped) == [0, 1, 2, 3, 5, 6, 7], "neither what is finished nor what is at rest"
    for number in (0, 1, 2):
        assert state.table.slots[number] == slot_in(number, PENDING, FORWARD)
    # absent-first: the keys of these slots are on two servers.
    for number in (3, 5, 7):
        assert state.table.slots[number] == all_kinds().table.slots[number]
    assert state.table.slots[6] == slot_in(6, MIGRATING, TURNING, epoch=6)
    assert interventions.skip(state, 7, dict.fromkeys(range(16), WHY)) is state
    # The slots that are left use the same groups, so one batch begins.
    assert [batch.slots for batch in next_batches(state, [], 8, begin=True)] == [(8,)]


def test_retrying_and_cancelling_end_a_skip() -> None:
    skipped = interventions.skip(all_kinds(), 6, dict.fromkeys(range(8), WHY))
    assert sorted(interventions.unskipped(skipped, [0, 3]).skipped) == [1, 2, 5, 6, 7]
    cancelled, _ = interventions.cancel(skipped, 7, range(16))
    assert cancelled.skipped == {}


def test_a_skip_ends_with_the_action_that_it_is_of() -> None:
    state = state_of({n: slot_in(n, PENDING, FORWARD) for n in range(4)}, dict.fromkeys(range(4), "why"))
    table = topology.move(state.table, 6, [0], 3)
    table = topology.move(table, 7, [1], 1)
    assert sorted(interventions.with_table(state, table).skipped) == [2, 3]
    assert interventions.with_table(state, state.table) is state


def test_a_cancelled_slot_is_not_sent_elsewhere_before_it_is_back() -> None:
    table = all_kinds().table
    for number, kind in enumerate(KINDS):
        if kind[1] is FORWARD:
            continue
        assert topology.move(table, 6, [number], 1) is table, "it is on its way there"
        for target in (2, 3):
            with pytest.raises(SlotsInAction, match="wait until that is done"):
                topology.move(table, 6, [number], target)


def test_turning_and_unlocking() -> None:
    table = all_kinds().table
    turned = topology.turn(table, 6, [5])
    assert turned.slots[5] == slot_in(5, PREPARED, BACK, epoch=6)
    assert turned.slots[5].owner_id == table.slots[5].owner_id == 2, "until all have locked it, the target owns it"
    assert topology.advance(turned, 7, [5], PREPARED, MIGRATING).slots[5] == slot_in(5, MIGRATING, BACK, epoch=6)
    assert topology.unlock(turned, 7, [5]).slots[5] == slot_in(5, MIGRATING, TURNING, epoch=7)
    assert topology.come_to_rest(table, 6, [8]).slots[8] == Slot(8, 1)
    with pytest.raises(SlotsInAction):
        topology.turn(table, 6, [3])
    started = topology.unlock_all(table, 6)
    assert started.slots[2] == slot_in(2, PREPARING, FORWARD)
    assert started.slots[6] == slot_in(6, MIGRATING, TURNING, epoch=6)


def test_courses_over_the_wire() -> None:
    for slot in all_kinds().table.slots:
        assert Slot.from_wire(slot.to_wire()) == slot
    assert "course" not in slot_in(0, MIGRATING, FORWARD).to_wire()["action"], "as before there were courses"
    assert slot_in(0, MIGRATING, BACK).to_wire()["action"] == {"state": "migrating", "target_id": 1, "course": "back"}


def test_a_planner_counts_a_cancelled_slot_where_it_returns_to() -> None:
    groups = [Group(1, ("s1:1",)), Group(2, ("s2:1",))]
    slots = [slot_in(number, MIGRATING, TURNING) for number in range(8)]
    slots += [Slot(number, 2) for number in range(8, 16)]
    assert planners.plan("codis", groups, slots).moves == ()


# Which batches may start


def test_what_goes_on_arrives_before_what_was_cancelled_is_turned() -> None:
    state = state_of(
        {0: slot_in(0, MIGRATING, TURNING), 1: slot_in(1, MIGRATING, FORWARD), 2: slot_in(2, PENDING, FORWARD)}
    )
    (batch,) = next_batches(state, [], 8, begin=True)
    assert (batch.slots, batch.course) == ((1,), FORWARD)


def test_a_deferred_pair_lets_others_of_its_groups_begin() -> None:
    state = state_of({0: slot_in(0, PENDING, FORWARD), 1: Slot(1, 1, Action(PENDING, 3))})
    (batch,) = next_batches(state, [], 8, begin=True)
    assert batch.slots == (0,)
    (batch,) = next_batches(state, [], 8, begin=True, deferred=[(1, 2)])
    assert batch.slots == (1,)


def test_nothing_begins_against_slots_that_stepped_aside_on_their_way() -> None:
    state = state_of({0: slot_in(0, MIGRATING, FORWARD), 1: Slot(1, 2, Action(PENDING, 1))}, {0: "why"})
    assert next_batches(state, [], 8, begin=True) == []
    state = state_of({0: slot_in(0, MIGRATING, FORWARD), 1: slot_in(1, PENDING, FORWARD)}, {0: "why"})
    (batch,) = next_batches(state, [], 8, begin=True)
    assert batch.slots == (1,)
