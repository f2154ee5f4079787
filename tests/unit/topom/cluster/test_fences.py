"""Fences of many proxies at many servers stay small, and go once they are up everywhere."""

from dataclasses import replace

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.cluster.states import FULL, whole
from topom.cluster import changed_records, fences, records
from topom.cluster.state import (
    Marked,
    ProxyRecord,
)
from topom.store import Stored


def test_a_thousand_fences_of_a_thousand_groups_are_small() -> None:
    """Well below what etcd takes in one request, 1.5 MB, and what ZooKeeper takes in one node, 1 MB."""
    groups = {
        number: Group(number, (f"10.0.{number % 250}.1:{number}", f"10.1.0.1:{number}")) for number in range(1, 1001)
    }
    servers = [server for group in groups.values() for server in group.servers]
    members = {
        number: ProxyRecord(number, f"{number:032x}", "h:1", "host", 5, 2, "0", stand_down=5.0)
        for number in range(1000)
    }
    before = replace(FULL, table=SlotTable(5, FULL.table.slots, groups), proxies=members, fenced={}, marked={}, came={})
    fenced = fences.added(replace(before, unwatched=frozenset(servers)), members.values())
    # They are not up at one server, so none is forgotten.
    state = fences.set_at(fenced, {server: Marked("f" * 40, fenced.last_fence) for server in servers[1:]})
    documents = {
        name: value
        for name, value in changed_records.differences(before, replace(state, unwatched=frozenset())).items()
        if value
    }
    assert len(state.fenced) == 1000
    assert sum(map(len, (value for name, value in documents.items() if name.startswith("fenced/")))) < 110_000
    assert len(documents["fences"]) < 280_000
    assert sum(map(len, documents.values())) < 400_000
    assert records.decode(Stored(7, whole(state))) == state
    over = fences.set_at(state, {servers[0]: Marked("f" * 40, fenced.last_fence)})
    assert (over.fenced, over.marked, over.came) == ({}, {}, {})
