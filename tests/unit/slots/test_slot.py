"""A slot: every change of it, from every state that it may be in, and its way over the wire."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from slots.slot import Action, Slot, SlotStateError, TableError
from slots.states import Course, SlotState

PENDING, COPYING, PREPARING = SlotState.PENDING, SlotState.COPYING, SlotState.PREPARING
PREPARED = SlotState.PREPARED
MIGRATING, FINISHED = SlotState.MIGRATING, SlotState.FINISHED
EPOCH = 9
"""Of the changes. The actions are of epoch 5."""


def moving(state: SlotState, course: Course = Course.FORWARD, epoch: int = 5) -> Slot:
    """A slot of group 1, sent to group 2, from server s to server t."""
    if course is Course.BACK:
        return Slot(7, 2, Action(state, 1, course, 1, epoch, "t", "s"))
    return Slot(7, 1, Action(state, 2, course, 1, epoch, "s", "t"))


def copied(state: SlotState) -> Slot:
    """The same, with a copy."""
    return Slot(7, 1, Action(state, 2, Course.FORWARD, 1, 5, "s", "t", "c"))


def waiting(target_id: int = 2) -> Slot:
    return Slot(7, 1, Action(PENDING, target_id))


OFFLINE, AT_REST, AT_TARGET = Slot(7), Slot(7, 1), Slot(7, 2)
SLOTS = {
    "offline": OFFLINE,
    "offline pending": Slot(7, 0, Action(PENDING, 2)),
    "at rest": AT_REST,
    "pending": waiting(),
    "copying": copied(COPYING),
    "preparing a copy": copied(PREPARING),
    "prepared with a copy": copied(PREPARED),
    "finished by a copy": copied(FINISHED),
    "preparing": moving(PREPARING),
    "prepared": moving(PREPARED),
    "migrating": moving(MIGRATING),
    "finished": moving(FINISHED),
    "turning": moving(MIGRATING, Course.TURNING),
    "prepared back": moving(PREPARED, Course.BACK),
    "migrating back": moving(MIGRATING, Course.BACK),
    "finished back": moving(FINISHED, Course.BACK),
}
"""A slot in each state, with each course that it may have there."""


def met(slot: Slot, **changes: str) -> Slot:
    assert slot.action is not None
    return replace(slot, action=replace(slot.action, epoch=EPOCH, **changes))  # type: ignore[arg-type]


IN_MOTION = [name for name, slot in SLOTS.items() if slot.action is not None and slot.action.state is not PENDING]

CHANGES: dict[str, tuple[Callable[[Slot], Slot], dict[str, Slot]]] = {
    "assign to 1": (
        lambda slot: slot.assign(1),
        {"offline": AT_REST, "offline pending": AT_REST, "at rest": AT_REST},
    ),
    "assign to 2": (lambda slot: slot.assign(2), {"offline": AT_TARGET, "offline pending": AT_TARGET}),
    "take offline": (
        Slot.take_offline,
        dict.fromkeys(("offline", "offline pending", "at rest", "pending"), OFFLINE),
    ),
    "send to 1": (
        lambda slot: slot.send(1),
        {
            "offline": Slot(7, 0, Action(PENDING, 1)),
            "offline pending": Slot(7, 0, Action(PENDING, 1)),
            "at rest": AT_REST,
            "pending": AT_REST,
        },
    ),
    "send to 3": (
        lambda slot: slot.send(3),
        {
            "offline": Slot(7, 0, Action(PENDING, 3)),
            "offline pending": Slot(7, 0, Action(PENDING, 3)),
            "at rest": waiting(3),
            "pending": waiting(3),
        },
    ),
    "begin": (
        lambda slot: slot.begin(5, 1, "s", "t"),
        {
            "pending": moving(PREPARING),
            "offline pending": Slot(7, 0, Action(PREPARING, 2, Course.FORWARD, 1, 5, "s", "t")),
        },
    ),
    "begin with a copy": (
        lambda slot: slot.begin(5, 1, "s", "t", "c"),
        {
            "pending": copied(COPYING),
            "offline pending": Slot(7, 0, Action(COPYING, 2, Course.FORWARD, 1, 5, "s", "t", "c")),
        },
    ),
    "begin anew": (
        Slot.begin_anew,
        dict.fromkeys(("copying", "preparing a copy", "prepared with a copy", "preparing", "prepared"), waiting()),
    ),
    "advance to copying": (lambda slot: slot.advance(COPYING), {}),
    "advance to pending": (lambda slot: slot.advance(PENDING), {}),
    "advance to preparing": (lambda slot: slot.advance(PREPARING), {"copying": copied(PREPARING)}),
    "advance to prepared": (
        lambda slot: slot.advance(PREPARED),
        {"preparing": moving(PREPARED), "preparing a copy": copied(PREPARED)},
    ),
    "advance to migrating": (
        lambda slot: slot.advance(MIGRATING),
        {"prepared": moving(MIGRATING), "prepared back": moving(MIGRATING, Course.BACK)},
    ),
    "advance to finished": (
        lambda slot: slot.advance(FINISHED),
        {
            "prepared": moving(FINISHED),
            "prepared with a copy": copied(FINISHED),
            "migrating": moving(FINISHED),
            "migrating back": moving(FINISHED, Course.BACK),
        },
    ),
    "unlock": (
        lambda slot: slot.unlock(EPOCH),
        {
            "prepared": moving(PREPARING),
            "prepared with a copy": copied(PREPARING),
            "prepared back": moving(MIGRATING, Course.TURNING, EPOCH),
        },
    ),
    "come to rest": (
        Slot.come_to_rest,
        {"finished": AT_TARGET, "finished by a copy": AT_TARGET, "finished back": AT_REST},
    ),
    "cancel": (
        Slot.cancel,
        {
            "offline pending": OFFLINE,
            **dict.fromkeys(("pending", "preparing", "prepared"), AT_REST),
            **dict.fromkeys(("copying", "preparing a copy", "prepared with a copy"), AT_REST),
            "migrating": moving(MIGRATING, Course.TURNING),
        },
    ),
    "turn": (lambda slot: slot.turn(EPOCH), {"turning": moving(PREPARED, Course.BACK, EPOCH)}),
    "another master of 1": (
        lambda slot: slot.with_other_master(1, EPOCH),
        {
            name: met(SLOTS[name], **({"source_run_id": ""} if SLOTS[name].group_id == 1 else {"target_run_id": ""}))
            for name in IN_MOTION
        },
    ),
    "another master of 3": (lambda slot: slot.with_other_master(3, EPOCH), {}),
}
"""The result of each change for the slots that it is allowed for, by their names in :data:`SLOTS`."""


@pytest.mark.parametrize("name", SLOTS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_slot_is_changed_as_its_state_allows(change: str, name: str) -> None:
    make, allowed = CHANGES[change]
    slot = SLOTS[name]
    if name in allowed:
        assert make(slot) == allowed[name]
    else:
        with pytest.raises(SlotStateError, match="slot 7 "):
            make(slot)
    assert slot == SLOTS[name]


def test_the_same_happens_to_another_slot() -> None:
    other = moving(MIGRATING).numbered(8)
    assert (other.id, other.group_id) == (8, 1)
    assert other.action == moving(MIGRATING).action


@pytest.mark.parametrize("state", SlotState)
def test_owner_while_an_action_runs(state: SlotState) -> None:
    slot = Slot(0, 1, Action(state, 2))
    assert slot.owner_id == (2 if state in (SlotState.MIGRATING, SlotState.FINISHED) else 1)


def test_a_slot_at_rest_has_an_empty_action() -> None:
    assert Slot(3, 2).to_wire() == {"id": 3, "group_id": 2, "action": {}}
    assert Slot.from_wire({"id": 3, "group_id": 2}) == Slot(3, 2)
    # As Codis writes it.
    assert Slot.from_wire({"id": 3, "group_id": 2, "action": {"state": "", "target_id": 0}}) == Slot(3, 2)


@pytest.mark.parametrize("value", [-1, 101, True, 1.0, "1", None, [1]])
def test_a_number_of_replicas_that_cannot_be_one_is_refused(value: object) -> None:
    action = Action(SlotState.MIGRATING, 1, min_replicas=100)
    wire = Slot(3, 0, action).to_wire()
    assert Slot.from_wire(wire).action == action
    wire["action"]["min_replicas"] = value
    with pytest.raises(TableError, match="min_replicas"):
        Slot.from_wire(wire)
