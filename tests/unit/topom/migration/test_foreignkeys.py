"""Which keys of a server are foreign, and which masters may have such keys."""

import pytest

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.migration.foreignkeys import foreign_to, masters_at_rest

GROUPS = {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",)), 3: Group(3, ("c:1",)), 4: Group(4)}


def table(*slots: Slot) -> SlotTable:
    at_rest = {slot.id: slot for slot in slots}
    return SlotTable(5, tuple(at_rest.get(index, Slot(index)) for index in range(16)), GROUPS)


def moving(state: SlotState, source: int, target: int, course: Course = Course.FORWARD) -> Slot:
    return Slot(0, source, Action(state, target, course))


@pytest.mark.parametrize(
    ("slot", "groups"),
    [
        (Slot(0, 1), {2, 3, 4}),
        # It is not known which group had it.
        (Slot(0, OFFLINE), set()),
        (moving(SlotState.PREPARED, OFFLINE, 1), set()),
        # No server has it.
        (Slot(0, 4), set()),
        (moving(SlotState.PENDING, 1, 2), {2, 3, 4}),
        (moving(SlotState.PREPARING, 1, 2), {2, 3, 4}),
        (moving(SlotState.PREPARED, 1, 2), {3, 4}),
        (moving(SlotState.MIGRATING, 1, 2), {3, 4}),
        (moving(SlotState.MIGRATING, 1, 2, Course.TURNING), {3, 4}),
        (moving(SlotState.PREPARED, 2, 1, Course.BACK), {3, 4}),
        (moving(SlotState.FINISHED, 1, 2), {3, 4}),
    ],
)
def test_whose_keys_are_foreign(slot: Slot, groups: set[int]) -> None:
    assert {group for group in GROUPS if foreign_to(table(slot), group)[0]} == groups


@pytest.mark.parametrize(
    ("slot", "is_foreign"),
    [
        (Slot(0, OFFLINE), True),
        (Slot(0, 2), True),
        (Slot(0, 1), False),
        (moving(SlotState.PENDING, OFFLINE, 1), True),
        (moving(SlotState.PREPARED, OFFLINE, 1), False),
    ],
)
def test_what_a_group_has_left_of_a_slot_is_foreign_also_if_nobody_owns_it(slot: Slot, is_foreign: bool) -> None:
    assert bool(foreign_to(table(slot), 1, {0: 5})[0]) is is_foreign


def test_who_is_looked_at() -> None:
    assert masters_at_rest(table(Slot(0, 1), Slot(1, 1))) == {2: "b:1", 3: "c:1"}
    assert masters_at_rest(table(Slot(0, 1), Slot(1, 2), Slot(2, 4))) == {1: "a:1", 2: "b:1", 3: "c:1"}
    assert masters_at_rest(table(moving(SlotState.PENDING, 1, 2))) == {2: "b:1", 3: "c:1"}
    assert masters_at_rest(table(moving(SlotState.PREPARING, 1, 2))) == {3: "c:1"}
    assert masters_at_rest(table(Slot(0, 1)), {1}) == {1: "a:1", 2: "b:1", 3: "c:1"}
