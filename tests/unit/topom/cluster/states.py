"""A state with at least one of everything, and its documents."""

from slots.group import Group
from slots.messages.message import Product
from slots.rules import SlotRule
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from topom.cluster import changed_records
from topom.cluster.state import (
    ClusterState,
    Differs,
    Fenced,
    Joining,
    LastPlan,
    Marked,
    Noted,
    PoolServer,
    ProxyRecord,
)

FULL = ClusterState(
    version=7,
    writer="w",
    product=Product(name="p", number_of_slots=512, slot_function="crc32", databases=16),
    table=SlotTable(
        5,
        tuple(Slot(i, i % 3, Action(SlotState.MIGRATING, 1) if i % 7 == 0 else None) for i in range(512)),
        {1: Group(1, ("a:1", "b:1"), {"b:1": "paris"}, nodes={"a:1": "n1"}, unread=frozenset({"b:1"})), 2: Group(2)},
        rules=(SlotRule("bull:(*):*"), SlotRule("*", 5, "queues")),
        coming=(SlotRule("rq:*"),),
    ),
    next_proxy_id=4,
    proxies={3: ProxyRecord(3, "1" * 32, "h:1", "host", 5, 2, "0.1.0")},
    fenced={"2" * 32: Fenced("2" * 32, 1, 3, 5.0)},
    last_fence=3,
    marked={"a:1": Marked("process", 3)},
    came={"b:1": 2},
    migration_changes={"paused": True, "keys_per_second": 10},
    joining={"b:1": Joining("b:1", wipe=True)},
    pool={"d:1": PoolServer("d:1", "n2", "rome", wipe=True), "e:1": PoolServer("e:1")},
    offsets={1: Noted("a:1", "5" * 40, 2**50), 63: Noted("h:1", "", 0), 64: Noted("i:1", "s", 7)},
    differing={"b:1": Differs("b:1", 1, 3, 2, "4-5", 9.0)},
    run_ids={"a:1": "1" * 40},
    leftovers={2: {4: 5, 5: 5, 9: 7}},
    moved={4: 5.0, 5: 5.0, 9: 7.5},
    departures={1: {4: 5.0, 5: 5.0, 9: 7.5}, 2: {4: 2.5}},
    offline_since=5.5,
    last_plan=LastPlan("load", "operator ada", 7.0, {1: 2.0, 3: 0.5}),
    priorities={"b:1": 100, "10.0.0.9:6379": 20},
)


def whole(state: ClusterState) -> dict[str, bytes]:
    return {name: value for name, value in changed_records.differences(None, state).items() if value is not None}
