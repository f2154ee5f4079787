"""The state as documents: the whole state, only what differs, and what a newer version stored."""

import json
from dataclasses import replace
from typing import Any

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.cluster.states import FULL, whole
from topom.cluster import changed_records, records
from topom.cluster.events import Event
from topom.cluster.placement_run import Kept, Run, Step
from topom.cluster.speed import PairSpeed
from topom.cluster.state import (
    Leaving,
    Lifting,
    Promotion,
)
from topom.reasons import Kind, Reason
from topom.store import Stored, StoreDamaged
from topom.term import features
from topom.term.settings import TopomSettings


def test_documents_hold_everything() -> None:
    assert records.decode(Stored(7, whole(FULL))) == FULL
    assert records.decode(Stored(0, {})) is None


def test_a_change_of_one_group_writes_few_groups() -> None:
    groups = {number: Group(number, (f"a{number}:1", f"b{number}:1")) for number in range(1, 200)}
    state = replace(FULL, table=SlotTable(7, FULL.table.slots, {**groups, **FULL.table.groups}))
    new = replace(state, version=8, table=state.table.changed(8, groups=[Group(70, ("c:1",))], removed_groups=[199]))
    documents = changed_records.differences(state, new)
    assert set(documents) == {"cluster", "groups/0001", "groups/0003"}
    written = {name: value for name, value in documents.items() if value is not None}
    assert records.decode(Stored(8, {**whole(state), **written})) == new
    alone = replace(FULL, table=FULL.table.changed(8, groups=[Group(100)]))
    assert changed_records.differences(alone, replace(FULL, version=9))["groups/0001"] is None


def of_a_newer_version(value: Any, key: str = "") -> Any:
    """Every record with one more field."""
    if isinstance(value, dict):
        # Migration settings and these are not records but values by their names.
        by_name = key in (
            "skipped",
            "moved",
            "slots",
            "promotions",
            "priorities",
            "datacenters",
            "nodes",
            "copies",
            "marked",
            "came",
            "run_ids",
            "capacity",
        )
        return {name: of_a_newer_version(one, name) for name, one in value.items()} | ({} if by_name else {"new": 1})
    return [of_a_newer_version(one, key) for one in value] if isinstance(value, list) else value


def test_what_a_newer_version_stores_is_read_without_what_is_new() -> None:
    state = replace(
        FULL,
        leaving={
            "group/2": Leaving("group", "2", "old", 1.0),
            "node/n1": Leaving("node", "n1", "old", 1.0, {"2": 3}),
        },
        promotions={1: Promotion("b:1", "a:1")},
        speed=PairSpeed(1.0, 2.0),
        skipped={3: Reason(Kind.SERVER, "full", 1.5, "free it")},
        sentinels=("c:1",),
        protection_lifted=Lifting("operator ada", 1.0, 3, 4),
        placement=Kept(True, Run(1.0, "topom", (Step(1, 1, "copy", "n2", "d:1", instead_of=("b:1",)),))),
        events=(Event(1, 1.0, "w", "unheard_of", "something", 4, 5),),
    )
    documents = {name: of_a_newer_version(json.loads(value), name) for name, value in whole(state).items()}
    documents["events/00000000"] = [[*event, "new"] for event in documents["events/00000000"]]
    found = records.decode(Stored(7, {name: json.dumps(value).encode() for name, value in documents.items()}))
    assert found is not None
    assert found.migration_changes == {**state.migration_changes, "new": 1}
    assert replace(found, migration_changes=state.migration_changes) == state
    settings = features.migration(TopomSettings.load(None))
    assert found.migration(settings) == state.migration(settings)
    assert found.migration(settings).keys_per_second == 10


@pytest.mark.parametrize(("name", "value"), [("proxies/00000003", {"id": 3}), ("leaving", ["id"]), ("speed", 1)])
def test_a_record_without_what_it_needs_is_damage(name: str, value: Any) -> None:
    with pytest.raises(StoreDamaged):
        records.decode(Stored(7, {**whole(FULL), name: json.dumps(value).encode()}))


def test_only_what_differs_is_written() -> None:
    moved = FULL.table.changed(8, [Slot(300, 2)])
    new = replace(FULL, version=8, table=moved, proxies={}, fenced=dict(FULL.fenced))
    documents = changed_records.differences(FULL, new)
    assert set(documents) == {"cluster", "slots/0001", "proxies/00000003"}
    assert documents["proxies/00000003"] is None
    stored = whole(FULL)
    for name, value in documents.items():
        if value is None:
            del stored[name]
        else:
            stored[name] = value
    assert records.decode(Stored(8, stored)) == new


@pytest.mark.parametrize("name", ["cluster", "slots/0001", "groups/0000", "migration"])
def test_damage_is_said(name: str) -> None:
    documents = whole(FULL)
    with pytest.raises(StoreDamaged, match="backup"):
        records.decode(Stored(7, {key: value for key, value in documents.items() if key != name}))
    with pytest.raises(StoreDamaged):
        records.decode(Stored(7, {**documents, name: b"{"}))


def test_skipped_slots_are_stored_with_their_reasons() -> None:
    large, wanted = Reason(Kind.DATA, "too large", 1.5, "cut it"), Reason(Kind.PAUSED, "wanted", 2.5)
    skipped = replace(FULL, skipped={3: large, 300: wanted, 4: large})
    documents = changed_records.differences(FULL, skipped)
    assert set(documents) == {"cluster", "skipped"}
    stored = Stored(7, {name: value for name, value in whole(skipped).items() if value is not None})
    found = records.decode(stored)
    assert found is not None
    assert found.skipped == {3: large, 4: large, 300: wanted}
    assert list(json.loads(stored.documents["skipped"])) == ["3-4", "300"], "one reason of thousands is stored once"
    assert "skipped" not in whole(FULL)


def test_users_that_topom_keeps_are_a_document_each_and_keep_what_a_later_version_says_of_them() -> None:
    ada, bob = {"name": "a/d a", "no_password": True, "of_a_later_version": [1]}, {"name": "bob", "no_password": True}
    one = replace(FULL, users={ada["name"]: ada}, users_version=7)
    stored = whole(one)
    assert set(stored) - set(whole(FULL)) == {"users", "users/a/d a"}
    assert records.decode(Stored(7, stored)) == one
    two = replace(one, users={ada["name"]: ada, "bob": bob}, users_version=8)
    assert set(changed_records.differences(one, two)) == {"cluster", "users", "users/bob"}
    none = replace(two, users={}, users_version=9)
    gone = changed_records.differences(two, none)
    assert (gone["users/a/d a"], gone["users/bob"]) == (None, None)
    assert set(gone) == {"cluster", "users", "users/a/d a", "users/bob"}
    left = {name: value for name, value in {**stored, **gone}.items() if value is not None}
    found = records.decode(Stored(9, left))
    assert found is not None
    assert (found.users, found.users_version) == ({}, 9)
    before = records.decode(Stored(7, whole(FULL)))
    assert before is not None
    assert (before.users, before.users_version) == ({}, 0), "an earlier version has not written any"
