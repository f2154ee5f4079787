"""Which tables have clients that cache drop everything."""

import pytest

from proxy.commands.tracking.servers import _went_elsewhere
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable

SOURCE, TARGET = 1, 2
AT_REST, ARRIVED = Slot(0, SOURCE), Slot(0, TARGET)
PREPARED, MIGRATING = (
    Slot(0, SOURCE, Action(state, TARGET, epoch=1)) for state in (SlotState.PREPARED, SlotState.MIGRATING)
)
TURNED, GOING_BACK, BACK = (
    Slot(0, TARGET, Action(state, SOURCE, Course.BACK, epoch=2))
    for state in (SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED)
)


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        (AT_REST, PREPARED, False),
        (PREPARED, AT_REST, False),
        (PREPARED, MIGRATING, False),
        (MIGRATING, ARRIVED, False),
        (AT_REST, ARRIVED, True),
        # The source may have come back with older data, of which no server tells.
        (MIGRATING, AT_REST, True),
        (MIGRATING, TURNED, False),
        (TURNED, MIGRATING, False),
        (TURNED, GOING_BACK, True),
        (GOING_BACK, BACK, False),
        (BACK, AT_REST, False),
    ],
)
def test_who_has_a_slot_from_now_on(before: Slot, after: Slot, dropped: bool) -> None:
    groups = {number: Group(number, (f"server-{number}:1",)) for number in (SOURCE, TARGET)}
    tables = [SlotTable(epoch, (slot,), groups) for epoch, slot in enumerate((before, after), 1)]
    assert _went_elsewhere(*tables) is dropped
