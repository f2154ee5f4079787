"""Who owns a slot in which state of its action."""

import pytest

from slots.states import UNTOUCHED, SlotState


@pytest.mark.parametrize("state", SlotState)
def test_the_target_owns_a_slot_as_soon_as_keys_move(state: SlotState) -> None:
    assert state.owned_by_target is (state in (SlotState.MIGRATING, SlotState.FINISHED))
    assert state.owned_by_target is (state not in UNTOUCHED)
