"""What is known against replicas, as changes of the state: how long it stays known, and what it prevents."""

from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster.differing import MOST_NAMED, Differing, SlotSum, cleared, found, kept, marked, to_fill, without
from topom.cluster.state import ClusterState, Differs

TABLE = SlotTable(5, tuple(Slot(i, 1) for i in range(16)), {1: Group(1, ("a:1", "b:1", "c:1")), 2: Group(2, ("d:1",))})
STATE = ClusterState(7, "w", PRODUCT, TABLE)
KNOWN = kept(STATE, replace(marked(STATE, Differs("b:1", 1, 3)), version=8))


def with_groups(state: ClusterState, *groups: Group) -> ClusterState:
    return replace(
        state,
        version=state.version + 1,
        table=replace(state.table, epoch=state.version + 1, groups={group.id: group for group in groups}),
    )


def test_slots_are_named_whose_digests_differ_a_few_of_them() -> None:
    sums = {slot: SlotSum(9, slot, slot % 40) for slot in range(100)}
    one = found("b:1", 1, 7, sums, 5.0)
    assert (one.server, one.group, one.keys, one.slots, one.at) == ("b:1", 1, 7, 60, 5.0)
    assert one.named == f"40-{39 + MOST_NAMED}"
    assert found("b:1", 1, 0, {3: SlotSum(9, 4, 4)}, 5.0).slots == 0


def test_the_table_says_who_is_not_to_be_read() -> None:
    assert KNOWN.table.groups[1].unread == {"b:1"}
    assert KNOWN.table.epoch == 8
    assert KNOWN.table.groups[2] is TABLE.groups[2]
    assert kept(KNOWN, replace(KNOWN, version=9)).table is KNOWN.table, "nothing changed"


@pytest.mark.parametrize(
    "groups",
    [
        [Group(1, ("a:1", "c:1"), unread=frozenset({"b:1"}))],
        [Group(1, ("b:1", "a:1"), unread=frozenset({"b:1"}))],
        [Group(1, ("a:1",)), Group(2, ("d:1", "b:1"))],
    ],
)
def test_what_is_known_goes_when_it_is_no_replica_of_its_group_any_more(groups: list[Group]) -> None:
    new = kept(KNOWN, with_groups(KNOWN, *groups))
    assert new.differing == {}
    assert all(group.unread == frozenset() for group in new.table.groups.values())


def test_what_is_known_goes_by_a_check_of_every_key_and_by_no_other() -> None:
    assert cleared(KNOWN, "b:1", whole=False) is KNOWN
    assert cleared(KNOWN, "c:1", whole=True) is KNOWN
    new = kept(KNOWN, replace(cleared(KNOWN, "b:1", whole=True), version=9))
    assert (new.differing, new.table.groups[1].unread, new.table.epoch) == ({}, frozenset(), 9)
    assert without(KNOWN, ["c:1"]).differing == KNOWN.differing


@pytest.mark.parametrize("against", [Differs("a:1", 1, 3), Differs("d:1", 1, 3), Differs("b:1", 7, 3)])
def test_nothing_is_known_but_of_replicas(against: Differs) -> None:
    assert marked(STATE, against) is STATE


def test_who_differs_or_is_filled_is_not_to_be_promoted() -> None:
    state = marked(STATE, found("b:1", 1, 40, {slot: SlotSum(1, 1, 2) for slot in range(0, 40, 2)}, 5.0))
    differing = Differing(lambda: state)
    assert differing.problem("c:1") is None
    assert [entry.server for entry in differing.entries] == ["b:1"]
    assert differing.of("b:1") is state.differing["b:1"]
    problem = differing.problem("b:1") or ""
    assert problem.startswith("b:1 differs from its master in 40 keys, in 20 slots (0,2,4")
    assert ", ...)" in problem
    assert "slotferry digest resync 1" in problem
    state = marked(STATE, found("b:1", 1, 1, {3: SlotSum(1, 1, 2)}, 5.0))
    assert (Differing(lambda: state).problem("b:1") or "").startswith(
        "b:1 differs from its master in 1 key, in 1 slot (3)"
    )
    assert not differing.is_filled("b:1")
    state = to_fill(state, ["b:1"])
    assert differing.is_filled("b:1")
    assert "is being filled anew" in (differing.problem("b:1") or "")
    entry = state.joining["b:1"]
    assert (entry.wipe, entry.anew) == (True, True)
