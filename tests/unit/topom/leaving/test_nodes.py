"""Nodes on their way out: others take the places of their servers, and groups keep as many copies as they had."""

from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.leaving.test_servers import Leave, at_once, departing, until
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, FakeServer, hurry
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster import topology
from topom.cluster.joins import without
from topom.cluster.state import ClusterState, Differs, Joining, Leaving, PoolServer, leaving_servers
from topom.errors import NodeLeaving
from topom.leaving import nodes as leavingnodes
from topom.leaving import servers as leavingservers
from topom.leaving.nodes import NodeNotFound
from topom.masters import choice
from topom.placement import changes, pool
from topom.reasons import Kind, Reason

__all__ = ["at_once", "hurry"]

POOL = {entry.address: entry for entry in (PoolServer("p:1"), PoolServer("q:1", datacenter="rome"), PoolServer("m:9"))}


def state(**more: object) -> ClusterState:
    """Group 1 on nodes m and r, twice; group 2 on node o; group 3 on node m, without slots."""
    groups = [Group(1, ("m:1", "r:1", "r:2")), Group(2, ("o:1", "m:2")), Group(3, ("m:3",))]
    table = SlotTable.empty(16).changed(1, groups=groups).changed(2, [Slot(n, 1 + n % 2) for n in range(16)])
    return replace(ClusterState(2, "w", PRODUCT, table, pool=POOL), **more)  # type: ignore[arg-type]


def test_all_its_servers_leave() -> None:
    listed = leavingnodes.with_node(state(), "m", "old", 1.0)
    (entry,) = listed.leaving.values()
    assert (entry.kind, entry.id, entry.why, entry.copies) == ("node", "m", "old", {"1": 3, "2": 2, "3": 1})
    assert leaving_servers(listed) == {"m:1", "m:2", "m:3"}
    assert leavingnodes.with_node(listed, "m", "", 2.0) is listed
    assert choice.staying(listed, "m:2") is not None
    # When: fewer copies are enough.
    fewer = leavingnodes.with_node(listed, "m", "", 2.0, fewer_copies=True)
    (entry,) = fewer.leaving.values()
    assert (entry.why, entry.since, set(entry.copies.values())) == ("old", 1.0, {1})
    # When: another reason is given, and fewer copies are not enough after all.
    assert (
        leavingnodes.with_node(fewer, "m", "new", 3.0).leaving
        == leavingnodes.with_node(state(), "m", "new", 1.0).leaving
    )
    # A server that was taken in for it meanwhile is not replaced as well.
    taken = leavingnodes.taken(listed, 3, 2, "m:2", "p:1")
    (entry,) = leavingnodes.with_node(taken, "m", "new", 2.0).leaving.values()
    assert (entry.why, entry.copies["2"]) == ("new", 2)
    # When: the node is to stay after all.
    assert leavingnodes.without_node(listed, "m") == state()
    for change in (
        lambda: leavingnodes.with_node(state(), "x", "", 1.0),
        lambda: leavingnodes.without_node(listed, "r"),
    ):
        with pytest.raises(NodeNotFound):
            change()


def test_it_is_gone_with_what_the_pool_has_there() -> None:
    listed = leavingnodes.with_node(state(), "m", "", 1.0)
    assert leavingnodes.without_empty(listed) is listed
    table = topology.promote(listed.table, 3, 1, "r:1")
    for group_id, server in ((1, "m:1"), (2, "m:2"), (3, "m:3")):
        assert leavingnodes.without_empty(replace(listed, table=table)).leaving == listed.leaving
        table = topology.remove_server(table, 3 + group_id, group_id, server)
    gone = leavingservers.without_gone(replace(listed, table=table))
    assert not gone.leaving
    assert sorted(gone.pool) == ["p:1", "q:1"]


def test_how_many_copies_a_group_keeps() -> None:
    listed = leavingnodes.with_node(state(), "m", "", 1.0)
    groups = listed.table.groups
    assert [leavingnodes.copies_needed(listed, groups[id]) for id in (1, 2, 3)] == [3, 2, 1]
    assert leavingnodes.copies_needed(state(), groups[1]) == 1
    assert leavingnodes.staying_copies(listed, groups[1], groups[1].servers) == ["r:1", "r:2"]
    assert leavingnodes.staying_copies(listed, groups[1], ["m:1", "r:2"]) == ["r:2"]
    joins = replace(listed, joining={"r:2": Joining("r:2")})
    assert leavingnodes.staying_copies(joins, groups[1], groups[1].servers) == ["r:1"]


def test_who_is_taken_from_the_pool() -> None:
    listed = leavingnodes.with_node(state(), "m", "", 1.0)
    group = listed.table.groups[2]
    assert leavingnodes.candidates(listed, group, "m:2") == ["p:1", "q:1"]
    roman = replace(group, datacenters={"m:2": "rome"})
    assert leavingnodes.candidates(listed, roman, "m:2") == ["q:1", "p:1"], "in its datacenter"
    # A node that has a copy already, or that leaves, gets none.
    with_p = replace(group, servers=("o:1", "p:7"))
    assert leavingnodes.candidates(listed, with_p, "m:2") == ["q:1"]
    both = leavingnodes.with_node(listed, "q", "", 1.0)
    assert leavingnodes.candidates(both, group, "m:2") == ["p:1"]
    new = leavingnodes.taken(listed, 3, 2, "m:2", "q:1")
    assert new.table.groups[2].servers == ("o:1", "m:2", "q:1")
    assert new.table.groups[2].datacenter_of("q:1") == "rome"
    assert sorted(new.pool) == ["m:9", "p:1"]
    assert new.joining.keys() == {"q:1"}
    with pytest.raises(leavingnodes.NotReady):
        leavingnodes.taken(new, 4, 1, "m:1", "q:1")


def test_what_it_waits_for_is_said_in_few_words() -> None:
    listed = leavingnodes.with_node(state(), "m", "", 1.0)
    (entry,) = listed.leaving.values()
    nothing = Reason(Kind.BUSY, "3 of its servers are in groups", entry.since)
    assert leavingnodes.waits_for(listed, entry, {}) == nothing
    one, three = Reason(Kind.DATA, "one", 5.0, "do"), Reason(Kind.SERVER, "three", 6.0)
    found = leavingnodes.waits_for(listed, entry, {"m:1": one, "m:3": three, "r:1": Reason(Kind.FAULT, "another")})
    assert found == Reason(Kind.DATA, "3 of its servers are in groups (m:1: one; m:3: three)", 5.0, "do")
    assert leavingservers.waits_for(listed, entry) == nothing


# -- by itself ---------------------------------------------------------------------------------------------


async def drain(case: Leave, node: str, fewer_copies: bool = False) -> Leaving:
    """Have a node leave."""
    await case.bench.ledger.change(lambda state, epoch: leavingnodes.with_node(state, node, "", 1.0, fewer_copies))
    (entry,) = case.bench.ledger.state.leaving.values()
    return entry


async def fill(case: Leave, *pool: str) -> None:
    """Have these servers in the pool."""
    entries = {address: PoolServer(address) for address in pool}
    case.servers.all |= {address: FakeServer() for address in pool}
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool=entries))


async def joined(case: Leave, server: str) -> None:
    """A server that was taken in is whole."""
    await until(lambda: server in case.bench.ledger.state.joining)
    case.servers.all[server].follows = case.bench.ledger.table.master_of(1)
    await case.bench.ledger.change(lambda state, epoch: without(state, {server}))


async def test_a_node_leaves_and_the_pool_makes_up_for_it() -> None:
    case = Leave()
    async with departing(case) as departures:
        case.pool.down.add("d:1")
        await fill(case, "d:1", "p:1", "m:9")
        entry = await drain(case, "m")
        await until(lambda: "joins group 1 in its place" in str(departures.waits_for(entry)))
        group = case.bench.ledger.table.groups[1]
        assert group.master in (FIRST, SECOND), "nobody waits with the promotion"
        assert MASTER in group.servers
        await joined(case, "p:1")
        await until(lambda: not case.bench.ledger.state.leaving)
        assert sorted(case.bench.ledger.table.groups[1].servers) == ["p:1", FIRST, SECOND]
        assert sorted(case.bench.ledger.state.pool) == ["d:1"]


async def test_the_only_copy_is_replaced_from_the_pool_and_the_next_topom_goes_on() -> None:
    case = Leave()
    async with departing(case) as departures:
        await case.bench.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, (MASTER,))]))
        entry = await drain(case, "m")
        await until(lambda: "slotferry pool add HOST:PORT" in str(departures.waits_for(entry)))
        await fill(case, "p:1")
        await until(lambda: "p:1" in case.bench.ledger.state.joining)
    case.hang_at = "replica is master"
    async with departing(case):
        await joined(case, "p:1")
        await case.hanging.wait()
    case.hang_at = ""
    async with departing(case):
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == ("p:1",)
        assert case.servers.all["p:1"].data == case.acknowledged > 0


async def test_fewer_copies_are_left_only_by_an_operators_word() -> None:
    case = Leave()
    async with departing(case) as departures:
        entry = await drain(case, "r")
        await until(lambda: "group 1 would have 1 whole copies of 3" in str(departures.waits_for(entry)))
        assert len(case.bench.ledger.table.groups[1].servers) == 3
        await drain(case, "r", fewer_copies=True)
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == (MASTER,)
        assert case.steps == [], "the master was not on it"


async def test_a_group_that_no_slot_needs_holds_nothing_up() -> None:
    case = Leave()
    async with departing(case):
        await drain(case, "o")
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[2].servers == ()


async def test_placement_makes_the_copies_where_it_is_applied_by_itself() -> None:
    case = Leave()
    async with departing(case) as departures:
        await fill(case, "p:1")
        await case.bench.ledger.change(lambda state, epoch: changes.with_auto(state, True))
        entry = await drain(case, "r")
        await until(lambda: "slotferry placement show" in str(departures.waits_for(entry)))
        assert sorted(case.bench.ledger.state.pool) == ["p:1"]


async def test_what_is_no_whole_copy_does_not_count_and_is_made_up_for() -> None:
    """A replica elsewhere that differs, restarted as a master or is dead lets no server go, and holds none up."""
    case = Leave()
    async with departing(case) as departures:
        await case.bench.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, (MASTER, FIRST, "x:1"))]))
        case.servers.all["x:1"] = FakeServer(follows=MASTER)
        await case.bench.ledger.change(lambda state, epoch: replace(state, differing={"x:1": Differs("x:1", 1, 7)}))
        entry = await drain(case, "r", fewer_copies=True)
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == (MASTER, "x:1"), "the master is whole"
        # When: the master is to leave.
        entry = await drain(case, "m", fewer_copies=True)
        await until(lambda: "x:1 differs" in str(departures.waits_for(entry)))
        case.servers.all["x:1"].follows = None
        await case.bench.ledger.change(lambda state, epoch: replace(state, differing={}))
        await until(lambda: "a master itself" in str(departures.waits_for(entry)))
        case.servers.all["x:1"].down = True
        await until(lambda: "no answer" in str(departures.waits_for(entry)))
        assert case.steps == []
        # When: the pool has servers; one of them does not answer, although it may be wiped.
        await fill(case, "d:1", "p:1")
        case.pool.down.add("d:1")
        wiped = PoolServer("d:1", wipe=True)
        await case.bench.ledger.change(lambda state, epoch: replace(state, pool={**state.pool, "d:1": wiped}))
        await joined(case, "p:1")
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == ("p:1", "x:1")
        assert sorted(case.bench.ledger.state.pool) == ["d:1"]


async def test_the_last_live_copy_stays() -> None:
    case = Leave()
    async with departing(case) as departures:
        case.servers.all[MASTER].down = case.servers.all[SECOND].down = True
        case.failed |= {MASTER, SECOND}
        entry = await drain(case, "r", fewer_copies=True)
        await until(lambda: "nobody can be spared: m:1" in str(departures.waits_for(entry)))
        assert case.bench.ledger.table.groups[1].servers == (MASTER, FIRST, SECOND)
        # When: the master is back.
        case.servers.all[MASTER].down = False
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == (MASTER,)


async def test_a_dead_node_leaves_once_its_servers_count_as_failed() -> None:
    case = Leave()
    async with departing(case) as departures:
        case.servers.all[FIRST].down = case.servers.all[SECOND].down = True
        await fill(case, "p:1", "q:1")
        entry = await drain(case, "r")
        for server in ("p:1", "q:1"):
            await joined(case, server)
        await until(lambda: "removed once it counts as failed" in str(departures.waits_for(entry)))
        assert {FIRST, SECOND} < {*case.bench.ledger.table.groups[1].servers}
        case.failed |= {FIRST, SECOND}
        await until(lambda: not case.bench.ledger.state.leaving)
        assert sorted(case.bench.ledger.table.groups[1].servers) == [MASTER, "p:1", "q:1"]


async def test_one_that_joins_and_does_not_answer_is_made_up_for() -> None:
    case = Leave()
    async with departing(case):
        await fill(case, "p:1")
        await drain(case, "r", fewer_copies=False)
        await until(lambda: "p:1" in case.bench.ledger.state.joining)
        case.servers.all["p:1"].down = True
        await fill(case, "q:1", "s:1")
        for server in ("q:1", "s:1"):
            await joined(case, server)
        await until(lambda: not case.bench.ledger.state.leaving)
        assert sorted(case.bench.ledger.table.groups[1].servers) == [MASTER, "p:1", "q:1", "s:1"]


async def test_what_is_not_whole_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leavingnodes, "PATIENCE_SECONDS", 60.0)
    case = Leave()
    async with departing(case) as departures:
        await case.bench.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, (MASTER, "x:1", FIRST))]))
        case.servers.all["x:1"] = FakeServer(follows=MASTER, down=True)
        await fill(case, "p:1")
        await case.bench.ledger.change(lambda state, epoch: leavingnodes.with_node(state, "r", "", 1.0))
        fewer = replace(next(iter(case.bench.ledger.state.leaving.values())), copies={"1": 2})
        await case.bench.ledger.change(lambda state, epoch: replace(state, leaving={fewer.key: fewer}))
        await until(lambda: "is taken in if that lasts" in str(departures.waits_for(fewer)))
        # When: the master is away meanwhile. Then: the time begins anew, as its replicas may have to connect again.
        case.servers.all[MASTER].down = True
        await until(lambda: "nobody can be spared" in str(departures.waits_for(fewer)))
        assert not departures._nodes._short_since
        case.servers.all[MASTER].down = False
        case.servers.all["x:1"].down = False
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == (MASTER, "x:1")
        assert sorted(case.bench.ledger.state.pool) == ["p:1"]


def test_the_pool_gets_nothing_that_would_go_with_its_node() -> None:
    listed = leavingnodes.with_node(state(), "m", "", 1.0)
    with pytest.raises(NodeLeaving, match="slotferry node drain m --cancel"):
        pool.with_server(listed, PoolServer("m:10"))
    assert pool.with_server(listed, PoolServer("m:9")) is listed
    assert "m:10" in pool.with_server(listed, PoolServer("m:10", "n1")).pool
