"""Which servers follow a new master, and by whose rules they are told."""

from typing import Any, cast

from slots.table import Group, SlotTable
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster.state import ClusterState, Joining, Promotion
from topom.copies.joining import Joins
from topom.masters.followers import Followers
from topom.servers.lastcopy import As, HoldsKeys, refusal
from topom.servers.readings import Reading, Replication


def state_with(*joining: Joining) -> ClusterState:
    """``f:1`` has failed, and ``m:1`` has its place; ``s:1`` and ``r:1`` are the group's replicas."""
    table = SlotTable.empty(16).changed(1, groups=[Group(1, ("m:1", "f:1", "r:1", "s:1"))])
    return ClusterState(
        2,
        "w",
        PRODUCT,
        table,
        joining={one.address: one for one in joining},
        promotions={1: Promotion("m:1", "f:1", run_id="run m")},
    )


def followers() -> Followers:
    nothing = cast(Any, None)
    return Followers(nothing, nothing, nothing)


def test_last_copy_a_server_that_was_never_whole_in_its_group_is_told_by_the_rules_of_those_that_join() -> None:
    """It may be the only copy of another group; that this group's change of masters is not over says nothing of it."""
    state = state_with(Joining("s:1"))
    assert [copy.server for copy in followers().wanted(state)] == ["f:1", "r:1"]
    [joins] = Joins(cast(Any, None), cast(Any, None)).wanted(state)
    foreign = Replication(False, "X", 77, ("foreign", 1), link_up=False, down_seconds=99)
    ahead = Reading(Replication(True, "M", 1000, former="OLD", former_offset=900), "run m", 10)
    refused = refusal("s:1", Reading(foreign, "run s", 1_000_000), "m:1", ahead, joins.told_as, 64 << 20, joins.sure)
    assert isinstance(refused, HoldsKeys)


def test_a_stray_that_was_whole_follows_the_new_master() -> None:
    [_, _, stray] = followers().wanted(state_with(Joining("s:1", again=True)))
    assert (stray.server, stray.told_as, stray.sure) == ("s:1", As.MEMBER, "run m")
