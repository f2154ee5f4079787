"""Replicas that do not follow their master any more: when they are made to, and when that would lose data."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.copies.test_joining import NEW, OTHER, Joined, Streams, at_once, hurry, until
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND
from tests.unit.topom.topom_fakes import PRODUCT, FakeHandsOff
from topom.cluster import topology
from topom.cluster.state import ClusterState, Joining, Promotion
from topom.copies import strays
from topom.copies.joining import Joins
from topom.copies.strays import Strays, astray, candidates, rejoining
from topom.servers.readings import Reading, Replication, read_replication

__all__ = ["at_once", "hurry"]

AHEAD = Replication(True, "s", 100)
GROUP = Group(1, ("m:1", "r:1", "r:2"))
STATE = ClusterState(2, "w", PRODUCT, SlotTable.empty(16).changed(1, groups=[GROUP]))


@pytest.mark.parametrize(
    ("said", "how"),
    [
        (Replication(True, "t", 5), "says that it is a master"),
        (Replication(False, "s", 5, ("m", 1), True), ""),
        (Replication(False, "s", 5, ("m", 1), False), ""),
        # It follows by another name, or is a replica of a replica; the link may be down.
        (Replication(False, "s", 5, ("alias", 1), True), ""),
        (Replication(False, "s", 5, ("alias", 1), False), ""),
        (Replication(False, "t", 5, ("alias", 1), False, filling=True), ""),
        (Replication(False, "s", 5, ("alias", 1), False, down_seconds=59), ""),
        (Replication(False, "s", 5, ("m", 1), False, down_seconds=999), ""),
        (Replication(False, "s", 5, ("x", 1), False, filling=True, down_seconds=60), ""),
        (Replication(False, "s", 5, ("x", 1), False, down_seconds=60), "has no link to x:1, and that is not m:1"),
        (Replication(False, "t", 5, ("x", 1), True), "follows x:1, not m:1"),
    ],
)
def test_who_is_astray(said: Replication, how: str) -> None:
    assert astray(said, "m:1", AHEAD) == how


def test_what_a_server_says_of_its_former_stream() -> None:
    """given what Redis 7.0.15 says after REPLICAOF NO ONE, and after a restart with an append-only file."""
    own = {"role": "master", "master_replid": "400a3a", "master_repl_offset": 684}
    assert read_replication({**own, "master_replid2": "80bafc", "second_repl_offset": 685}) == Replication(
        True, "400a3a", 684, former="80bafc", former_offset=684
    )
    # redis-py turns the forty zeros into a number.
    assert read_replication({**own, "master_replid2": 0, "second_repl_offset": -1}) == Replication(True, "400a3a", 684)


def test_whose_business_a_server_is() -> None:
    assert candidates(STATE, GROUP) == ["r:1", "r:2"]
    assert candidates(replace(STATE, joining={"r:2": Joining("r:2")}), GROUP) == ["r:1"]
    # A former master follows when the change of masters is over: another part of topom deals with it.
    assert candidates(replace(STATE, promotions={1: Promotion("m:1", "r:1")}), GROUP) == ["r:2"]
    for locked in (replace(GROUP, locked=True), replace(GROUP, locked=True, lost=True)):
        assert candidates(STATE, locked) == []


def test_what_was_changed_meanwhile_is_left_alone() -> None:
    assert rejoining(STATE, "r:1", GROUP).joining == {"r:1": Joining("r:1", again=True)}
    for other in (
        topology.promote(STATE.table, 3, 1, "r:1"),
        topology.promote(STATE.table, 3, 1, "r:2"),
        topology.remove_server(STATE.table, 3, 1, "r:1"),
        topology.lock_group(STATE.table, 3, 1),
        STATE.table.changed(3, removed_groups=[1]),
    ):
        changed = replace(STATE, table=other)
        assert rejoining(changed, "r:1", GROUP) is changed
    joined = replace(STATE, joining={"r:1": Joining("r:1")})
    assert rejoining(joined, "r:1", GROUP) is joined


# -- by itself ---------------------------------------------------------------------------------------------


class Histories(Streams):
    """Servers that say in which stream they were before their own."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = {MASTER: 5, FIRST: 5, SECOND: 5}
        self.former = {FIRST: MASTER}

    async def read(self, address: str) -> Reading:
        found = await super().read(address)
        if not found.replication.is_master or address not in self.former:
            return found
        said = replace(found.replication, former=self.former[address], former_offset=found.replication.offset)
        return replace(found, replication=said)


class Case(Joined):
    """A group of three servers; a test says how much each holds."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: Histories = Histories()
        self.protected = False
        self.hands_off = FakeHandsOff(lambda: "many are lost" if self.protected else "")
        self.looked_at: list[str] = []

    def is_alive(self, server: str) -> bool:
        self.looked_at.append(server)
        return not self.servers.all[server].down

    async def looks(self, number: int = 15) -> None:
        """Return once every server was looked at so often."""
        del self.looked_at[:]
        await until(lambda: self.looked_at.count(MASTER) > number)


@asynccontextmanager
async def looked_after(case: Case, others_decide: bool = False) -> AsyncIterator[tuple[Strays, Joins]]:
    """A topom that makes replicas replicas again."""
    async with case.topom() as bench:
        joins = Joins(bench.ledger, case.servers)
        case.filling.serve(joins)
        one = Strays(bench.ledger, case.servers, case.is_alive, case.hands_off, others_decide)
        task = asyncio.create_task(one.run())
        try:
            yield one, joins
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(Strays, "pause_seconds", 0.0)
    monkeypatch.setattr(strays, "STRAY_SECONDS", 0.02)


@pytest.fixture
async def case() -> Case:
    case = Case()
    case.servers.all["o:1"] = case.servers.all[OTHER]
    return case


async def test_a_replica_that_restarted_as_a_master_is_made_a_replica_again(case: Case) -> None:
    """given its server has no configuration file, as in a container."""
    case.servers.all[FIRST].follows = None
    async with looked_after(case):
        await until(lambda: FIRST in case.waiting)
        text = case.bench.ledger.state.events[-1].text
        assert text == "server r:1 of group 1 says that it is a master; it joins again as a replica of m:1, if it may"
        await until(lambda: case.servers.all[FIRST].follows == MASTER)
        case.servers.filling.clear()
        await until(lambda: not case.waiting)
        assert [event.what for event in case.bench.ledger.state.events][-2:] == ["server_strayed", "server_whole"]
        assert case.servers.all[SECOND].follows == MASTER
        await case.looks()
        assert not case.waiting


async def test_a_replica_of_somebody_else_is_made_one_of_its_master(case: Case) -> None:
    case.servers.all[FIRST].follows = OTHER
    async with looked_after(case):
        await until(lambda: case.servers.all[FIRST].follows == MASTER)


async def test_nothing_is_done_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "STRAY_SECONDS", 60.0)
    case.servers.all[FIRST].follows = None
    async with looked_after(case):
        await case.looks()
        assert not case.waiting


async def test_nothing_is_done_on_what_a_server_said_before(case: Case) -> None:
    case.servers.lately = lambda server, seconds: Replication(True, "other", 5) if server == FIRST else None
    async with looked_after(case):
        await case.looks()
        assert not case.waiting
        assert "server_strayed" not in {event.what for event in case.bench.ledger.state.events}


async def test_what_its_master_may_have_lost_is_kept(case: Case) -> None:
    """given both were restarted, and the master came up without its data."""
    case.servers.keys[MASTER] = 0
    case.servers.all[FIRST].follows = None
    async with looked_after(case) as (_, joins):
        await until(lambda: "may have lost its data. It fills nobody" in str(joins.reasons.get(FIRST)))
        assert case.servers.all[FIRST].follows is None
        # When: an operator has given the master its data back.
        case.servers.keys[MASTER] = 5
        await until(lambda: case.servers.all[FIRST].follows == MASTER)


async def test_what_its_master_may_never_have_had_is_kept(case: Case) -> None:
    """given both were restarted, and neither says anything about the time before."""
    case.servers.former.clear()
    case.servers.all[FIRST].follows = None
    async with looked_after(case) as (_, joins):
        await until(lambda: "nothing shows that it ever had all" in str(joins.reasons.get(FIRST)))
        await case.looks()
        assert case.servers.all[FIRST].follows is None
        # When: an operator has emptied it.
        case.servers.keys[FIRST] = 0
        await until(lambda: case.servers.all[FIRST].follows == MASTER)


async def test_nobody_is_told_in_protection_mode(case: Case) -> None:
    case.protected = True
    case.servers.all[FIRST].follows = None
    async with looked_after(case) as (one, _):
        await until(lambda: "many are lost" in str(one.reasons.get(FIRST)))
        await case.looks()
        assert not case.waiting
        case.protected = False
        await until(lambda: case.servers.all[FIRST].follows == MASTER)
        await until(lambda: not one.reasons)


async def test_where_sentinels_decide_it_is_only_said(case: Case) -> None:
    case.servers.all[FIRST].follows = None
    async with looked_after(case, others_decide=True) as (one, _):
        await until(lambda: "the Sentinels make it a replica of m:1 again" in str(one.reasons.get(FIRST)))
        await case.looks()
        assert not case.waiting
        assert case.servers.all[FIRST].follows is None
        case.servers.all[FIRST].follows = MASTER
        await until(lambda: not one.reasons)


async def test_nobody_is_told_to_follow_a_master_that_is_none(case: Case) -> None:
    case.servers.all[FIRST].follows = None
    case.servers.all[MASTER].follows = OTHER
    async with looked_after(case):
        await case.looks()
        assert not case.waiting
        case.servers.all[MASTER].down = True
        await case.looks()
        assert not case.waiting


async def test_a_master_that_was_replaced_meanwhile_is_not_followed(case: Case) -> None:
    """given a promotion makes the replica a master; each of its steps is looked at."""
    case.hang_at = "replica is master"
    async with looked_after(case):
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        await case.looks()
        assert not case.waiting
        assert case.servers.all[FIRST].follows is None
        promoting.cancel()
    case.hang_at = ""
    async with looked_after(case):
        await until(lambda: case.servers.all[MASTER].follows == FIRST)
        assert case.bench.ledger.table.master_of(1) == FIRST
        assert NEW not in case.waiting
