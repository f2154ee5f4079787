"""The pool: a server is in one group or in the pool, never in both, and nothing is lost without permission."""

from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom import errors
from topom.cluster.state import ClusterState, PoolServer
from topom.placement import pool
from topom.servers.readings import Reading, Replication

STATE = ClusterState(
    version=7,
    writer="w" * 32,
    product=PRODUCT,
    table=SlotTable(5, tuple(Slot(i, 1) for i in range(16)), {1: Group(1, ("a:1", "b:1"))}),
    pool={"p:1": PoolServer("p:1", "n1")},
)


def test_a_server_of_a_group_does_not_come_to_the_pool() -> None:
    with pytest.raises(errors.ServerInUse):
        pool.with_server(STATE, PoolServer("b:1"))


def test_what_is_said_of_a_server_of_the_pool_can_be_changed() -> None:
    again = pool.with_server(STATE, PoolServer("p:1", "n2", "rome", wipe=True))
    assert again.pool == {"p:1": PoolServer("p:1", "n2", "rome", wipe=True)}
    assert pool.with_server(STATE, PoolServer("p:1", "n1")) is STATE
    assert PoolServer("[::1]:7").node_name == "::1"
    with pytest.raises(pool.NotInPool):
        pool.without_server(replace(STATE, pool={}), "p:1")


@pytest.mark.parametrize("wrong", [PoolServer("p"), PoolServer("p:1", "a b"), PoolServer("p:1", "", "x/y")])
def test_what_is_no_server(wrong: PoolServer) -> None:
    with pytest.raises(errors.Invalid):
        pool.with_server(STATE, wrong)


def test_what_would_be_lost_is_named() -> None:
    master, replica = Replication(True, "s", 0), Replication(False, "s", 0, ("a", 1))
    assert Reading(master, "run", 0).why_not_wipe("p:1") == ""
    assert "3 keys" in Reading(replica, "run", 3).why_not_wipe("p:1")
    assert "replica of a:1" in Reading(replica, "run", 0).why_not_wipe("p:1")
    assert "2 replicas" in Reading(master, "run", 0, replicas=2).why_not_wipe("p:1")
