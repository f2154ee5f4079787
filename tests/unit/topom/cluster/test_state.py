"""What the state says: what leaves, whether slots were ever assigned, and which settings hold."""

from dataclasses import replace

import pytest

from slots.group import Group
from slots.kinds import Kind
from slots.slot import OFFLINE, Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import MIGRATION, PRODUCT
from topom.cluster.state import (
    ClusterState,
    Leaving,
    Pause,
    PoolServer,
    known_servers,
    leaving_groups,
    leaving_nodes,
    leaving_servers,
)

GROUPS = {
    1: Group(1, ("a:1", "b:1"), nodes={"a:1": "n1", "b:1": "n2"}),
    2: Group(2, ("a:2", "c:1"), nodes={"a:2": "n1"}),
}
STATE = ClusterState(
    7, "w", PRODUCT, SlotTable(5, tuple(Slot(i, OFFLINE) for i in range(4)), GROUPS), pool={"p:1": PoolServer("p:1")}
)


def leaving(*entries: tuple[str, str]) -> ClusterState:
    return replace(STATE, leaving={f"{kind}/{id}": Leaving(kind, id, "", 1.0) for kind, id in entries})


def test_servers_leave_by_themselves_or_with_their_nodes() -> None:
    state = leaving(("node", "n1"), ("server", "c:1"), ("group", "2"))
    assert leaving_nodes(state) == {"n1"}
    assert leaving_servers(state) == {"a:1", "a:2", "c:1"}
    assert leaving_groups(state) == {2}
    assert leaving_servers(leaving(("server", "c:1"))) == {"c:1"}
    assert leaving_servers(STATE) == leaving_nodes(STATE) == leaving_groups(STATE) == frozenset()


def test_servers_are_known_of_groups_and_of_the_pool() -> None:
    assert sorted(known_servers(STATE)) == ["a:1", "a:2", "b:1", "c:1", "p:1"]


@pytest.mark.parametrize(
    ("slot", "assigned"),
    [
        (Slot(0, OFFLINE), False),
        (Slot(0, 1), True),
        (Slot(0, OFFLINE, Action(SlotState.PENDING, 1)), True),
        (Slot(0, 1, Action(SlotState.MIGRATING, OFFLINE, Course.FORWARD)), False),
    ],
)
def test_slots_were_assigned_once_any_comes_to_rest_in_a_group_and_for_ever(slot: Slot, assigned: bool) -> None:
    state = replace(STATE, table=replace(STATE.table, slots=(slot, *STATE.table.slots[1:])))
    found = state.with_assigned()
    assert found.assigned is assigned
    assert (found is state) is not assigned
    later = replace(found, table=STATE.table)
    assert later.with_assigned() is later


def test_what_an_operator_set_holds_over_what_is_configured() -> None:
    configured = replace(MIGRATION, keys_per_second=5, paused=False)
    state = replace(STATE, migration_changes={"keys_per_second": 9, "of_a_newer_version": 1})
    assert state.migration(configured) == replace(configured, keys_per_second=9)
    assert STATE.migration(configured) == configured


def test_keys_do_not_move_while_they_are_paused() -> None:
    assert STATE.halt(replace(MIGRATION, paused=False)) is None
    assert STATE.halt(replace(MIGRATION, paused=True)) is not None
    held = replace(STATE, pause=Pause("operator ada", 1.0, "switches are changed")).halt(MIGRATION)
    assert held is not None
    assert held.kind is Kind.PAUSED
    assert "operator ada has paused topom (switches are changed)" in held.what
