"""Changes of masters over fakes: their steps, their failures, and what a restart at each step makes of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.operators import in_state, send
from tests.unit.topom.topom_fakes import Bench, FakeProxy, MemoryStore
from topom.cluster import topology
from topom.cluster.state import ClusterState, Differs, Leaving, Noted
from topom.cluster.topology import parse_address
from topom.copies import filling
from topom.copies.filling import Filling
from topom.copies.telling import Telling
from topom.errors import Conflict, GroupLocked, NotReady, SlotsInAction
from topom.masters import endings
from topom.masters.choice import ServerLeaving
from topom.masters.endings import PromotionFailed
from topom.masters.promotions import Promotions
from topom.proxies.refusedtables import RefusedTables
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.replication import ServerReplication

MakeBench = Callable[..., Awaitable[Bench]]

MASTER, FIRST, SECOND = "m:1", "r:1", "r:2"
STEPS = ["lock stored", "lock acknowledged", "replica has all", "replica is master", "promoted"]
TAKING_BACK = ["failed", "taking back", "taken back"]


@dataclass
class FakeServer:
    """A server: a count of writes, and the server that it follows."""

    data: int = 0
    follows: str | None = None
    stuck: bool = False
    """Whether it takes nothing from its master any more."""
    down: bool = False
    down_seconds: int = 0


class FakeServers(ServerReplication):
    """Servers in memory. ``reached`` is called before a server is made a master."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None))
        self.keys: dict[str, int] = {}
        self.restarts: dict[str, int] = {}
        self.kept: list[str] = []
        self.all = {MASTER: FakeServer(), FIRST: FakeServer(follows=MASTER), SECOND: FakeServer(follows=MASTER)}
        self.promoting: Callable[[], None] = lambda: None
        self.promoted: Callable[[], None] = lambda: None
        self.replaced_once_read = ""
        """The server that is replaced by another process, a master, after it was asked."""

    async def _reach(self, address: str) -> FakeServer:
        await asyncio.sleep(0)
        server = self.all[address]
        if server.down:
            raise ServerFailed(f"{address} does not do what is needed: no answer")
        return server

    def replicate(self) -> None:
        for server in self.all.values():
            if server.follows is not None and not server.stuck and not server.down:
                server.data = self.all[server.follows].data

    async def look(self, address: str) -> Replication:
        server = await self._reach(address)
        if server.follows is None:
            return Replication(True, "stream", server.data)
        link_up = not self.all[server.follows].down
        return Replication(
            False, "stream", server.data, parse_address(server.follows), link_up, down_seconds=server.down_seconds
        )

    def run_id(self, address: str) -> str:
        return f"run {self.restarts.get(address, 0)} of {address}"

    async def read(self, address: str) -> Reading:
        found = Reading(await self.look(address), self.run_id(address), self.keys.get(address, 0))
        if address == self.replaced_once_read:
            self.replaced_once_read = ""
            self.restarts[address] = self.restarts.get(address, 0) + 1
            self.all[address] = FakeServer()
        return found

    async def pause_writes(self, address: str, seconds: float) -> None:
        await self._reach(address)

    async def resume_writes(self, address: str) -> None:
        await self._reach(address)

    async def make_master(self, address: str, run_id: str = "") -> None:
        self.promoting()
        server = await self._reach(address)
        if run_id not in ("", self.run_id(address)):
            raise ServerFailed(f"{address} does not do what is needed: it was restarted meanwhile")
        server.follows = None
        self.promoted()

    async def follow(
        self, address: str, master: str, told_as: As, sure: str = "", anew: bool = False, decided: str = ""
    ) -> str:
        run_id = await self.require(address, master, told_as, sure)
        if decided not in ("", run_id):
            raise ServerFailed(f"{address} was restarted meanwhile, or leads to another server")
        server = await self._reach(address)
        server.follows = master
        return run_id

    async def keep(self, address: str) -> None:
        await self._reach(address)
        self.kept.append(address)


class Case:
    """A bench with a group of three, a proxy that writes to the master in its table, and the promotions."""

    def __init__(self) -> None:
        self.servers = FakeServers()
        self.store = MemoryStore()
        self.acknowledged = 0
        self.steps: list[str] = []
        self.hang_at = ""
        self.hanging = asyncio.Event()

    async def _step(self, step: str) -> None:
        self.steps.append(step)
        if step == self.hang_at:
            self.hanging.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def topom(self) -> AsyncIterator[Bench]:
        """A topom from its start to its end."""
        bench = Bench(self.store)
        await bench.start()
        if not bench.ledger.table.groups:
            for group_id, servers in ((1, [MASTER, FIRST, SECOND]), (2, ["o:1"])):
                await bench.edit(
                    lambda table, epoch, group_id=group_id, servers=servers: topology.add_group(  # type: ignore[misc]
                        table, epoch, group_id, servers
                    )
                )
            await bench.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
        self.bench = bench
        self.proxy = await FakeProxy(bench, 1).register()
        await asyncio.sleep(0)
        self.promotions = Promotions(bench.ledger, bench.barrier, self.servers, 0.2, 0.1, self._step)
        telling = Telling(bench.ledger, bench.barrier, self.servers, 5.0)
        self.filling = Filling(bench.ledger, self.servers, telling)
        self.filling.serve(self.promotions.endings.followers)
        tasks = [
            asyncio.create_task(work)
            for work in (
                self.promotions.run(),
                self.filling.run(),
                self._write(),
                RefusedTables(bench.ledger, bench.members).run(),
            )
        ]
        try:
            yield bench
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await bench.stop()

    async def _write(self) -> None:
        """The proxy's clients; the servers replicate a little later."""
        while True:
            table = self.proxy.seen[-1]
            group = table.groups[1]
            server = self.servers.all[group.servers[0]]
            if not group.locked and server.follows is None and not server.down:
                server.data += 1
                self.acknowledged += 1
            await asyncio.sleep(0)
            self.servers.replicate()

    async def settled(self) -> SlotTable:
        """Wait until nothing of a promotion is left, and see that nothing was lost."""
        ledger = self.bench.ledger
        await self.bench.until(lambda table: not ledger.state.promotions and not table.groups[1].locked)
        master, *replicas = ledger.table.groups[1].servers
        assert self.servers.all[master].follows is None
        assert [self.servers.all[replica].follows for replica in replicas] == [master, master]
        assert self.servers.all[master].data == self.acknowledged > 0
        return ledger.table


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that has to be looked at again is looked at again at once."""
    monkeypatch.setattr(endings, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(endings, "LONGEST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(Filling, "pause_seconds", 0.001)
    for name in ("LOOK_SECONDS", "SILENT_LOOK_SECONDS"):
        monkeypatch.setattr(filling, name, 0.005)


@pytest.fixture
async def case() -> Case:
    return Case()


async def test_a_replica_becomes_the_master(case: Case) -> None:
    async with case.topom():
        table = await case.promotions.promote(1, FIRST)
        assert table.groups[1].servers == (FIRST, MASTER, SECOND)
        assert case.steps == STEPS
        assert [table.groups[1].locked for table in case.proxy.seen[-2:]] == [True, False]
        before = case.acknowledged
        await case.settled()
        await case.bench.until(lambda table: case.acknowledged > before)
        assert await case.promotions.promote(1, FIRST) is case.bench.ledger.table, "it is the master already"


async def test_how_far_the_new_master_is_stands_beside_its_name(case: Case) -> None:
    """It may fail before anybody has asked it. But nothing is noted of it if nothing is noted of masters."""
    async with case.topom() as bench:
        await case.promotions.promote(1, FIRST)
        assert bench.ledger.state.offsets == {}
        await case.settled()
        noted = {1: Noted(FIRST, "stream", 1)}
        await bench.ledger.change(lambda state, epoch: replace(state, offsets=noted))
        stored: list[Noted] = []

        def listen(old: ClusterState, new: ClusterState) -> None:
            if new.table.groups[1].master == SECOND and not stored:
                stored.append(new.offsets[1])

        bench.ledger.listen(listen)
        await case.promotions.promote(1, SECOND)
        assert (stored[0].server, stored[0].stream) == (SECOND, "stream")
        assert 1 < stored[0].offset <= case.servers.all[SECOND].data


@pytest.mark.parametrize("step", STEPS)
async def test_a_restart_at_any_step_is_gone_on_from(case: Case, step: str) -> None:
    case.hang_at = step
    async with case.topom():
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        promoting.cancel()
    case.hang_at = ""
    async with case.topom():
        table = await case.settled()
        decided = STEPS.index(step) >= STEPS.index("replica is master")
        assert table.groups[1].master == (FIRST if decided else MASTER)


async def test_run_id_another_process_at_a_replicas_address_is_not_told_to_follow(case: Case) -> None:
    """given it is replaced before it is told: as the change is decided, or when it is looked at again."""
    for first in (True, False):
        case.servers = FakeServers()
        case.store = MemoryStore()
        async with case.topom():
            case.servers.all[SECOND].down = not first
            if first:
                case.servers.replaced_once_read = SECOND
            await case.promotions.promote(1, FIRST)
            if not first:
                case.servers.replaced_once_read = SECOND
                case.servers.all[SECOND].down = False
            await case.bench.until(lambda table: not case.bench.ledger.state.promotions)
            assert case.servers.replaced_once_read == ""
            assert case.servers.all[SECOND].follows is None


@pytest.mark.parametrize("step", TAKING_BACK)
async def test_a_restart_while_it_is_taken_back(case: Case, step: str) -> None:
    case.hang_at = step
    async with case.topom():
        case.servers.promoting = lambda: setattr(case.servers.all[FIRST], "down", True)
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        promoting.cancel()
    case.hang_at = ""
    case.servers.promoting = lambda: None
    case.servers.all[FIRST].down = False
    async with case.topom():
        assert (await case.settled()).groups[1].master == MASTER


async def test_a_replica_that_does_not_catch_up(case: Case) -> None:
    async with case.topom() as bench:

        async def stick(step: str) -> None:
            if step == "lock stored":
                case.servers.all[FIRST].stuck = True
                case.servers.all[FIRST].data -= 1

        case.promotions.on_step = stick
        with pytest.raises(PromotionFailed, match="1 bytes behind"):
            await case.promotions.promote(1, FIRST)
        assert bench.ledger.table.groups[1].master == MASTER
        assert not bench.ledger.table.groups[1].locked
        case.servers.all[FIRST].stuck = False
        await case.settled()


async def test_what_is_refused_before_anything_is_locked(case: Case) -> None:
    async with case.topom() as bench:
        epoch = bench.ledger.table.epoch
        for prepare, reason in (
            (lambda: setattr(case.servers.all[FIRST], "follows", None), "a master itself"),
            (lambda: setattr(case.servers.all[FIRST], "down", True), "no answer"),
        ):
            prepare()
            with pytest.raises(NotReady, match=reason):
                await case.promotions.promote(1, FIRST)
        assert bench.ledger.table.epoch == epoch


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"differing": {FIRST: Differs(FIRST, 1, 7)}}, "as a digest check found"),
        ({"leaving": {"server/r:1": Leaving("server", FIRST, "", 1.0)}}, "on its way out"),
    ],
)
async def test_what_is_found_of_a_replica_while_its_group_is_locked(
    case: Case, stored: dict[str, Any], reason: str
) -> None:
    async with case.topom() as bench:

        async def find(step: str) -> None:
            if step == "lock acknowledged":
                await bench.ledger.change(lambda state, epoch: replace(state, **stored))

        case.promotions.on_step = find
        with pytest.raises(PromotionFailed, match=reason):
            await case.promotions.promote(1, FIRST)
        assert case.servers.all[FIRST].follows == MASTER
        # When: it is known before anything is locked.
        with pytest.raises(Conflict, match=f"{reason}.*; nothing was changed"):
            await case.promotions.promote(1, FIRST)
        await case.settled()


async def test_a_replica_that_topom_has_by_another_name_is_not_promoted(case: Case) -> None:
    """run-id: nobody knows which role such a server should have."""
    async with case.topom():
        twice = Reason.now(Kind.OPERATOR, "r:1 and x:1 are one server")
        case.servers._conflict = lambda server: twice if server == FIRST else None
        with pytest.raises(NotReady, match="one server; nothing was changed"):
            await case.promotions.promote(1, FIRST)
        assert (await case.promotions.promote(1, SECOND)).groups[1].master == SECOND


async def test_a_master_on_its_way_out_is_not_promoted_once_more(case: Case) -> None:
    async with case.topom() as bench:
        assert await case.promotions.promote(1, MASTER) is bench.ledger.table
        leaving = {"server/m:1": Leaving("server", MASTER, "", 1.0)}
        await bench.ledger.change(lambda state, epoch: replace(state, leaving=leaving))
        with pytest.raises(ServerLeaving, match="--cancel"):
            await case.promotions.promote(1, MASTER)


async def test_slots_in_motion_and_a_locked_group_exclude_each_other(case: Case) -> None:
    async with case.topom() as bench:
        await send(bench, range(4))
        pending = bench.ledger.table
        table = topology.begin(pending, pending.epoch + 1, range(4))
        state = SlotState.PREPARING
        for after in (SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED, None):
            for group_id in (1, 2):
                with pytest.raises(SlotsInAction):
                    topology.lock_group(table, table.epoch + 1, group_id)
            if after is not None:
                table = topology.advance(table, table.epoch + 1, range(4), state, after)
                state = after
        case.hang_at = "lock acknowledged"
        promoting = asyncio.create_task(case.promotions.promote(1, FIRST))
        await case.hanging.wait()
        locked = bench.ledger.table
        for refused in (
            lambda: topology.begin(locked, locked.epoch + 1, range(4), False),
            lambda: topology.lock_group(locked, locked.epoch + 1, 1),
            lambda: topology.remove_server(locked, locked.epoch + 1, 1, FIRST),
        ):
            with pytest.raises(GroupLocked):
                refused()
        bench.run()
        for _ in range(20):
            await asyncio.sleep(0)
        assert in_state(SlotState.PENDING, 0, 1, 2, 3)(bench.ledger.table), "no batch begins meanwhile"
        assert not bench.actions.batches
        promoting.cancel()


async def test_a_proxy_that_refuses_the_lock(case: Case) -> None:
    async with case.topom() as bench:
        case.proxy.answer = lambda table: not table.groups[1].locked
        with pytest.raises(PromotionFailed, match="was refused"):
            await case.promotions.promote(1, FIRST)
        assert bench.ledger.table.groups[1].master == MASTER
        case.proxy.answer = lambda table: True
        await case.settled()


async def test_an_unknown_outcome_that_was_a_success_is_gone_on_from(case: Case) -> None:
    """The replica was made a master, and nobody heard of it."""
    async with case.topom():

        def lost() -> None:
            raise ServerFailed("no answer within 1 s")

        case.servers.promoted = lost
        table = await case.promotions.promote(1, FIRST)
        assert table.groups[1].master == FIRST
        await case.settled()


async def test_the_store_fails_when_it_is_decided(case: Case) -> None:
    for fail in ("fail_before", "fail_after"):
        async with case.topom() as bench:
            _, successor, _ = bench.ledger.table.groups[1].servers

            async def break_store(step: str, fail: str = fail) -> None:
                if step == "replica is master":
                    setattr(case.store, fail, 1)

            case.promotions.on_step = break_store
            with suppress(Exception):
                await case.promotions.promote(1, successor)
            assert (await case.settled()).groups[1].master == successor


async def test_a_group_of_which_nobody_answers_stays_locked(case: Case) -> None:
    async with case.topom() as bench:

        async def end(step: str) -> None:
            if step == "lock stored":
                case.servers.all[MASTER].down = case.servers.all[FIRST].down = True

        case.promotions.on_step = end
        with pytest.raises(ServerFailed, match="stays locked"):
            await case.promotions.promote(1, FIRST)
        assert bench.ledger.table.groups[1].locked
        # The lock has been held all the while, so the replica may have been made a master just before.
        case.servers.all[FIRST].follows = None
        case.servers.all[FIRST].down = False
        await bench.until(lambda table: not table.groups[1].locked)
        assert bench.ledger.table.groups[1].master == FIRST
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_a_lock_that_is_not_everybodys_is_not_relied_upon(case: Case) -> None:
    """A proxy registers after the others have locked, and does not lock."""
    async with case.topom() as bench:

        async def join(step: str) -> None:
            if step == "replica has all":
                await FakeProxy(bench, 2, lambda table: None if table.groups[1].locked else True).register()

        case.promotions.on_step = join
        with pytest.raises(PromotionFailed, match="registered after"):
            await case.promotions.promote(1, FIRST)
        assert case.servers.all[FIRST].follows == MASTER
        await case.settled()
