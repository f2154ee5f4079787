"""Which servers follow a new master, and by whose rules they are told."""

from dataclasses import replace
from typing import Any, cast

import pytest

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import PRODUCT, Bench
from topom.cluster.state import ClusterState, Joining, Promotion
from topom.copies.deciding import Verdict, decide
from topom.copies.joining import Joins
from topom.masters.followers import Followers
from topom.servers.lastcopy import As, HoldsKeys, refusal
from topom.servers.readings import Reading, Replication
from topom.servers.replication import ServerReplication


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


def test_a_copy_from_the_former_master_is_not_whole_before_it_follows_the_new_one() -> None:
    """The former master may leave the group, and would fill it no more."""
    whole = Replication(False, "M", 1000, ("f", 1), link_up=True)
    ahead = Reading(Replication(True, "M", 1000), "run m", 10)
    for promotions, verdict in (({}, Verdict.WHOLE), (state_with().promotions, Verdict.TELL)):
        state = replace(state_with(Joining("s:1")), promotions=promotions)
        [copy] = Joins(cast(Any, None), cast(Any, None)).wanted(state)
        assert decide(copy, ahead, Reading(whole, "run s", 5), 0.0).verdict is verdict


@pytest.mark.parametrize(("follows", "over"), [("m", True), ("f", False), ("x", True)])
async def test_a_change_of_masters_is_not_over_while_a_server_that_joins_follows_the_former(
    follows: str, over: bool
) -> None:
    bench = await Bench().start()
    try:
        await bench.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, ("m:1", "f:1", "s:1"))]))
        await bench.ledger.change(lambda state, epoch: replace(state, joining={"s:1": Joining("s:1")}))

        class Servers(ServerReplication):
            async def look(self, address: str) -> Replication:
                host = {"m:1": None, "f:1": ("m", 1), "s:1": (follows, 1)}[address]
                return Replication(host is None, "s", 5, host, host is not None)

            async def keep(self, address: str) -> None:
                pass

        one = Followers(bench.ledger, bench.barrier, Servers(cast(Any, None)))
        assert await one.all_follow(1, Promotion("m:1", "f:1")) is over
    finally:
        await bench.stop()


def test_a_stray_that_was_whole_follows_the_new_master() -> None:
    [_, _, stray] = followers().wanted(state_with(Joining("s:1", again=True)))
    assert (stray.server, stray.told_as, stray.sure) == ("s:1", As.MEMBER, "run m")
