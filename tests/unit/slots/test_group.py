"""A group, its way over the wire, and where its servers stand."""

from slots.group import Group


def test_a_group_and_its_datacenters() -> None:
    # As it was written before servers had datacenters.
    assert Group.from_wire({"id": 1, "servers": ["a:1", "b:1"]}) == Group(1, ("a:1", "b:1"))
    assert Group(1, ("a:1",)).to_wire() == {"id": 1, "servers": ["a:1"]}


def test_a_locked_group_on_the_wire() -> None:
    locked = Group(1, ("a:1",), locked=True)
    assert locked.to_wire() == {"id": 1, "servers": ["a:1"], "locked": True}
    assert Group.from_wire(locked.to_wire()) == locked != Group(1, ("a:1",))
    unread = Group(1, ("a:1", "b:1"), unread=frozenset({"b:1"}))
    assert unread.to_wire() == {"id": 1, "servers": ["a:1", "b:1"], "unread": ["b:1"]}
    assert Group.from_wire(unread.to_wire()) == unread != Group(1, ("a:1", "b:1"))
    group = Group(1, ("a:1", "b:1", "c:1"), {"b:1": "rome"})
    assert group.to_wire() == {"id": 1, "servers": ["a:1", "b:1", "c:1"], "datacenters": {"b:1": "rome"}}
    assert group.replicas == ("b:1", "c:1")
    assert [group.datacenter_of(server) for server in group.servers] == ["", "rome", ""]
    placed = Group(1, ("a:1", "b:1"), nodes={"b:1": "n2"})
    assert placed.to_wire() == {"id": 1, "servers": ["a:1", "b:1"], "nodes": {"b:1": "n2"}}
    assert Group.from_wire(placed.to_wire()) == placed
    assert [placed.node_of(server) for server in placed.servers] == ["a", "n2"]
    assert hash(group) == hash(Group(1, group.servers))
