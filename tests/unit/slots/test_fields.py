"""Each field of a slot table has its type and its bounds, or the table is refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from slots import fields
from slots.group import Group
from slots.slot import Action, Slot, TableError
from slots.states import SlotState
from slots.table import SlotTable

ACTION = Action(SlotState.MIGRATING, 2, epoch=3, source_run_id="a", target_run_id="b")
GROUP = Group(1, ("a:1", "b:2"), {"a:1": "dc"}, True, True, {"a:1": "n"}, frozenset({"b:2"}))
OLDER = SlotTable(5, (Slot(0, 1, ACTION), *(Slot(slot, 1) for slot in range(1, 4))), {1: GROUP, 2: Group(2, ("c:3",))})
NEWER = OLDER.changed(6, [Slot(1, 2), Slot(2, 1, ACTION)], [Group(1, ("d:4",)), Group(3)])
ODD: list[Any] = [
    *(None, True, -1, 0, 1, 2**70, 1.5, float("inf"), float("nan"), "", "x", "\ud800", [], {}, [1], {"a": 1}, [[]]),
    *(["a"], "0-16383", "9" * 5000, [[1, 2]], [None], {"": ""}),
]


def places(wire: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a message."""
    yield path
    items = wire.items() if isinstance(wire, dict) else enumerate(wire) if isinstance(wire, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def changed(wire: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The message with something else at a place."""
    if not path:
        return value
    copy = json.loads(json.dumps(wire))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def require_sound(table: SlotTable) -> None:
    """Every value is of the type that the class says."""
    assert type(table.epoch) is int
    assert 0 <= table.epoch <= fields.LARGEST
    for slot in table.slots:
        action = slot.action or ACTION
        for whole in (slot.group_id, action.target_id, action.epoch, action.min_replicas):
            assert type(whole) is int
            assert whole >= 0
        assert type(action.source_run_id) is type(action.target_run_id) is str
    for group in table.groups.values():
        assert type(group.id) is int
        assert type(group.locked) is type(group.lost) is bool
        for server in (*group.servers, *group.unread, *group.datacenters, *group.nodes):
            host, _, port = server.rpartition(":")
            assert host
            assert 1 <= int(port) <= 65535
        assert all(type(name) is str for name in (*group.datacenters.values(), *group.nodes.values()))


def test_whatever_stands_anywhere_a_table_is_refused_or_sound() -> None:
    whole, changes = (json.loads(json.dumps(wire)) for wire in (OLDER.to_wire(), NEWER.changes_since(OLDER)))
    refused = 0
    for wire, read in ((whole, SlotTable.from_wire), (changes, OLDER.with_changes)):
        for path in places(wire):
            for odd in ODD if path else ():
                try:
                    require_sound(read(changed(wire, path, odd)))
                except TableError:
                    refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("epoch",), [-5, 2**63, True, 1.5, "6", None, float("inf")]),
        (("slots", 0, "ids"), [5, None, ["0"]]),
        (("slots", 0, "group_id"), [-1, 2**31, True, 1.0, "1", float("inf")]),
        (("slots", 0, "action", "target_id"), [-1, 2**31, True, 2.0, "2", float("inf")]),
        (("slots", 0, "action", "epoch"), [-1, 2**63, True, 1.5, "3"]),
        (("slots", 0, "action", "min_replicas"), [-1, 101, True, 1.0, "1"]),
        (("slots", 0, "action", "source_run_id"), [None, ["a"], 5, "a" * 301]),
        (("slots", 0, "action", "target_run_id"), [None, ["b"], 5, "b" * 301]),
        (("groups", 0, "id"), [-1, 2**31, True, 1.0, "1"]),
        (("groups", 0, "servers"), ["a:1", {"a:1": 1}, None, 7]),
        (("groups", 0, "servers", 0), ["", "nonsense", "a b:1", "x:99999999", "a:b", "h" * 400 + ":1", "a:0", None, 1]),
        (("groups", 0, "unread"), ["b:2", {"b:2": 1}, 7, ["nonsense"]]),
        (("groups", 0, "locked"), [1, "yes", None]),
        (("groups", 0, "lost"), [1, "yes", None]),
        (("groups", 0, "datacenters"), [[["a:1", "dc"]], {"a": "dc"}, {"a:1": 1}, "dc"]),
        (("groups", 0, "nodes"), [[["a:1", "n"]], {"a": "n"}, {"a:1": None}, "n"]),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_wrong_field_is_refused_with_a_sentence(path: tuple[Any, ...], values: list[Any]) -> None:
    whole = json.loads(json.dumps(OLDER.to_wire()))
    assert SlotTable.from_wire(whole) == OLDER
    for value in values:
        with pytest.raises(TableError) as refused:
            SlotTable.from_wire(changed(whole, path, value))
        assert len(str(refused.value)) < 1000, "it stays short, however large the table is"


def test_the_largest_numbers_are_taken() -> None:
    largest = OLDER.changed(fields.LARGEST, [Slot(0, 2)], [Group(fields.LARGEST_GROUP_ID, ("[::1]:65535",))])
    assert SlotTable.from_wire(largest.to_wire()) == largest


def test_a_removed_group_is_a_number() -> None:
    changes = NEWER.changes_since(OLDER)
    for value in (["1"], [1.5], [True], [-1], "12", None):
        with pytest.raises(TableError):
            OLDER.with_changes({**changes, "removed_groups": value})
