"""A small state, and the same state after single changes of its slots."""

from collections.abc import Callable
from dataclasses import replace

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster import topology
from topom.cluster.state import ClusterState, ProxyRecord

PROXY = ProxyRecord(3, "1" * 32, "h:1", "host", 5, 2, "0.1.0")
GROUPS = {1: Group(1, ("a:1", "b:1")), 2: Group(2, ("c:1",))}
STATE = ClusterState(
    version=7, writer="w" * 32, product=PRODUCT, table=SlotTable(5, tuple(Slot(i, 1) for i in range(16)), GROUPS)
)


def with_slots(*slots: Slot) -> ClusterState:
    return replace(STATE, table=topology.with_slots(STATE.table, 6, slots))


def acting(state: SlotState, course: Course = Course.FORWARD, group_id: int = 1, target_id: int = 2) -> ClusterState:
    return with_slots(*(Slot(i, group_id, Action(state, target_id, course)) for i in (4, 5, 9)))


def edited(change: Callable[[SlotTable, int], SlotTable]) -> ClusterState:
    return replace(STATE, table=change(STATE.table, 6))
