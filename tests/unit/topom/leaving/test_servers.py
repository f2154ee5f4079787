"""Servers on their way out: which go at once, which replaces a master, what they wait for, restarts in between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, STEPS, Case, hurry
from tests.unit.topom.topom_fakes import PRODUCT
from topom import periodic
from topom.cluster.state import ClusterState, Differs, Joining, Leaving, leaving_servers
from topom.errors import GroupLocked, GroupNotFound, NodeLeaving, NotReady, ServerNotFound, ServersUnreachable
from topom.leaving import groups as leaving
from topom.leaving import nodes as leavingnodes
from topom.leaving import servers as leavingservers
from topom.leaving.nodes import NodeDepartures
from topom.leaving.servers import ServerDepartures, successor
from topom.masters import promotions
from topom.placement.pool import Pool
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import LastCopy, ServerFailed
from topom.servers.readings import Reading, Replication

__all__ = ["hurry"]

GROUP = Group(1, (MASTER, FIRST, SECOND))
AHEAD = Replication(True, "stream", 1000)


def state(group: Group = GROUP, used: bool = True) -> ClusterState:
    """All slots in this group, or in none; group 2 has one server."""
    table = SlotTable.empty(16).changed(1, groups=[group, Group(2, ("o:1",))])
    if used:
        table = table.changed(2, [Slot(slot.id, 1) for slot in table.slots])
    return ClusterState(2, "w", PRODUCT, table)


def listed(*servers: str) -> ClusterState:
    """The state in which these servers are on the list."""
    entries = [Leaving("server", server, "", 1.0) for server in servers]
    return replace(state(), leaving={entry.key: entry for entry in entries})


def follower(offset: int, **more: object) -> Replication:
    return replace(Replication(False, "stream", offset, ("m", 1), link_up=True), **more)  # type: ignore[arg-type]


def test_a_replica_goes_at_once_and_a_master_is_put_on_the_list() -> None:
    new = leavingservers.with_server(state(), 3, 1, FIRST, "", 1.0)
    assert new.table.groups[1].servers == (MASTER, SECOND)
    assert not new.leaving
    listed = leavingservers.with_server(new, 4, 1, MASTER, "old", 1.0)
    assert listed.table is new.table, "it serves on"
    (entry,) = listed.leaving.values()
    assert (entry.kind, entry.id, entry.why) == ("server", MASTER, "old")
    assert leavingservers.with_server(listed, 5, 1, MASTER, "again", 2.0) is listed
    assert "r:2" in str(listed.table.groups[1].servers)
    reason = Reason(Kind.BUSY, "another server of group 1 has to take over as its master", entry.since)
    assert leavingservers.waits_for(listed, entry) == reason
    # When: there is no other server.
    alone = leavingservers.with_server(listed, 5, 1, SECOND, "", 2.0)
    assert alone.table.groups[1].servers == (MASTER,)
    assert "slotferry server add 1 HOST:PORT" in str(leavingservers.waits_for(alone, entry))
    assert "slotferry group drain 1" in str(leavingservers.waits_for(alone, entry))
    # When: it is to stay after all.
    assert not leavingservers.without_server(alone, 1, MASTER).leaving
    assert leavingservers.without_server(state(), 1, MASTER) == state()


def test_who_cannot_leave() -> None:
    for group_id, server, error in ((9, MASTER, GroupNotFound), (2, MASTER, ServerNotFound)):
        with pytest.raises(error):
            leavingservers.with_server(state(), 3, group_id, server, "", 1.0)
        with pytest.raises(error):
            leavingservers.without_server(state(), group_id, server)
    with pytest.raises(GroupLocked):
        leavingservers.with_server(state(replace(GROUP, locked=True)), 3, 1, FIRST, "", 1.0)


def test_a_server_that_nothing_needs_goes_at_once() -> None:
    new = leavingservers.with_server(state(), 3, 2, "o:1", "", 1.0)
    assert new.table.groups[2].servers == ()
    lone = state(Group(1, (MASTER,)))
    assert leaving_servers(leavingservers.with_server(lone, 3, 1, MASTER, "", 1.0)) == {MASTER}


def test_a_former_master_goes_only_as_a_replica_of_a_group_at_rest() -> None:
    listed = leavingservers.with_server(state(), 3, 1, MASTER, "", 1.0)
    assert leavingservers.removed(listed, 4, MASTER) is listed, "it is the master"
    assert leavingservers.removed(listed, 4, FIRST) is listed, "it is not on the list"
    for locked in (True, False):
        group = Group(1, (FIRST, MASTER, SECOND), locked=locked)
        before = replace(listed, table=listed.table.changed(4, groups=[group]))
        after = leavingservers.removed(before, 5, MASTER)
        assert (after is before) is locked
    assert after.table.groups[1].servers == (FIRST, SECOND)
    assert not after.leaving
    # If an operator removes it or its group by hand, it is off the list as well.
    gone = replace(listed, table=listed.table.changed(4, [Slot(n) for n in range(16)], removed_groups=[1]))
    assert not leavingservers.without_gone(gone).leaving
    assert leavingservers.without_gone(listed) is listed
    both = leaving.with_group(listed, 4, 2, "", 1.0)
    assert leaving_servers(leavingservers.without_gone(both)) == {MASTER}


@pytest.mark.parametrize(
    ("said", "leaving", "chosen"),
    [
        ({FIRST: follower(990), SECOND: follower(995)}, (), SECOND),
        ({FIRST: follower(990), SECOND: follower(995)}, (SECOND,), FIRST),
        ({FIRST: follower(990, link_up=False), SECOND: follower(5)}, (), SECOND),
        ({FIRST: follower(990, stream="other"), SECOND: follower(5)}, (), SECOND),
        ({FIRST: ServerFailed("r:1 is down"), SECOND: follower(5)}, (), SECOND),
        ({FIRST: follower(990), SECOND: AHEAD}, (), FIRST),
    ],
)
def test_who_takes_over(said: dict[str, Replication | ServerFailed], leaving: tuple[str, ...], chosen: str) -> None:
    assert successor(listed(MASTER, *leaving), GROUP, {MASTER: AHEAD, **said}) == chosen


@pytest.mark.parametrize(
    ("said", "leaving", "reason"),
    [
        ({FIRST: follower(1), SECOND: follower(1)}, (FIRST, SECOND), "add a replica"),
        ({FIRST: follower(1, link_up=False), SECOND: ServerFailed("r:2 is down")}, (), "being filled; r:2 is down"),
        ({MASTER: ServerFailed("m:1 is down"), FIRST: follower(1), SECOND: follower(1)}, (), "m:1 is down"),
        ({FIRST: follower(1, stream="differs"), SECOND: follower(1)}, (SECOND,), "r:1 is a replica, but not of m:1"),
    ],
)
def test_nobody_can_take_over(
    said: dict[str, Replication | ServerFailed], leaving: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(NotReady, match=reason):
        successor(listed(MASTER, *leaving), GROUP, {MASTER: AHEAD, **said})


def test_a_replica_that_differs_does_not_take_over() -> None:
    said = {MASTER: AHEAD, FIRST: follower(999), SECOND: follower(5)}
    differs = replace(listed(MASTER), differing={FIRST: Differs(FIRST, 1, 7)})
    assert successor(differs, GROUP, said) == SECOND


# -- by itself ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that wait are looked at again soon."""
    monkeypatch.setattr(leavingservers, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(leavingservers, "LONGEST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(leavingnodes, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(promotions, "LOOK_SECONDS", 0.005)


class FakePool(Pool):
    """Servers that hold nothing, except those that do not answer."""

    def __init__(self) -> None:
        self.down: set[str] = set()

    async def content(self, address: str) -> Reading:
        if address in self.down:
            raise ServersUnreachable(f"{address} does not answer")
        return Reading(Replication(True, "s", 0), "run", 0)


class Leave(Case):
    """A group of three, and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = FakePool()
        self.failed: set[str] = set()
        """Servers that count as failed."""
        self.paused: Reason | None = None


@asynccontextmanager
async def departing(case: Leave) -> AsyncIterator[ServerDepartures]:
    """A topom in which servers leave."""
    async with case.topom() as bench:
        nodes = NodeDepartures(bench.ledger, case.pool)
        departures = ServerDepartures(
            bench.ledger,
            case.promotions,
            case.servers,
            nodes,
            lambda server: server in case.failed,
            lambda: case.paused,
        )
        task = asyncio.create_task(departures.run())
        try:
            yield departures
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


def check(case: Leave) -> None:
    """The master is gone, but nothing that it had acknowledged is."""
    group = case.bench.ledger.table.groups[1]
    assert MASTER not in group.servers
    assert len(group.servers) == 2
    assert not group.locked
    assert case.servers.all[group.servers[0]].follows is None
    assert case.servers.all[group.servers[0]].data == case.acknowledged > 0
    assert case.servers.all[MASTER].follows == group.master


@pytest.fixture
async def case() -> Leave:
    return Leave()


async def test_nothing_leaves_by_itself_while_topom_is_paused(case: Leave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "HELD_SECONDS", 0.01)
    case.paused = Reason(Kind.PAUSED, "switches are changed")
    async with departing(case) as departures:
        await departures.drain(1, MASTER, "old")
        await until(lambda: departures.says == "switches are changed")
        await asyncio.sleep(0.05)
        assert case.bench.ledger.table.groups[1].master == MASTER
        case.paused = None
        await until(lambda: not case.bench.ledger.state.leaving)
        check(case)


async def test_last_copy_a_replica_that_joins_again_was_whole_and_may_be_the_last(case: Leave) -> None:
    async with departing(case) as departures:
        joining = {SECOND: Joining(SECOND, again=True)}
        await case.bench.ledger.change(lambda state, epoch: replace(state, joining=joining))
        case.servers.all[MASTER].down = case.servers.all[FIRST].down = True
        with pytest.raises(LastCopy):
            await departures.drain(1, SECOND, "old")
        assert SECOND in case.bench.ledger.table.groups[1].servers


async def test_a_master_is_replaced_and_removed(case: Leave) -> None:
    async with departing(case) as departures:
        await departures.drain(1, MASTER, "old")
        await until(lambda: not case.bench.ledger.state.leaving)
        check(case)
        assert case.steps == STEPS


@pytest.mark.parametrize("step", STEPS)
async def test_the_next_topom_goes_on(case: Leave, step: str) -> None:
    case.hang_at = step
    async with departing(case) as departures:
        await departures.drain(1, MASTER, "old")
        await case.hanging.wait()
    case.hang_at = ""
    async with departing(case):
        await until(lambda: not case.bench.ledger.state.leaving)
        check(case)


async def test_one_that_is_alone_serves_on_until_a_replica_has_joined(case: Leave) -> None:
    async with departing(case) as departures:
        for server in (FIRST, SECOND):
            await departures.drain(1, server, "")
        await departures.drain(1, MASTER, "old")
        (entry,) = case.bench.ledger.state.leaving.values()
        await until(lambda: "add a replica" in str(departures.waits_for(entry)))
        before = case.acknowledged
        await until(lambda: case.acknowledged > before)
        assert case.steps == []
        # When: one joins, at first without a link, then as a whole copy.
        case.servers.all[SECOND].follows = FIRST
        case.servers.all[FIRST].down = True
        await case.bench.edit(lambda table, epoch: table.changed(epoch, groups=[Group(1, (MASTER, SECOND))]))
        await until(lambda: "no link to its master" in str(departures.waits_for(entry)))
        assert case.steps == []
        case.servers.all[SECOND].follows = MASTER
        await until(lambda: not case.bench.ledger.state.leaving)
        assert case.bench.ledger.table.groups[1].servers == (SECOND,)
        assert case.servers.all[SECOND].data == case.acknowledged


async def test_one_that_is_to_stay_stays(case: Leave) -> None:
    case.hang_at = "lock acknowledged"
    async with departing(case) as departures:
        await departures.drain(1, MASTER, "")
        await case.hanging.wait()
        await departures.keep(1, MASTER)
    case.hang_at = ""
    async with departing(case):
        await case.settled()
        assert sorted(case.bench.ledger.table.groups[1].servers) == sorted((MASTER, FIRST, SECOND))


async def test_an_operator_does_not_lose_the_last_copy_unknowingly(case: Leave) -> None:
    async with departing(case) as departures:
        case.servers.all[MASTER].down = case.servers.all[SECOND].down = True
        with pytest.raises(LastCopy):
            await departures.drain(1, FIRST, "")
        case.servers.all[MASTER].down = False
        assert (await departures.drain(1, FIRST, "")).groups[1].servers == (MASTER, SECOND)


def test_one_that_leaves_with_its_node_stays_only_with_it() -> None:
    listed = leavingnodes.with_node(state(), "r", "", 1.0)
    with pytest.raises(NodeLeaving, match="slotferry node drain r --cancel"):
        leavingservers.without_server(listed, 1, FIRST)
    assert leavingservers.without_server(listed, 1, MASTER) is listed
