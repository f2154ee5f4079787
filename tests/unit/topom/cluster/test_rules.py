"""What is true for every state that is stored, no matter which part of topom writes it."""

from dataclasses import replace
from typing import Any

import pytest

from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.leaving.test_nodes import state as three_nodes
from tests.unit.topom.migration.test_foreignkeys import GROUPS, table
from tests.unit.topom.topom_fakes import PRODUCT, Bench
from topom.cluster import rules, topology
from topom.cluster.state import ClusterState, Leaving, PoolServer
from topom.errors import GroupLeaving, InPool, NodeLeaving, OldKeysLeft, SweepUnderWay, TopomError
from topom.leaving import nodes as leavingnodes
from topom.placement import pool

POOL = {"p:1": PoolServer("p:1", "n1")}


def stated(of: SlotTable, **more: object) -> ClusterState:
    return replace(ClusterState(7, "w" * 32, PRODUCT, of), **more)  # type: ignore[arg-type]


def check(state: ClusterState, changed: SlotTable) -> None:
    rules.ruled(state, replace(state, table=changed))


@pytest.mark.parametrize(
    ("known", "change", "refusal"),
    [
        ({"pool": POOL}, lambda table, epoch: topology.add_server(table, epoch, 1, "p:1"), InPool),
        (
            {"leaving": {"node n": Leaving("node", "n", "", 1.0)}},
            lambda table, epoch: topology.add_server(table, epoch, 1, "p:1", node="n"),
            NodeLeaving,
        ),
        (
            {"leaving": {"group 2": Leaving("group", "2", "", 1.0)}},
            lambda table, epoch: topology.assign(table, epoch, [9], 2),
            GroupLeaving,
        ),
        ({"sweeping": {"b:1": "token"}}, lambda table, epoch: topology.assign(table, epoch, [9], 2), SweepUnderWay),
        ({"leftovers": {2: {9: 5}}}, lambda table, epoch: topology.assign(table, epoch, [9], 2), OldKeysLeft),
    ],
)
async def test_every_writer_is_refused(known: dict[str, object], change: Any, refusal: type[TopomError]) -> None:
    one = await Bench().start()
    try:
        for group, server in ((1, "a:1"), (2, "b:1")):
            await one.edit(lambda table, epoch, id=group, at=server: topology.add_group(table, epoch, id, [at]))  # type: ignore[misc]
        await one.ledger.change(lambda state, epoch: replace(state, **known))  # type: ignore[arg-type]
        before = one.ledger.state
        with pytest.raises(refusal):
            await one.edit(change)
        assert one.ledger.state is before
    finally:
        await one.stop()


def test_a_slot_is_not_locked_for_a_server_that_is_swept_and_comes_to_its_end_there() -> None:
    """A slot that was locked before the sweep began goes on: a sweep leaves slots on their way alone."""

    def moving(state: SlotState) -> ClusterState:
        return stated(table(Slot(0, 1, Action(state, 2))), sweeping={"b:1": "token"})

    def moved(state: SlotState) -> SlotTable:
        return replace(moving(state).table)

    check(moving(SlotState.PENDING), moved(SlotState.PREPARING))
    with pytest.raises(SweepUnderWay):
        check(moving(SlotState.PREPARING), moved(SlotState.PREPARED))
    check(moving(SlotState.PREPARED), moved(SlotState.MIGRATING))
    check(moving(SlotState.FINISHED), table(Slot(0, 2)))
    check(moving(SlotState.PREPARED), moved(SlotState.PENDING))


def test_nothing_new_is_put_there() -> None:
    listed = leavingnodes.with_node(three_nodes(), "m", "", 1.0)
    with pytest.raises(NodeLeaving, match="slotferry node drain m --cancel"):
        check(listed, topology.add_server(listed.table, 3, 2, "m:7"))
    with pytest.raises(NodeLeaving):
        check(listed, topology.add_server(listed.table, 3, 2, "x:7", node="m"))
    check(listed, topology.add_server(listed.table, 3, 2, "m:7", node="elsewhere"))
    check(listed, topology.promote(listed.table, 3, 1, "r:1"))
    # When: somebody says that a server is there that is elsewhere. A server that is there may go elsewhere.
    with pytest.raises(NodeLeaving, match="r:1 would be on node m"):
        check(listed, topology.set_place(listed.table, 3, 1, "r:1", None, "m"))
    check(listed, topology.set_place(listed.table, 3, 1, "m:1", None, "r"))
    check(three_nodes(), topology.add_server(listed.table, 3, 2, "m:7"))


def test_a_server_is_in_a_group_or_in_the_pool() -> None:
    state = stated(SlotTable(5, tuple(Slot(i, 1) for i in range(16)), {1: Group(1, ("a:1", "b:1"))}), pool=POOL)
    added = topology.add_server(state.table, 6, 1, "p:1")
    with pytest.raises(InPool, match="slotferry pool remove p:1"):
        check(state, added)
    check(pool.without_server(state, "p:1"), added)
    check(state, topology.add_server(state.table, 6, 1, "c:1"))


def test_data_is_known_as_long_as_slots_leave_it_empty() -> None:
    ids = {1: "one", 2: "two", 3: "three"}
    before = stated(table(Slot(0, 1), Slot(1, 2)), data_ids=ids)

    def after(*slots: Slot, removed: tuple[int, ...] = ()) -> dict[int, str]:
        new = replace(before, table=before.table.changed(6, slots, (), removed))
        return dict(rules.data_is_known_while_slots_leave_it_empty(before, new).data_ids)

    assert after(Slot(0, 1, Action(SlotState.PENDING, 2))) == ids
    assert after(Slot(0, 2)) == ids
    # Its keys are where they were, and the group that gets the slot next has others.
    assert after(Slot(0, OFFLINE)) == {2: "two", 3: "three"}
    # Its former group may still have its keys.
    assert after(Slot(5, 3)) == {3: "three"}
    assert after(removed=(3,)) == {1: "one", 2: "two"}
    assert rules.data_is_known_while_slots_leave_it_empty(before, before) is before


def test_data_is_not_known_of_a_server_that_was_in_no_group() -> None:
    with_replica = replace(table(Slot(0, 1)), groups=GROUPS | {3: Group(3, ("c:1", "d:1"))})
    state = stated(with_replica, data_ids={1: "one", 3: "three"})

    def then(before: ClusterState, *servers: str) -> ClusterState:
        epoch = before.table.epoch + 1
        new = replace(before, table=before.table.changed(epoch, groups=[Group(3, servers)]))
        return rules.data_is_known_while_slots_leave_it_empty(before, new)

    promoted = then(state, "d:1", "c:1")
    assert promoted.data_ids == state.data_ids
    empty = then(promoted)
    assert empty.data_ids == state.data_ids
    # Nobody knows what was written there meanwhile.
    assert then(empty, "d:1").data_ids == {1: "one"}


async def test_bounded_servers_that_left_are_not_remembered_as_unwatched() -> None:
    one = await Bench().start()
    try:
        for number in range(3):
            at = f"a:{number + 1}"
            await one.edit(lambda table, epoch, at=at: topology.add_group(table, epoch, 1, [at]))  # type: ignore[misc]
            assert one.ledger.state.unwatched == {at}
            await one.edit(lambda table, epoch: topology.remove_group(table, epoch, 1))
        assert one.ledger.state.unwatched == frozenset()
        # When: a server goes from one group to another in one write. Then: it came.
        await one.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, ("a:1",)), Group(2, ("b:1",))]))
        await one.ledger.change(lambda state, epoch: replace(state, unwatched=frozenset()))
        await one.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1), Group(2, ("b:1", "a:1"))]))
        assert one.ledger.state.unwatched == {"a:1"}
    finally:
        await one.stop()
