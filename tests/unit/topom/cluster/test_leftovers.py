"""Which groups may have old keys of slots that were copied away, and that these slots do not come back to them."""

from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import SlotState
from tests.unit.topom.cluster.test_rules import stated
from tests.unit.topom.migration.test_foreignkeys import GROUPS, table
from topom.cluster import leftovers, rules
from topom.cluster.state import ClusterState
from topom.errors import OldKeysLeft

COPY = "c0ffee"


def on_its_way(state: SlotState, source: int = 1, target: int = 2, copy: str = COPY) -> Slot:
    return Slot(0, source, Action(state, target, copy=copy))


def then(state: ClusterState, slot: Slot) -> ClusterState:
    """The state that is stored once slot 0 is like this."""
    version = state.version + 1
    return rules.ruled(state, replace(state, table=state.table.changed(version, [slot]), version=version))


def test_the_switch_of_a_copy_leaves_old_keys_at_the_source() -> None:
    locked = stated(table(on_its_way(SlotState.PREPARED)))
    switched = then(locked, on_its_way(SlotState.FINISHED))
    assert switched.leftovers == {1: {0: 8}}
    at_rest = then(switched, Slot(0, 2))
    assert at_rest.leftovers == {1: {0: 8}}
    # The next journey begins while the first group was not swept.
    farther = then(then(at_rest, on_its_way(SlotState.PREPARED, 2, 3)), on_its_way(SlotState.FINISHED, 2, 3))
    assert farther.leftovers == {1: {0: 8}, 2: {0: 11}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (on_its_way(SlotState.COPYING), on_its_way(SlotState.PREPARING)),
        (on_its_way(SlotState.PREPARED), on_its_way(SlotState.PREPARING)),
        (on_its_way(SlotState.COPYING), on_its_way(SlotState.COPYING, target=2)),
        (on_its_way(SlotState.PREPARED, copy=""), Slot(0, 1)),
        (on_its_way(SlotState.FINISHED), Slot(0, 2)),
        # complete: what moves key by key is not left.
        (on_its_way(SlotState.MIGRATING, copy=""), on_its_way(SlotState.FINISHED, copy="")),
        # There is no source.
        (on_its_way(SlotState.PREPARED, OFFLINE, copy=""), on_its_way(SlotState.FINISHED, OFFLINE, copy="")),
    ],
)
def test_nothing_else_does(before: Slot, after: Slot) -> None:
    assert then(stated(table(before)), after).leftovers == {}


@pytest.mark.parametrize("state", [SlotState.COPYING, SlotState.PREPARING, SlotState.PREPARED])
@pytest.mark.parametrize(
    "after", [Slot(0, 1), on_its_way(SlotState.PENDING, copy=""), on_its_way(SlotState.PENDING, target=3, copy="")]
)
def test_hidden_a_copy_that_ends_without_a_switch_leaves_a_part_of_itself_at_the_target(
    state: SlotState, after: Slot
) -> None:
    """Cancelled, skipped, or void. Offline slots could be assigned to the target at once."""
    ended = then(stated(table(on_its_way(state))), after)
    assert ended.leftovers == {2: {0: 8}}
    offline = then(ended, Slot(0, OFFLINE))
    with pytest.raises(OldKeysLeft, match=r"of group 2 may still have old keys of slot 0,"):
        then(offline, Slot(0, 2))
    assert then(offline, Slot(0, 3)).leftovers == {2: {0: 8}}


@pytest.mark.parametrize("since", [Slot(0, 2), Slot(0, OFFLINE)])
@pytest.mark.parametrize(
    "coming",
    [
        Slot(0, 1),
        on_its_way(SlotState.PREPARED, 2, 1, copy=""),
        on_its_way(SlotState.COPYING, 2, 1),
        on_its_way(SlotState.FINISHED, OFFLINE, 1, copy=""),
    ],
)
def test_owned_the_slot_does_not_come_to_old_keys_in_any_way(since: Slot, coming: Slot) -> None:
    state = stated(table(since), leftovers={1: {0: 5}})
    with pytest.raises(OldKeysLeft, match=r"server a:1 of group 1 may still have old keys of slot 0, "):
        then(state, coming)


@pytest.mark.parametrize(
    "going",
    [
        Slot(0, 3),
        Slot(0, OFFLINE),
        on_its_way(SlotState.PENDING, 2, 1, copy=""),
        on_its_way(SlotState.PREPARED, 2, 3),
    ],
)
def test_it_may_go_anywhere_else_and_wait_for_its_way_back(going: Slot) -> None:
    state = stated(table(Slot(0, 2)), leftovers={1: {0: 5}})
    assert then(state, going).leftovers == {1: {0: 5}}


def test_a_sweep_concerns_the_switches_before_it() -> None:
    state = stated(table(Slot(0, 2)), leftovers={1: {0: 5, 3: 6}, 2: {4: 5}})
    assert leftovers.without(state, 1, {0: 5}).leftovers == {1: {3: 6}, 2: {4: 5}}
    assert leftovers.without(state, 1, {0: 5, 3: 6}).leftovers == {2: {4: 5}}
    # A sweep began, the slot came back and left again, and now the sweep ends.
    assert leftovers.without(state, 1, {0: 4}) is state
    assert leftovers.without(state, 3, {0: 5}) is state


def test_a_group_that_is_gone_has_none() -> None:
    state = stated(table(Slot(0, 2)), leftovers={1: {0: 5}, 4: {3: 5}})
    without = replace(state, table=state.table.changed(8, removed_groups=[4]), version=8)
    assert rules.ruled(state, without).leftovers == {1: {0: 5}}


def test_another_master_of_the_group_changes_nothing() -> None:
    """It may have been behind, and have keys that were removed at its predecessor."""
    state = stated(table(Slot(0, 2)), leftovers={1: {0: 5}})
    other = replace(state, table=state.table.changed(8, groups=[Group(1, ("z:1", "a:1"))]), version=8)
    assert rules.ruled(state, other).leftovers == {1: {0: 5}}
    assert GROUPS[1].master == "a:1"
