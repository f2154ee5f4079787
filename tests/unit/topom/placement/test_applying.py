"""A placement that is applied, over fakes: what it waits for, what a restart makes of it, when it begins by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.topom.topom_fakes import Bench, FakeHandsOff, MemoryStore
from topom.cluster import topology
from topom.cluster.placement_run import Step
from topom.cluster.state import PoolServer
from topom.cluster.topology import parse_address
from topom.copies.filling import Filling
from topom.copies.joining import Joins
from topom.copies.telling import Telling
from topom.masters.promotions import Promotions
from topom.placement import applying, changes, stepping
from topom.placement.applying import Placements
from topom.placement.changes import AllInPlace, PlacementRuns
from topom.placement.copying import PlacedCopies
from topom.placement.detaching import Detaching
from topom.placement.planner import Rules
from topom.placement.pool import Pool, with_server
from topom.placement.stepping import Stepping, SteppingSettings
from topom.reasons import Kind, Reason
from topom.servers.detector import Condition, Judgement
from topom.servers.health import Health
from topom.servers.identities import Identities
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.replication import Seen, ServerReplication


@dataclass
class FakeServer:
    """A server, and the server that it follows; ``whole`` once the test says so. A ``deaf`` one cannot be told."""

    follows: str | None = None
    whole: bool = False
    down: bool = False
    deaf: bool = False
    stream: str = "stream"


class FakeServers(ServerReplication):
    """Servers in memory; ``told`` has what they were told."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None))
        self.keys: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self.all: dict[str, FakeServer] = {}
        self.told: list[tuple[str, str | None]] = []

    def know(self, has_failed: Callable[[str], bool]) -> None:
        self._seen = cast(Seen, SimpleNamespace(replication=lambda server, seconds: None, has_failed=has_failed))

    def of(self, address: str) -> FakeServer:
        return self.all.setdefault(address, FakeServer())

    async def _reach(self, address: str) -> FakeServer:
        await asyncio.sleep(0)
        if self.of(address).down:
            raise ServerFailed(f"{address} does not do what is needed: no answer")
        return self.of(address)

    async def look(self, address: str) -> Replication:
        server = await self._reach(address)
        if server.follows is None:
            return Replication(True, server.stream, 100)
        return Replication(False, "stream", 100, parse_address(server.follows), server.whole, not server.whole)

    async def read(self, address: str) -> Reading:
        run_id = f"run {self.restarts.get(address, 0)} of {address}"
        return Reading(await self.look(address), run_id, self.keys.get(address, 0))

    async def follow(
        self, address: str, master: str, told_as: As, sure: str = "", anew: bool = False, decided: str = ""
    ) -> str:
        run_id = await self.require(address, master, told_as, sure)
        server = await self._reach(address)
        if server.deaf:
            raise ServerFailed(f"{address} does not do what is needed: no answer")
        server.follows, server.whole = master, server.whole and not anew
        self.told.append((address, master))
        return run_id

    async def make_master(self, address: str, run_id: str = "") -> None:
        (await self._reach(address)).follows = None
        self.told.append((address, None))

    async def keep(self, address: str) -> None:
        await self._reach(address)


class Case:
    """A topom's placement, looked at by hand."""

    bench: Bench

    def __init__(self, settle_seconds: float = 60.0) -> None:
        self.store = MemoryStore()
        self.servers = FakeServers()
        self.conditions: dict[str, Condition] = {}
        self.held = ""
        self.settle_seconds = settle_seconds

    async def start(self, groups: dict[int, str], pool: str) -> None:
        """A topom, the first or the next one. Groups are servers with commas between them, and so is the pool."""
        if hasattr(self, "bench"):
            # An event that the one before still has to store would be the write of another topom.
            await self.bench.ledger.close()
        bench = self.bench = await Bench(self.store).start()
        if not bench.ledger.table.groups:
            for group_id, servers in groups.items():
                await self._add(group_id, servers.split(","))
            for address in pool.split(","):
                await bench.ledger.change(
                    lambda state, epoch, address=address: with_server(state, PoolServer(address))  # type: ignore[misc]
                )
        health = cast(Health, SimpleNamespace(of=lambda one: Judgement(self.condition(one), 0, 0)))
        self.servers.know(lambda one: self.condition(one) is Condition.FAILED)
        content: Callable[[str], Awaitable[Reading]] = self._content
        hands_off = FakeHandsOff(lambda: self.held)
        self.telling = Telling(bench.ledger, bench.barrier, self.servers, 0.05)
        self.filling = Filling(bench.ledger, self.servers, self.telling)
        self.detaching = Detaching(bench.ledger, bench.barrier, health, self.servers, 0.05)
        self.placed = PlacedCopies(bench.ledger, self.servers, hands_off, self.detaching, 10)
        self.joins = Joins(bench.ledger, self.servers)
        self.filling.serve(self.joins, self.placed)
        self.stepping = Stepping(
            bench.ledger,
            health,
            cast(Promotions, SimpleNamespace(promote=self._promote)),
            self.servers,
            self.filling,
            self.placed,
            self.detaching,
            SteppingSettings(10, 60.0),
        )
        self.placements = Placements(
            bench.ledger,
            health,
            cast(Pool, SimpleNamespace(content=content)),
            hands_off,
            self.stepping,
            Rules(2),
            self.settle_seconds,
        )

    def condition(self, server: str) -> Condition:
        return self.conditions.get(server, Condition.ALIVE)

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            await self.look_at_copies()
            await self.placements._look()
            await self.look_at_copies()

    async def look_at_copies(self) -> None:
        """Let all that the engine of all copies begins come to its end."""
        await self.filling.look()
        await asyncio.gather(*self.filling._tasks.values())

    async def begin(self, *steps: Step) -> None:
        """Have these steps done, no matter what a plan would say."""
        await self.bench.ledger.change(lambda state, epoch: changes.begun(state, steps, "topom", 1.0))

    async def apply(self) -> None:
        await self.placements.apply()
        await self.look()

    def fill(self, *servers: str) -> None:
        for server in servers:
            self.servers.of(server).whole = True

    def states(self) -> dict[str, str]:
        """For each server, how far its step is."""
        run = self.bench.ledger.state.placement.run
        return {step.server: step.state for step in (run.steps if run is not None else ())}

    def groups(self) -> dict[int, list[str]]:
        return {group.id: list(group.servers) for group in self.bench.ledger.table.groups.values()}

    async def _add(self, group_id: int, servers: list[str]) -> None:
        await self.bench.edit(lambda table, epoch: topology.add_group(table, epoch, group_id, servers))
        for server in servers[1:]:
            self.servers.of(server).follows = servers[0]
            self.fill(server)

    async def _content(self, address: str) -> Reading:
        return Reading(Replication(True, "s", 0), "run", self.servers.keys.get(address, 0))

    async def _promote(self, group_id: int, address: str) -> Any:
        self.servers.of(address).follows = None
        return await self.bench.edit(lambda table, epoch: topology.promote(table, epoch, group_id, address))


FOUR = {number: f"a:{number}" for number in range(1, 5)}


async def test_a_node_makes_one_copy_at_a_time_and_none_joins_before_it_is_whole() -> None:
    case = Case()
    await case.start({1: "a:1", 2: "a:2", 3: "c:3"}, "b:7,b:8,d:9")
    await case.begin(
        *(Step(1, group, "copy", server[0], server) for group, server in enumerate(("b:7", "b:8", "d:9"), 1))
    )
    # One copy goes from node a to node b; node c gives one to node d meanwhile.
    await case.look(3)
    assert sorted(case.states().values()) == ["copying", "copying", "waiting"]
    assert case.servers.told == [("b:7", "a:1"), ("d:9", "c:3")]
    assert case.groups() == {1: ["a:1"], 2: ["a:2"], 3: ["c:3"]}
    case.fill("b:7")
    await case.look(2)
    assert case.groups() == {1: ["a:1", "b:7"], 2: ["a:2"], 3: ["c:3"]}
    assert "b:7" not in case.bench.ledger.state.pool
    assert sorted(case.states().values()) == ["copying", "copying", "done"]
    case.fill("b:8", "d:9")
    await case.look(3)
    assert case.bench.ledger.state.placement.run is None
    assert all(len(servers) == 2 for servers in case.groups().values())
    # Each was told once.
    assert len(case.servers.told) == 3
    with pytest.raises(AllInPlace, match="as it should be"):
        await case.placements.apply()


async def test_another_topom_goes_on_where_the_one_before_was() -> None:
    case = Case()
    await case.start({1: "a:1", 2: "a:2"}, "b:7,b:8")
    await case.apply()
    await case.start({}, "")
    # Nothing begins at servers that topom has not looked at. Steps that have begun go on.
    case.conditions = dict.fromkeys(("a:1", "a:2", "b:7", "b:8"), Condition.UNKNOWN)
    case.fill("b:7", "b:8")
    await case.look(2)
    assert case.states() == {"b:7": "done", "b:8": "waiting"}
    case.conditions = {}
    with pytest.raises(PlacementRuns):
        await case.placements.apply()
    await case.look(5)
    assert case.bench.ledger.state.placement.run is None
    assert {len(servers) for servers in case.groups().values()} == {2}
    assert len(case.servers.told) == 2


async def test_nothing_is_done_in_protection_mode() -> None:
    case = Case()
    await case.start(FOUR, "b:7")
    case.held = "many are lost"
    await case.apply()
    await case.look(3)
    assert case.servers.told == []
    assert "many are lost" in str(case.placements.reason)
    case.held = ""
    await case.look()
    assert case.servers.told == [("b:7", "a:1")]


async def test_what_is_cancelled_is_let_go() -> None:
    case = Case()
    await case.start({1: "a:1"}, "b:7")
    await case.apply()
    await case.placements.cancel()
    assert case.servers.told == [("b:7", "a:1"), ("b:7", None)]
    assert case.groups() == {1: ["a:1"]}
    # Its filling had begun, so it does not have to be empty any more.
    assert case.bench.ledger.state.pool["b:7"].wipe
    await case.look(2)
    assert len(case.servers.told) == 2


async def test_a_server_that_has_got_keys_is_not_wiped() -> None:
    case = Case()
    await case.start({1: "a:1"}, "b:7")
    await case.placements.apply()
    case.servers.keys["b:7"] = 3
    await case.look(2)
    assert case.servers.told == []
    assert case.states() in ({"b:7": "dropped"}, {})
    assert "holds 3 keys" in (await case.placements.show()).picture.unusable["b:7"].what


async def test_what_cannot_be_done_is_dropped_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    await case.start({1: "a:1", 2: "a:2"}, "b:7,b:8")
    await case.apply()
    case.servers.of("b:7").down = True
    await case.look(2)
    assert case.states()["b:7"] == "copying"
    monkeypatch.setattr(stepping, "PATIENCE_SECONDS", -1.0)
    await case.look()
    assert case.states()["b:7"] == "dropped"
    case.fill("b:8")
    await case.look(4)
    assert sorted(len(servers) for servers in case.groups().values()) == [1, 2]
    assert case.bench.ledger.state.placement.run is None


async def test_an_old_copy_stays_while_there_are_not_enough_whole_ones() -> None:
    case = Case()
    await case.start({1: "a:1,b:2", 2: "b:3,c:4", 3: "c:5,a:6"}, "a:7,c:8")
    case.conditions["b:2"] = Condition.FAILED
    await case.apply()
    new = case.servers.told[0][0]
    retire = next(server for server in case.states() if server == "b:2")
    await case.look(3)
    assert "b:2" in case.groups()[1]
    case.fill(new)
    await case.look_at_copies()
    # It has joined, and then loses its link again.
    case.servers.of(new).whole = False
    await case.look(2)
    assert case.states()[retire] == "waiting"
    assert "whole copies on 1 of 2 nodes" in str(dict(case.placements.reasons))
    case.fill(new)
    await case.look(2)
    assert case.groups()[1] == ["a:1", new]
    assert case.bench.ledger.state.pool["b:2"].wipe


async def test_an_old_copy_is_not_wiped_while_the_master_of_its_group_lacks_what_it_has() -> None:
    """last-copy: it was away, and its master came up again without its data meanwhile."""
    case = Case()
    await case.start({1: "a:1,b:2", 2: "b:3,c:4"}, "a:7,d:8")
    case.conditions["b:2"] = Condition.FAILED
    await case.begin(Step(1, 1, "retire", "b", "b:2"), Step(2, 2, "copy", "b", "b:2"))
    await case.look()
    assert case.bench.ledger.state.pool["b:2"] == PoolServer("b:2", wipe=True, copy_of=1)
    # When: it comes back as a master, with all that it had.
    case.conditions["b:2"] = Condition.ALIVE
    case.servers.of("b:2").follows, case.servers.of("b:2").stream = None, "own"
    case.servers.keys = {"b:2": 5000, "a:1": 0, "b:3": 9000}
    await case.look()
    assert case.servers.told == []
    assert "an old copy with 5,000 keys of a group whose master a:1 has 0" in str(dict(case.placements.reasons))
    # When: the master has its data again.
    case.servers.keys["a:1"] = 4990
    await case.look()
    assert case.servers.told == [("b:2", "b:3")]
    assert case.bench.ledger.state.pool["b:2"].copy_of == 2


async def test_a_server_that_comes_back_is_not_taken_out() -> None:
    case = Case()
    await case.start({1: "a:1,b:2", 2: "b:3,c:4", 3: "c:5,a:6"}, "a:7,c:8")
    case.conditions["b:2"] = Condition.FAILED
    await case.apply()
    case.conditions = {}
    case.fill(case.servers.told[0][0])
    await case.look(4)
    assert len(case.groups()[1]) == 3
    assert case.bench.ledger.state.placement.run is None


async def test_by_itself_it_waits_until_things_have_settled_and_does_not_go_round_in_circles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(settle_seconds=10.0)
    await case.start({1: "a:1"}, "b:7")
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(applying.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))
    await case.look()
    assert case.states() == {}
    await case.placements.set_auto(True)
    await case.look()
    now += 9.0
    case.conditions["b:7"] = Condition.SUSPECTED
    await case.look()
    now += 9.0
    case.conditions.clear()
    await case.look()
    now += 9.0
    await case.look()
    assert case.states() == {}
    assert "settled" in str(case.placements.reason)
    now += 1.0
    await case.look()
    assert case.states() == {"b:7": "waiting"}
    # It fails, and is begun again later each time.
    waited = []
    for _ in range(4):
        run = case.bench.ledger.state.placement.run
        assert run is not None
        await case.placements.cancel()
        began = now
        while case.bench.ledger.state.placement.run is None:
            now += 1.0
            await case.look()
        waited.append(now - began)
    assert waited == sorted(waited)
    assert waited[0] >= 10.0
    assert waited[-1] >= 70.0


async def test_a_promotion_comes_before_the_copies_of_its_group() -> None:
    case = Case()
    await case.start({1: "a:1,b:2"}, "c:7")
    steps = (Step(1, 1, "copy", "c", "c:7"), Step(1, 1, "promote", "b", "b:2"))
    await case.begin(*steps)
    await case.look()
    assert case.groups()[1] == ["b:2", "a:1"]
    assert case.servers.told == [("c:7", "b:2")]
    assert replace(steps[0], state="copying") in (case.bench.ledger.state.placement.run or pytest.fail("none")).steps


async def test_what_may_be_a_server_of_a_group_by_another_name_is_not_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    await case.start({1: "a:1,b:1"}, "c:1,d:1")
    monkeypatch.setattr(
        case.servers, "conflict", {"c:1": Reason(Kind.OPERATOR, "c:1 and b:1 are one server"), "d:1": None}.__getitem__
    )
    await case.detaching.detach(["c:1", "d:1"])
    assert case.servers.told == [("d:1", None)]


async def test_what_may_be_another_server_is_not_filled() -> None:
    """The very process that was compared is told, and no server before it was compared with all others."""
    case = Case()
    await case.start({1: "a:1", 2: "a:2"}, "b:7,c:7")
    identities = Identities(case.bench.ledger, case.servers, case.condition)
    identities.start()
    case.telling._identities = identities
    await case.begin(Step(1, 1, "copy", "b", "b:7"))
    await case.look(2)
    assert case.servers.told == []
    assert "is being compared with the other servers" in next(iter(case.stepping.reasons.values())).what
    for server in ("a:1", "a:2", "c:7", "b:7"):
        identities.heard(server, (await case.servers.read(server)).run_id)
    # When: it is started anew between two looks.
    case.servers.restarts["b:7"] = 1
    await case.look()
    assert case.servers.told == []
    # When: its address leads to a server of another group now.
    identities.heard("b:7", (await case.servers.read("a:2")).run_id)
    await case.look()
    assert case.servers.told == []
    assert "are one server" in next(iter(case.stepping.reasons.values())).what
    # Then: once it is a server of its own again, and the others were heard since then, it is filled.
    for server in ("b:7", "a:1", "a:2", "c:7"):
        identities.heard(server, (await case.servers.read(server)).run_id)
    await case.look()
    assert case.servers.told == [("b:7", "a:1")]
