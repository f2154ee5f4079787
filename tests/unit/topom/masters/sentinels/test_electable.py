"""Servers that Sentinels are kept from electing, and that get their priority back."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import cast

import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.cluster.states import FULL
from tests.unit.topom.topom_fakes import Bench, MemoryStore
from topom.cluster import topology
from topom.cluster.differing import cleared, marked
from topom.cluster.placement_run import Kept, Run, Step
from topom.cluster.state import ClusterState, Differs, Joining, Leaving, PoolServer
from topom.masters.sentinels import electable
from topom.masters.sentinels.copies import Copies
from topom.masters.sentinels.electable import Priorities, barred
from topom.masters.sentinels.errors import SentinelsRemember, StillElectable
from topom.masters.sentinels.strangers import Strangers
from topom.servers.lastcopy import ServerFailed
from topom.servers.replication import ServerReplication

M, A, B, P, Q = "m:1", "a:1", "b:1", "p:1", "q:1"
COPY = Step(1, 1, "copy", "p", P, state="copying")


def state(group: tuple[str, ...] = (M, A, B)) -> ClusterState:
    empty = replace(FULL, joining={}, pool={}, priorities={}, leaving={}, differing={})
    return replace(empty, table=SlotTable(1, (Slot(0),), {1: Group(1, group)}))


def nobody(server: str) -> bool:
    return False


def test_what_holds_no_whole_copy_is_not_elected() -> None:
    assert barred(state(), nobody, ()) == frozenset()
    assert barred(replace(state(), differing={A: Differs(A, 1, 3)}), nobody, ()) == {A}
    assert barred(replace(state(), joining={B: Joining(B)}), nobody, (Q,)) == {B, Q}


def test_a_copy_is_not_elected_until_it_is_in_its_group() -> None:
    run = Run(1.0, "topom", (COPY, Step(1, 1, "copy", "q", Q)))
    copying = replace(state(), pool={P: PoolServer(P), Q: PoolServer(Q)}, placement=Kept(False, run))
    assert barred(copying, nobody, ()) == {P}
    joined = replace(copying, pool={Q: PoolServer(Q)}, table=SlotTable(2, (Slot(0),), {1: Group(1, (M, A, B, P))}))
    assert barred(joined, nobody, ()) == frozenset()


def test_who_leaves_is_elected_only_if_there_is_nobody_else() -> None:
    leaving = {entry.key: entry for entry in (Leaving("server", A, "old", 1.0), Leaving("node", "m", "old", 1.0))}
    assert barred(replace(state(), leaving=leaving), nobody, ()) == {A}
    assert barred(replace(state((M, A)), leaving=leaving), nobody, ()) == frozenset()
    assert barred(replace(state(), leaving=leaving, differing={B: Differs(B, 1, 3)}), nobody, ()) == {B}
    assert barred(replace(state(), leaving=leaving), lambda server: server == B, ()) == frozenset()


class FakeServers(ServerReplication):
    """Priorities in memory; a server without one does not answer."""

    def __init__(self, **priorities: int) -> None:
        self.priorities = {f"{name}:1": value for name, value in priorities.items()}
        self.refusing: set[str] = set()
        self.kept: list[str] = []

    async def priority(self, address: str) -> int:
        if address not in self.priorities:
            raise ServerFailed(f"{address} does not do what is needed: no answer")
        return self.priorities[address]

    async def set_priority(self, address: str, priority: int) -> None:
        if address in self.refusing:
            raise ServerFailed(f"{address} does not do what is needed: NOPERM")
        self.priorities[address] = priority

    async def keep(self, address: str) -> None:
        self.kept.append(address)


class Case:
    """A topom, and the servers that are not to be elected there."""

    def __init__(self, servers: FakeServers) -> None:
        self.store = MemoryStore()
        self.servers = servers
        self.wanted: Collection[str] = ()

    async def start(self) -> "Case":
        """The first topom, or the next one."""
        self.bench = await Bench(self.store).start()
        self.priorities = Priorities(self.bench.ledger, self.servers, lambda: self.wanted)
        return self

    @property
    def stored(self) -> dict[str, int]:
        return dict(self.bench.ledger.state.priorities)


async def test_a_server_has_the_priority_back_that_it_had() -> None:
    case = await Case(FakeServers(a=30, b=0)).start()
    case.wanted = {A, B}
    await case.priorities.look()
    assert (case.servers.priorities, case.stored) == ({A: 0, B: 0}, {A: 30})
    # The next topom sets it back.
    await case.start()
    case.wanted = ()
    await case.priorities.look()
    # A 0 that somebody else has set stays.
    assert (case.servers.priorities, case.stored) == ({A: 30, B: 0}, {})
    assert case.servers.kept == [A]


async def test_a_restarted_server_is_kept_from_being_elected_again() -> None:
    case = await Case(FakeServers(a=100)).start()
    case.wanted = {A}
    await case.priorities.look()
    case.servers.priorities[A] = 20
    await case.priorities.look()
    assert (case.servers.priorities, case.stored) == ({A: 0}, {A: 20})


async def test_what_is_wanted_again_meanwhile_stays() -> None:
    case = await Case(FakeServers(a=100)).start()
    case.wanted = {A}
    await case.priorities.bar(A)
    case.wanted = ()
    ask = case.servers.priority

    async def priority(address: str) -> int:
        case.wanted = {A}
        return await ask(address)

    case.servers.priority = priority  # type: ignore[method-assign]
    await case.priorities.look()
    assert (case.servers.priorities, case.stored) == ({A: 0}, {A: 100})


async def test_servers_that_do_not_answer_or_refuse() -> None:
    case = await Case(FakeServers(a=100, b=100)).start()
    case.servers.refusing.add(B)
    with pytest.raises(ServerFailed, match="NOPERM"):
        await case.priorities.bar(B)
    case.wanted = {A, B, Q}
    await case.priorities.look()
    assert case.servers.priorities == {A: 0, B: 100}
    case.wanted = ()
    del case.servers.priorities[A]
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool={A: PoolServer(A)}))
    await case.priorities.look()
    assert case.stored == {A: 100}, "one that topom knows is told when it is back"
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool={}))
    await case.priorities.look()
    assert case.stored == {A: 100}, "it may come back, with what its configuration file has"
    case.servers.priorities[A] = 0
    await case.priorities.look()
    assert case.stored == {A: 100}, "nobody knows it: it is not asked again and again"
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool={A: PoolServer(A)}))
    await case.priorities.look()
    assert (case.stored, case.servers.priorities[A]) == ({}, 100)


async def test_priorities_of_servers_that_nobody_knows_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(electable, "MOST_KEPT", 2)
    case = await Case(FakeServers(a=100, b=90)).start()
    await case.bench.ledger.change(lambda state, epoch: replace(state, priorities={"x:1": 1, A: 70, "y:1": 2}))
    await case.bench.ledger.change(lambda state, epoch: replace(state, pool={A: PoolServer(A)}))
    await case.priorities.bar(B)
    assert case.stored == {A: 70, B: 90}


class FakeStrangers:
    """The servers that follow a master without being in its group, and whether these are all."""

    def __init__(self) -> None:
        self.following: frozenset[str] = frozenset()
        self.complete = True
        self.remembered: set[str] = set()

    async def require_forgotten(self, server: str, group_id: int) -> None:
        if server in self.remembered:
            raise SentinelsRemember(f"{server} is counted to another group")


async def copies(servers: FakeServers, strangers: FakeStrangers, active: bool = True) -> tuple[Bench, Copies]:
    bench = await Bench().start()
    return bench, Copies(active, bench.ledger, servers, cast(Strangers, strangers), nobody)


async def test_who_was_kept_from_being_elected_is_not_while_it_is_unknown_who_follows() -> None:
    strangers = FakeStrangers()
    bench, one = await copies(FakeServers(), strangers)
    strangers.complete = False
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, (M, A)))
    await bench.ledger.change(lambda state, epoch: replace(state, priorities={Q: 100, A: 100}))
    assert one.barred() == {Q}, "one that is in a group is not a stranger"
    strangers.complete = True
    assert one.barred() == frozenset()
    strangers.following = frozenset({P})
    assert one.barred() == {P}
    assert (await copies(FakeServers(), strangers, active=False))[1].barred() == frozenset()


async def test_nobody_is_filled_who_might_be_elected_or_taken_elsewhere() -> None:
    servers, strangers = FakeServers(p=100, a=100), FakeStrangers()
    bench, one = await copies(servers, strangers)
    await bench.ledger.change(lambda state, epoch: replace(state, pool={P: PoolServer(P)}))
    strangers.remembered.add(P)
    with pytest.raises(SentinelsRemember):
        await one.prepare(P, 1)
    assert servers.priorities[P] == 100
    strangers.remembered.clear()
    servers.refusing |= {P, A}
    with pytest.raises(StillElectable, match="CONFIG GET and SET"):
        await one.prepare(P, 1)
    # A server that an operator has put into a group already joins it all the same.
    await one.prepare(A, 1)
    servers.refusing.clear()
    await one.prepare(P, 1)
    assert servers.priorities == {P: 0, A: 100}


async def test_it_is_seen_at_once_that_a_replica_differs_and_by_the_next_leader() -> None:
    servers, store = FakeServers(a=100), MemoryStore()
    bench = await Bench(store).start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, (M, A)))
    running: list[asyncio.Task[None]] = []

    async def priority(expected: int) -> None:
        async with asyncio.timeout(20):
            while servers.priorities[A] != expected:
                await asyncio.sleep(0.005)

    async def leads() -> None:
        nonlocal bench
        for task in running:
            task.cancel()
        bench = await Bench(store).start()
        priorities = Priorities(bench.ledger, servers, lambda: barred(bench.ledger.state, nobody, ()))
        running.append(asyncio.create_task(priorities.run()))

    await leads()
    await bench.ledger.change(lambda state, epoch: marked(state, Differs(A, 1, 3)))
    await priority(0)
    servers.priorities[A] = 100  # as after a restart of the server
    await leads()
    await priority(0)
    await bench.ledger.change(lambda state, epoch: cleared(state, A, whole=True))
    await priority(100)
    running[-1].cancel()
