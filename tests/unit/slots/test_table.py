"""The slot table: its epoch, its reverse indexes, and its way over the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import ranges
from slots.group import Group
from slots.rules import SlotRule
from slots.slot import MOST_REPLICAS, OFFLINE, Action, Slot, TableError
from slots.states import Course, SlotState
from slots.table import SlotTable

GROUP_IDS = range(1, 6)
COMING = st.sampled_from([None, (), (SlotRule("rq:*"),)])
RULES = st.sampled_from([(), (SlotRule("bull:(*):*"),), (SlotRule("*", 5, "queues"), SlotRule("celery*"))])


@st.composite
def groups(draw: st.DrawFn) -> dict[int, Group]:
    """Up to five groups, each with servers of its own, some with none; some servers have a datacenter."""
    found = {}
    for group_id in sorted(draw(st.sets(st.sampled_from(GROUP_IDS)))):
        servers = tuple(f"10.0.0.{group_id}:{port}" for port in range(1, 1 + draw(st.integers(0, 3))))
        names = {server: draw(st.sampled_from(["", "paris", "rome"])) for server in servers}
        found[group_id] = Group(group_id, servers, {server: name for server, name in names.items() if name})
    return found


@st.composite
def tables(draw: st.DrawFn, number_of_slots: int = 16, least_epoch: int = 0) -> SlotTable:
    """Tables in which every slot's owner and target exist."""
    held = draw(groups())
    owners = st.sampled_from([OFFLINE, *held])
    actions = (
        st.one_of(
            st.none(),
            st.builds(
                Action,
                st.sampled_from(SlotState),
                st.sampled_from(sorted(held)),
                st.sampled_from(Course),
                min_replicas=st.integers(0, MOST_REPLICAS),
                epoch=st.integers(0, 2000),
                source_run_id=st.sampled_from(["", "a" * 40, "b" * 40]),
                target_run_id=st.sampled_from(["", "c" * 40]),
            ),
        )
        if held
        else st.none()
    )
    slots = tuple(Slot(i, draw(owners), draw(actions)) for i in range(number_of_slots))
    return SlotTable(
        draw(st.integers(least_epoch, least_epoch + 1000)), slots, held, rules=draw(RULES), coming=draw(COMING)
    )


@st.composite
def two_tables(draw: st.DrawFn) -> tuple[SlotTable, SlotTable]:
    """A table and one of a larger epoch."""
    older = draw(tables())
    return older, draw(tables(least_epoch=older.epoch + 1))


def over_the_wire(wire: dict[str, Any]) -> Any:
    return json.loads(json.dumps(wire))


@given(tables())
def test_whole_table_over_the_wire(table: SlotTable) -> None:
    assert SlotTable.from_wire(over_the_wire(table.to_wire())) == table


@given(two_tables())
def test_changes_over_the_wire(pair: tuple[SlotTable, SlotTable]) -> None:
    older, newer = pair
    changes = over_the_wire(newer.changes_since(older))
    assert older.with_changes(changes) == newer


@given(two_tables())
def test_changes_name_only_what_changed(pair: tuple[SlotTable, SlotTable]) -> None:
    older, newer = pair
    changes = newer.changes_since(older)
    assert {slot for wire in changes["slots"] for slot in ranges.parse(wire["ids"], 16)} == {
        new.id for new, old in zip(newer.slots, older.slots, strict=True) if new != old
    }
    assert all(older.groups.get(wire["id"]) != newer.groups[wire["id"]] for wire in changes["groups"])
    assert set(changes["removed_groups"]) == set(older.groups) - set(newer.groups)
    assert ("rules" in changes) == (newer.rules != older.rules)


@given(two_tables(), st.integers(0, 3000))
def test_changes_against_another_epoch_are_refused(pair: tuple[SlotTable, SlotTable], epoch: int) -> None:
    older, newer = pair
    changes = newer.changes_since(older) | {"since": epoch}
    if epoch != older.epoch:
        with pytest.raises(TableError, match="against epoch"):
            older.with_changes(changes)


@given(tables(), st.integers(0, 3000))
def test_epochs_only_grow(table: SlotTable, epoch: int) -> None:
    # epochs
    if epoch <= table.epoch:
        with pytest.raises(TableError, match="not larger"):
            table.changed(epoch)
        with pytest.raises(TableError, match="not larger"):
            table.with_changes({"since": table.epoch, "epoch": epoch, "slots": [], "groups": [], "removed_groups": []})
    else:
        assert table.changed(epoch).epoch == epoch


@given(tables())
def test_a_change_leaves_the_old_table_as_it_was(table: SlotTable) -> None:
    before = over_the_wire(table.to_wire())
    table.changed(table.epoch + 1, [Slot(3, 9)], [Group(9, ("h:1",))])
    assert table.to_wire() == before


@given(tables())
def test_index_by_group(table: SlotTable) -> None:
    assert set(table.by_group) == set(table.groups)
    for group_id, ids in table.by_group.items():
        assert list(ids) == [slot.id for slot in table.slots if slot.owner_id == group_id]


@given(tables())
def test_index_by_server(table: SlotTable) -> None:
    assert set(table.by_server) == {server for group in table.groups.values() for server in group.servers}
    for server, ids in table.by_server.items():
        owners = {group.id for group in table.groups.values() if server in group.servers}
        assert list(ids) == [slot.id for slot in table.slots if slot.owner_id in owners]


def test_masters() -> None:
    table = SlotTable.empty(4).changed(1, groups=[Group(1, ("a:1", "b:1")), Group(2)])
    assert table.master_of(1) == "a:1"
    assert table.master_of(2) is None
    assert table.master_of(OFFLINE) is None
    assert table.master_of(7) is None


@pytest.mark.parametrize("count", [0, 3, 1000, 16385, 32768])
def test_numbers_of_slots_that_are_not_allowed(count: int) -> None:
    with pytest.raises(TableError, match="power of two"):
        SlotTable.empty(count)


def test_tables_that_do_not_hold_together() -> None:
    with pytest.raises(TableError, match="stands at place"):
        SlotTable(1, (Slot(1), Slot(0)), {})
    with pytest.raises(TableError, match="names group 4"):
        SlotTable(1, (Slot(0, 4),), {})
    with pytest.raises(TableError, match="names group 5"):
        SlotTable(1, (Slot(0, OFFLINE, Action(SlotState.PENDING, 5)),), {})
    with pytest.raises(TableError, match="not within 0-3"):
        SlotTable.empty(4).changed(1, [Slot(4)])
    with pytest.raises(TableError, match="names group 1"):
        SlotTable.empty(4).changed(1, [Slot(0, 1)], [Group(1)]).changed(2, removed_groups=[1])
    with pytest.raises(TableError, match="names group 1"):
        SlotTable.empty(4).changed(1, [Slot(0, 1)], [Group(1)]).changed(2, [Slot(3)], removed_groups=[1])


def test_a_changed_slot_is_looked_at_among_others_that_are_known() -> None:
    table = SlotTable.empty(4).changed(1, [Slot(0, 1), Slot(2, 1)], [Group(1)])
    with pytest.raises(TableError, match="slot 3 names group 4"):
        table.changed(2, [Slot(1, 1), Slot(3, 4)])
    with pytest.raises(TableError, match="slot 2 names group 5"):
        table.changed(2, [Slot(2, 1, Action(SlotState.PENDING, 5))], [Group(2)])


def test_masters_that_have_slots_or_get_some() -> None:
    groups = [Group(1, ("a:1", "b:1")), Group(2, ("c:1",)), Group(3, ("d:1",)), Group(4)]
    table = SlotTable.empty(4).changed(1, [Slot(1, 2, Action(SlotState.PENDING, 1)), Slot(2, 4)], groups)
    assert list(table.used_masters.items()) == [(1, "a:1"), (2, "c:1")]
    assert [slot.id for slot in table.acting] == [1]
    later = table.changed(2, [Slot(0, 3), Slot(1, 2)])
    assert list(later.used_masters.items()) == [(2, "c:1"), (3, "d:1")]
    assert later.acting == ()


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"epoch": 1, "groups": []},
        {"epoch": "new", "slots": [{"ids": "0", "group_id": 0, "action": {}}], "groups": []},
        {"epoch": 1, "slots": None, "groups": []},
        {"epoch": 1, "slots": [7], "groups": []},
        {"epoch": 1, "slots": [{"ids": "0"}], "groups": []},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0, "action": ["pending"]}], "groups": []},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0, "action": {"state": "lost", "target_id": 1}}], "groups": []},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0, "action": {"state": "pending"}}], "groups": []},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0}], "groups": [{"id": 1}]},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0}], "groups": [None]},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0}], "groups": [], "rules": None},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0}], "groups": [], "rules": [{"pattern": "**"}]},
        {"epoch": 1, "slots": [{"ids": "0", "group_id": 0}], "groups": [{"id": 1, "servers": [], "datacenters": [7]}]},
    ],
)
def test_wires_that_are_no_table(wire: dict[str, Any]) -> None:
    with pytest.raises(TableError):
        SlotTable.from_wire(wire)
    with pytest.raises(TableError):
        SlotTable.empty(1).with_changes({"since": 0, "removed_groups": []} | wire)
