"""The operations on groups, servers and slots."""

import re
from dataclasses import replace

import pytest

from slots.slot import Action, Slot, SlotStateError
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom import errors
from topom.cluster import topology
from topom.cluster.topology import Move


def table_with(**servers: str) -> SlotTable:
    """Groups g1, g2, ... of these servers (comma-separated), 8 offline slots."""
    table = SlotTable.empty(8)
    for epoch, (name, addresses) in enumerate(servers.items(), 1):
        table = topology.add_group(table, epoch, int(name[1:]), [a for a in addresses.split(",") if a])
    return table


@pytest.fixture
def table() -> SlotTable:
    """Group 1 owns slot 0 to 3, group 2 has a server, group 3 has none; slots 4 to 7 are offline."""
    made = table_with(g1="a:1,b:1", g2="c:1", g3="")
    return topology.assign(made, made.epoch + 1, range(4), 1)


def moving(table: SlotTable, slot: int, state: SlotState, target: int = 2) -> SlotTable:
    return table.changed(table.epoch + 1, [Slot(slot, table.slots[slot].group_id, Action(state, target))])


@pytest.mark.parametrize("address", ["h:1", "127.0.0.1:65535", "[::1]:6379", "a-b.example:80"])
def test_addresses(address: str) -> None:
    host, port = topology.parse_address(address)
    assert host.strip("[]") in address
    assert address.endswith(f":{port}")


@pytest.mark.parametrize(
    "address", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "::1:6379", "a b:1", "http://h:1", "h:01"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(errors.InvalidAddress):
        topology.parse_address(address)


@pytest.mark.parametrize("master", ["127.0.0.1:1", "127.1:1", "[::1]:1", "localhost:1", "LOCALHOST.:1"])
def test_a_master_by_a_loopback_address_has_no_replicas_elsewhere(table: SlotTable, master: str) -> None:
    """They would take it for a server on their own machine, or follow themselves."""
    for servers in ([master, "127.0.0.1:7", "localhost:7", "[::1]:7"], ["10.0.0.1:1", "redis-2:1", "127.0.0.1:7"]):
        topology.add_group(table, 9, 4, servers)
    for other in ("10.0.0.2:1", "redis-2:1", "[fd00::1]:1"):
        with pytest.raises(errors.InvalidAddress, match=f"would lead {re.escape(other)} to its own machine"):
            topology.add_group(table, 9, 4, [master, other])


def test_group_ids_are_checked(table: SlotTable) -> None:
    with pytest.raises(errors.GroupExists):
        topology.add_group(table, 9, 1)
    for wrong in (0, -1, 10_000):
        with pytest.raises(errors.InvalidGroup):
            topology.add_group(table, 9, wrong)


def test_a_server_belongs_to_one_group(table: SlotTable) -> None:
    for group_id in (1, 2):
        with pytest.raises(errors.ServerInUse, match="group 1"):
            topology.add_server(table, 9, group_id, "b:1")
    with pytest.raises(errors.ServerInUse):
        topology.add_group(table, 9, 4, ["x:1", "x:1"])


def test_a_replica_promoted(table: SlotTable) -> None:
    new = topology.promote(table, 9, 1, "b:1")
    assert new.groups[1].servers == ("b:1", "a:1")
    assert new.epoch == 9
    assert topology.promote(new, 10, 1, "b:1") is new
    with pytest.raises(errors.ServerNotFound):
        topology.promote(table, 9, 1, "c:1")


def begun(table: SlotTable, epoch: int) -> SlotTable:
    """Slots 0 and 1 on their way from group 1 to group 2."""
    pending = topology.move(table, epoch - 1, [0, 1], 2)
    return topology.begin(pending, epoch, [0, 1], source_run_id="s", target_run_id="t")


def action_of(table: SlotTable) -> Action:
    action = table.slots[0].action
    assert action is not None
    assert action == table.slots[1].action
    return action


def test_by_action_no_two_actions_of_a_slot_have_the_same_epoch(table: SlotTable) -> None:
    """given a slot that sets out, is turned round and sets out again, then each time it has an epoch of its own."""
    first = begun(table, 20)
    assert action_of(first) == Action(SlotState.PREPARING, 2, epoch=20, source_run_id="s", target_run_id="t")
    locked = topology.advance(first, 21, [0, 1], SlotState.PREPARING, SlotState.PREPARED)
    migrating = topology.advance(locked, 22, [0, 1], SlotState.PREPARED, SlotState.MIGRATING)
    assert action_of(migrating).epoch == 20, "it is the same action all the way"
    cancelled = migrating.changed(
        23, [replace(slot, action=replace(action_of(migrating), course=Course.TURNING)) for slot in migrating.slots[:2]]
    )
    turned = topology.turn(cancelled, 24, [0, 1])
    back = turned.slots[0].action
    assert back == Action(SlotState.PREPARED, 1, Course.BACK, epoch=24, source_run_id="t", target_run_id="s")
    again = topology.unlock(turned, 25, [0, 1]).slots[0].action
    assert again == replace(action_of(cancelled), epoch=25)


def test_by_action_what_has_not_moved_begins_anew_without_what_it_began_with(table: SlotTable) -> None:
    pending = topology.begin_anew(begun(table, 20), 21, [0, 1], SlotState.PREPARING)
    assert pending.slots[0].action == Action(SlotState.PENDING, 2)


@pytest.mark.parametrize(("group_id", "run_ids"), [(1, ("", "t")), (2, ("s", ""))])
def test_by_action_another_master_at_either_end_is_another_action(
    table: SlotTable, group_id: int, run_ids: tuple[str, str]
) -> None:
    """when a master is replaced and comes back, then nothing that was learned before its loss counts again."""
    table = topology.add_server(begun(table, 20), 21, 2, "d:1")
    first, second = table.groups[group_id].servers
    other = topology.promote(table, 22, group_id, second)
    assert action_of(other).epoch == 22
    assert (action_of(other).source_run_id, action_of(other).target_run_id) == run_ids
    back = topology.promote(other, 23, group_id, first)
    assert back.master_of(group_id) == first
    assert action_of(back) == replace(action_of(other), epoch=23)
    at_rest = topology.promote(topology.add_server(table, 22, 3, "e:1"), 24, group_id, second)
    assert at_rest.slots[2:] == table.slots[2:]


def test_server_added_and_removed(table: SlotTable) -> None:
    new = topology.add_server(table, 9, 3, "d:1")
    assert new.groups[3].master == "d:1"
    assert new.epoch == 9
    assert topology.remove_server(new, 10, 3, "d:1").groups[3].servers == ()
    assert topology.remove_server(table, 9, 1, "b:1").groups[1].servers == ("a:1",)
    with pytest.raises(errors.ServerNotFound, match="a:1, b:1"):
        topology.remove_server(table, 9, 1, "z:1")
    with pytest.raises(errors.GroupNotFound):
        topology.add_server(table, 9, 7, "d:1")


def test_nodes_of_servers(table: SlotTable) -> None:
    new = topology.add_group(table, 10, 4, ["h1:1", "[::1]:2"])
    new = topology.add_server(new, 11, 4, "h3:1", "rome", "n3")
    group = new.groups[4]
    assert [group.node_of(server) for server in group.servers] == ["h1", "::1", "n3"]
    new = topology.set_place(new, 12, 4, "h1:1", "oslo", "n1")
    assert (new.groups[4].node_of("h1:1"), new.groups[4].datacenter_of("h1:1")) == ("n1", "oslo")
    assert topology.set_place(new, 13, 4, "h1:1", None, "n1") is new
    new = topology.set_place(new, 13, 4, "h1:1", None, "")
    assert (new.groups[4].node_of("h1:1"), new.groups[4].datacenter_of("h1:1")) == ("h1", "oslo")
    assert topology.remove_server(new, 14, 4, "h3:1").groups[4].nodes == {}
    with pytest.raises(errors.InvalidNode):
        topology.add_server(new, 14, 4, "h5:1", "", "no name")


def test_datacenters_of_servers(table: SlotTable) -> None:
    new = topology.add_group(table, 9, 4, ["x:1", "y:1"], "paris")
    new = topology.add_server(new, 10, 4, "z:1", "rome")
    assert new.groups[4].datacenters == {"x:1": "paris", "y:1": "paris", "z:1": "rome"}
    new = topology.set_datacenter(new, 11, 4, "y:1", "oslo-2")
    assert new.groups[4].datacenters == {"x:1": "paris", "y:1": "oslo-2", "z:1": "rome"}
    assert topology.set_datacenter(new, 12, 4, "y:1", "oslo-2") is new
    new = topology.set_datacenter(new, 12, 4, "y:1", "")
    assert new.groups[4].datacenters == {"x:1": "paris", "z:1": "rome"}
    new = topology.remove_server(new, 13, 4, "z:1")
    assert new.groups[4].datacenters == {"x:1": "paris"}
    assert new.groups[4].servers == ("x:1", "y:1")
    assert topology.add_server(new, 14, 4, "z:1").groups[4].datacenter_of("z:1") == ""
    with pytest.raises(errors.ServerNotFound):
        topology.set_datacenter(new, 14, 4, "z:1", "rome")
    with pytest.raises(errors.GroupNotFound):
        topology.set_datacenter(new, 14, 7, "z:1", "rome")


@pytest.mark.parametrize("name", ["a b", "paris!", "x" * 65, "\n", "é"])
def test_what_is_no_name_of_a_datacenter(table: SlotTable, name: str) -> None:
    for change in (
        lambda: topology.add_group(table, 9, 4, ["x:1"], name),
        lambda: topology.add_server(table, 9, 3, "x:1", name),
        lambda: topology.set_datacenter(table, 9, 1, "b:1", name),
    ):
        with pytest.raises(errors.InvalidDatacenter, match="letters"):
            change()


def test_a_master_with_replicas_stays(table: SlotTable) -> None:
    """By the table, the first of them would be the master, but it would take no writes."""
    new = topology.add_group(table, 9, 4, ["x:1", "y:1", "z:1"])
    with pytest.raises(errors.ServerInUse, match=r"y:1, z:1 follow it.*slotferry server drain x:1"):
        topology.remove_server(new, 10, 4, "x:1")
    for epoch, server in enumerate(("y:1", "z:1", "x:1"), start=10):
        new = topology.remove_server(new, epoch, 4, server)
    assert new.groups[4].servers == ()


def test_a_master_in_use_stays(table: SlotTable) -> None:
    with pytest.raises(errors.ServerInUse, match=r"0-3 need.*slotferry server drain a:1"):
        topology.remove_server(table, 9, 1, "a:1")
    with pytest.raises(errors.ServerInUse, match="slot 0 "):
        topology.remove_server(moving(table, 0, SlotState.PENDING), 9, 2, "c:1")


def test_a_group_that_is_not_there_is_refused_with_those_that_are(table: SlotTable) -> None:
    with pytest.raises(errors.GroupNotFound, match=r"no group 99; there are 1-3$"):
        topology.group_of(table, 99)
    with pytest.raises(errors.GroupNotFound, match=r"no group 1; add one first$"):
        topology.group_of(SlotTable.empty(16), 1)


def test_a_group_in_use_stays(table: SlotTable) -> None:
    assert 3 not in topology.remove_group(table, 9, 3).groups
    assert 2 not in topology.remove_group(table, 9, 2).groups
    with pytest.raises(errors.GroupInUse, match="0-3"):
        topology.remove_group(table, 9, 1)
    with pytest.raises(errors.GroupInUse):
        topology.remove_group(moving(table, 0, SlotState.PENDING), 9, 2)
    with pytest.raises(errors.GroupNotFound):
        topology.remove_group(table, 9, 9)


def test_assign_takes_offline_slots_only(table: SlotTable) -> None:
    new = topology.assign(table, 9, [4, 5], 2)
    assert topology.changed_slots(table, new) == [4, 5]
    assert topology.assign(table, 9, [0, 1], 1) is table, "they are there already"
    with pytest.raises(errors.SlotsOwned, match="3"):
        topology.assign(table, 9, [3, 4], 2)
    with pytest.raises(errors.GroupEmpty):
        topology.assign(table, 9, [4], 3)
    with pytest.raises(errors.GroupNotFound):
        topology.assign(table, 9, [4], 8)
    with pytest.raises(errors.SlotsOwned):
        topology.assign(moving(table, 0, SlotState.PENDING), 9, [0], 1)


def test_move_puts_slots_on_their_way(table: SlotTable) -> None:
    new = topology.move(table, 9, [0, 3], 2)
    assert topology.changed_slots(table, new) == [0, 3]
    assert new.slots[0].action == Action(SlotState.PENDING, 2)
    assert topology.move(table, 9, [0], 1) is table, "it is there"
    assert topology.move(new, 10, [0], 2) is new, "it is on its way there"
    with pytest.raises(errors.SlotsOffline, match="4"):
        topology.move(table, 9, [3, 4], 2)
    with pytest.raises(errors.GroupEmpty):
        topology.move(table, 9, [0], 3)


def test_a_pending_slot_may_be_called_back_or_sent_elsewhere(table: SlotTable) -> None:
    table = topology.add_server(topology.move(table, 9, [0, 1], 2), 10, 3, "d:1")
    assert topology.move(table, 11, [0], 1).slots[0].action is None
    assert topology.move(table, 11, [0], 3).slots[0].action == Action(SlotState.PENDING, 3)
    assert topology.offline(table, 11, [0]).slots[0] == Slot(0)


@pytest.mark.parametrize("state", [SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED])
def test_a_slot_in_motion_is_left_alone(table: SlotTable, state: SlotState) -> None:
    table = topology.add_server(moving(table, 0, state), 10, 3, "d:1")
    with pytest.raises(errors.SlotsInAction, match="slot 0 "):
        topology.move(table, 11, [0], 1)
    with pytest.raises(errors.SlotsInAction, match="slot 0 "):
        topology.move(table, 11, [0], 3)
    with pytest.raises(errors.SlotsInAction, match="slot 0 "):
        topology.offline(table, 11, [0, 1])
    assert topology.move(table, 11, [0], 2) is table


def test_offline(table: SlotTable) -> None:
    new = topology.offline(table, 9, [0, 4])
    assert new.slots[0] == Slot(0)
    assert topology.changed_slots(table, new) == [0]
    assert topology.offline(table, 9, [4]) is table


def test_moves_of_a_planner(table: SlotTable) -> None:
    new = topology.apply_moves(table, 9, [Move(0, 1, 2), Move(7, 0, 2)])
    assert new.slots[0] == Slot(0, 1, Action(SlotState.PENDING, 2))
    assert new.slots[7] == Slot(7, 0, Action(SlotState.PENDING, 2))
    assert topology.apply_moves(table, 9, []) is table


def test_states_advance_only_from_where_they_are(table: SlotTable) -> None:
    table = topology.move(table, 9, [0, 1], 2)
    table = topology.begin(table, 10, [0, 1])
    with pytest.raises(errors.SlotsInAction):
        topology.begin(table, 11, [0, 1])
    with pytest.raises(errors.SlotsInAction):
        topology.come_to_rest(table, 11, [0])
    with pytest.raises(SlotStateError):
        topology.advance(table, 11, [0, 1], SlotState.PREPARING, SlotState.FINISHED)
    table = topology.advance(table, 11, [0, 1], SlotState.PREPARING, SlotState.PREPARED)
    with pytest.raises(errors.SlotsInAction):
        topology.advance(table, 12, [0, 1], SlotState.PREPARING, SlotState.PREPARED)
    table = topology.advance(table, 12, [0, 1], SlotState.PREPARED, SlotState.FINISHED)
    assert topology.come_to_rest(table, 13, [0, 1]).slots[0] == Slot(0, 2)


def test_slots_to_which_the_same_happens_share_an_action(table: SlotTable) -> None:
    """It is sent and stored once for all of them."""
    locked = topology.advance(begun(table, 20), 21, [0, 1], SlotState.PREPARING, SlotState.PREPARED)
    assert locked.slots[0].action is locked.slots[1].action


def test_unlocking_leaves_other_states_alone(table: SlotTable) -> None:
    table = moving(moving(table, 0, SlotState.PREPARED), 1, SlotState.MIGRATING)
    new = topology.unlock_all(table, 99)
    assert new.slots[0].action == Action(SlotState.PREPARING, 2)
    assert new.slots[1:] == table.slots[1:]
    assert topology.unlock_all(new, 100) is new


def test_ranges_of_slots() -> None:
    assert topology.parse_slots("0-2,5", 8) == [0, 1, 2, 5]
    with pytest.raises(errors.InvalidSlots, match="8"):
        topology.parse_slots("8", 8)


def test_nothing_of_a_locked_group_is_locked_turned_or_removed(table: SlotTable) -> None:
    preparing = moving(moving(table, 0, SlotState.PREPARING), 1, SlotState.MIGRATING)
    turning = replace(preparing.slots[1].action or Action(SlotState.MIGRATING, 2), course=Course.TURNING)
    preparing = preparing.changed(preparing.epoch + 1, [Slot(1, 1, turning)])
    for group_id in (1, 2):
        locked = topology.lock_group(preparing, preparing.epoch + 1, group_id, lost=True)
        with pytest.raises(errors.GroupLocked):
            topology.advance(locked, locked.epoch + 1, [0], SlotState.PREPARING, SlotState.PREPARED)
        with pytest.raises(errors.GroupLocked):
            topology.turn(locked, locked.epoch + 1, [1])
    locked = topology.lock_group(table, table.epoch + 1, 3, lost=True)
    with pytest.raises(errors.GroupLocked):
        topology.remove_group(locked, locked.epoch + 1, 3)
