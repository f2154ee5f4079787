"""A failed master is replaced although a lost proxy cannot be fenced off it, once the proxy has surely stood down."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from slots.messages.control import Heard
from tests.unit.topom.masters.test_failover import SETTINGS, FakeHealth, keep_looking
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, SECOND, Case, hurry
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeMover, FakeProxy, MemoryStore
from topom.api import control
from topom.cluster import records, topology
from topom.cluster.fences import lacking, watches
from topom.cluster.hands_off import HandsOff
from topom.cluster.protection import Protection
from topom.errors import NotReady
from topom.masters.failover import Masters
from topom.masters.offsets import Offsets
from topom.proxies import standdown
from topom.proxies.fencing import Fences
from topom.proxies.lost import LostProxies, StandingDown
from topom.proxies.standdown import registered, seconds_of
from topom.servers.redis_servers import Fencing
from topom.store import STATE
from topom.term.service import Topom
from topom.term.settings import TopomSettings

__all__ = ["hurry"]

ALLOWANCE = 0.1


@pytest.fixture(autouse=True)
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standdown, "MARGIN_SECONDS", 0.05)


class Times:
    """When marks were set at the replica that takes over, and when it was made a master."""

    def __init__(self, case: Case, bench: Bench, instance: str) -> None:
        self.marked: list[float] = []
        self.forgets = 0
        """How often the mark is gone when topom looks for it."""
        self.promoted = 0.0
        self._fence, self._unmarked = bench.fencer.fence, bench.fencer.unmarked
        self._instance = instance
        bench.fencer.fence = self.fence  # type: ignore[method-assign]
        bench.fencer.unmarked = self.unmarked  # type: ignore[method-assign]
        case.servers.promoting = self._promoting

    async def fence(self, wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        if self._instance in wanted.get(FIRST, ()) and not self.promoted:
            self.marked.append(asyncio.get_running_loop().time())
        return await self._fence(wanted)

    async def unmarked(self, instances: Collection[str], address: str) -> Mapping[str, str]:
        if self.forgets:
            self.forgets -= 1
            return dict.fromkeys(instances, "the mark is gone")
        return await self._unmarked(instances, address)

    def _promoting(self) -> None:
        self.promoted = asyncio.get_running_loop().time()


@asynccontextmanager
async def lost_machine(
    case: Case, stands_down: float | None = ALLOWANCE
) -> AsyncIterator[tuple[Bench, Masters, Times]]:
    """A topom, and a proxy of it that is lost together with the master of its group."""
    async with case.topom() as bench:
        bench.members.stand_down = ALLOWANCE
        lost = FakeProxy(bench, 2)
        lost.stands_down = stands_down
        await lost.register()
        assert lost.member is not None
        health = FakeHealth(case)
        offsets = Offsets(bench.ledger, case.servers, lambda server: True, SETTINGS.lag_bytes)
        await offsets.ask()
        masters = Masters(
            bench.ledger,
            bench.members,
            health,
            case.promotions,
            case.servers,
            HandsOff(bench.ledger, Protection(0.6, bench.ledger)),
            offsets,
            SETTINGS,
            lost_proxies=LostProxies(bench.ledger, bench.members, bench.fencer, 60.0),
        )
        fences = Fences(bench.ledger, bench.barrier, lambda server: server not in bench.fencer.down)
        tasks = [asyncio.create_task(work) for work in (masters.run(), keep_looking(health), fences.run())]
        try:
            await bench.until(lambda table: case.acknowledged > 0 and not bench.ledger.state.unwatched)
            case.servers.replicate()
            times = Times(case, bench, lost.instance)
            lost.answer = lambda table: None
            lost.member.lost = True
            bench.fencer.down.add(MASTER)
            yield bench, masters, times
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def replaced(bench: Bench) -> None:
    await bench.until(lambda table: table.groups[1].master == FIRST)


async def test_another_master_comes_once_the_lost_proxy_has_surely_stood_down() -> None:
    case = Case()
    async with lost_machine(case) as (bench, masters, times):
        case.servers.all[MASTER].down = True
        await eventually(lambda: "stands down" in str(masters.reasons.get(1)))
        await replaced(bench)
        # one-owner
        assert times.promoted - times.marked[0] >= seconds_of(ALLOWANCE)
        await eventually(lambda: "proxy_stood_down" in [event.what for event in bench.ledger.state.events])
        # It is fenced off the former master once that is back.
        bench.fencer.down.clear()
        case.servers.all[MASTER].down = False
        await eventually(lambda: not lacking(bench.ledger.state, MASTER))
        await case.settled()


async def test_a_mark_that_is_gone_is_set_and_waited_for_anew() -> None:
    case = Case()
    async with lost_machine(case) as (bench, _, times):
        times.forgets = 1
        case.servers.all[MASTER].down = True
        await replaced(bench)
        assert not times.forgets
        assert times.promoted - times.marked[0] >= 2 * seconds_of(ALLOWANCE)
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_the_next_leader_waits_anew() -> None:
    """given marks that a leader set before it ended, the next one measures by its own clock."""
    case = Case()
    async with lost_machine(case, stands_down=60.0) as (bench, masters, times):
        case.servers.all[MASTER].down = True
        await eventually(lambda: "stands down: that is sure in" in str(masters.reasons.get(1)))
        assert times.marked
        group = bench.ledger.table.groups[1]
        following = LostProxies(bench.ledger, bench.members, bench.fencer, 60.0)
        with pytest.raises(NotReady, match="that was not tried yet"):
            following.require(group, FIRST)
        await following.prepare(group)
        with pytest.raises(StandingDown) as waiting:
            following.require(group, FIRST)
        assert waiting.value.seconds > 50
        assert bench.ledger.table.groups[1].master == MASTER
        case.servers.all[MASTER].down = False
        await case.settled()


async def test_who_never_said_that_it_stands_down_is_waited_for() -> None:
    case = Case()
    async with lost_machine(case, stands_down=None) as (bench, masters, times):
        case.servers.all[MASTER].down = True
        await eventually(lambda: "was not known to stand down by itself" in str(masters.reasons.get(1)))
        await asyncio.sleep(2 * seconds_of(ALLOWANCE))
        assert bench.ledger.table.groups[1].master == MASTER
        assert not times.promoted
        # The operator, or the machine's return, ends it.
        bench.fencer.down.clear()
        case.servers.all[MASTER].down = False
        await eventually(lambda: not lacking(bench.ledger.state, MASTER))
        case.servers.all[MASTER].down = True
        await replaced(bench)
        case.servers.all[MASTER].down = False
        await case.settled()


@pytest.mark.long
async def test_a_replica_that_the_lost_proxy_may_not_know_does_not_take_over() -> None:
    """given a proxy that has not acknowledged the table with a replica, it may serve without asking that replica."""
    case = Case()
    async with lost_machine(case) as (bench, masters, times):
        # When: the group is the same when it fails, but one of its servers has left and come back meanwhile.
        await bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, FIRST))
        await bench.edit(lambda table, epoch: topology.add_server(table, epoch, 1, FIRST))
        assert bench.ledger.state.unwatched == {FIRST}
        case.servers.all[SECOND].down = True
        case.servers.all[MASTER].down = True
        await eventually(lambda: f"is not sure to know {FIRST}" in str(masters.reasons.get(1)))
        assert not times.promoted
        # It is not a member any more, so all members have the table; what the lost proxy watches stays as it was.
        await eventually(lambda: not bench.ledger.state.unwatched)
        [entry] = bench.ledger.state.fenced.values()
        watched = [server for server in (MASTER, FIRST, SECOND) if watches(bench.ledger.state, entry, server)]
        assert watched == [MASTER, SECOND]
        case.servers.all[SECOND].down = False
        case.servers.all[FIRST].down = True
        await bench.until(lambda table: table.groups[1].master == SECOND)
        for server in (MASTER, FIRST):
            case.servers.all[server].down = False
        await case.settled()


@pytest.mark.parametrize(
    ("rule", "said", "stored"),
    [(None, 5.0, None), (5.0, None, None), (5.0, 5.0, 5.0), (5.0, 8.0, 8.0), (8.0, 5.0, 8.0)],
)
def test_what_is_stored_is_never_less_than_what_a_proxy_goes_by(
    rule: float | None, said: float | None, stored: float | None
) -> None:
    assert registered(rule, said) == stored


async def test_a_proxy_that_says_that_it_stands_down_is_stored_as_such() -> None:
    bench = await Bench().start()
    bench.members.stand_down = 5.0
    proxy = await FakeProxy(bench, 1).register()
    assert proxy.member is not None
    for said, stored in ((None, None), (8.0, None), (5.0, 5.0), (None, 5.0)):
        await bench.members.stands_down(proxy.member, said)
        assert proxy.member.record.stand_down == stored
    # A new topom reads it.
    state = records.decode(await bench.store.book(STATE).read())
    assert state is not None
    assert [record.stand_down for record in state.proxies.values()] == [5.0]


class Stream:
    """What a proxy sends over its control stream, one frame after another."""

    def __init__(self, *frames: dict[str, object]) -> None:
        self._frames = [json.dumps(frame) for frame in frames]

    async def receive_text(self) -> str:
        if not self._frames:
            raise WebSocketDisconnect
        return self._frames.pop(0)


async def test_only_a_member_is_answered_and_only_by_who_leads(tmp_path: Path) -> None:
    leads = True
    settings = TopomSettings.load(None, data=tmp_path, ha="topom", ha_lost_proxies="stand_down", number_of_slots=16)
    topom = Topom(settings, MemoryStore(), FakeMover(), leads=lambda: leads)
    await topom.start()
    proxy = FakeProxy(topom, 1)  # type: ignore[arg-type]
    member = (await proxy.register()).member
    assert member is not None
    link: Any = proxy

    async def answered(number: int) -> bool:
        proxy.told.clear()
        beat = {"type": "heartbeat", "epoch": 0, "number": number, "stands_down": 5.0 if leads else None}
        with suppress(WebSocketDisconnect):
            await control._receive(Stream(beat), topom, member, link)  # type: ignore[arg-type]
        return proxy.told == [Heard(number=number)]

    assert await answered(1)
    assert topom.ledger.state.proxies[member.record.id].stand_down == 5.0
    leads = False
    assert not await answered(2)
    leads = True
    assert await answered(3)
    await topom.members.fence([member.record.id], "fenced", "for the test", only_lost=False)
    # one-owner: it would rely on any answer from now on.
    assert not await answered(4)
    [entry] = topom.ledger.state.fenced.values()
    assert entry.stand_down == 5.0
    await topom.close()
