"""How far masters are: noted whatever other views say, stored sparsely, and known to the next leader."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from slots.group import Group
from slots.table import SlotTable
from tests.unit.topom.masters.test_promotions import FIRST, MASTER, FakeServers
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import PRODUCT, Bench, MemoryStore
from topom.cluster import topology
from topom.cluster.state import ClusterState, Joining, Noted
from topom.errors import NotReady
from topom.masters import offsets as offsets_module
from topom.masters.choice import failover
from topom.masters.choicerules import Outage
from topom.masters.offsets import Offsets, with_noted
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings
from topom.servers.readings import Replication


@asynccontextmanager
async def leading(store: MemoryStore) -> AsyncIterator[Bench]:
    """A topom with a group of two."""
    bench = await Bench(store).start()
    if not bench.ledger.table.groups:
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [MASTER, FIRST]))
    yield bench
    await bench.stop()


async def test_the_next_leader_knows_how_far_a_master_was() -> None:
    servers, store, heard = FakeServers(), MemoryStore(), {MASTER}
    async with leading(store) as bench:
        offsets = Offsets(bench.ledger, servers, heard.__contains__, 800)
        servers.all[MASTER].data = 1000
        await offsets.ask()
        group = bench.ledger.table.groups[1]
        assert offsets.of(group) == Noted(MASTER, "stream", 1000) == bench.ledger.state.offsets[1]
        version, epoch = bench.ledger.state.version, bench.ledger.table.epoch
        # When: it goes on by too little for a write, and by more.
        servers.all[MASTER].data = 1100
        await offsets.ask()
        assert offsets.of(group) == Noted(MASTER, "stream", 1100)
        assert bench.ledger.state.version == version
        servers.all[MASTER].data = 1101
        await offsets.ask()
        assert bench.ledger.state.offsets[1].offset == 1101
        assert bench.ledger.table.epoch == epoch, "no proxy is told"
        # When: it does not answer topom any more.
        heard.clear()
        servers.all[MASTER].data = 9000
        await offsets.ask()
        assert offsets.of(group) == Noted(MASTER, "stream", 1101)
    async with leading(store) as bench:
        offsets = Offsets(bench.ledger, servers, heard.__contains__, 800)
        await offsets.ask()
        assert offsets.of(bench.ledger.table.groups[1]) == Noted(MASTER, "stream", 1101)
        assert offsets.age(bench.ledger.table.groups[1]) == math.inf
        # What is known of one master says nothing of another, and is forgotten with the group.
        other = replace(bench.ledger.table.groups[1], servers=(FIRST, MASTER))
        assert offsets.of(other) is None
        await bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, FIRST))
        await offsets.ask()
        assert bench.ledger.state.offsets == {}


async def test_what_a_former_master_said_late_takes_nothing_from_the_new_one() -> None:
    servers, store = FakeServers(), MemoryStore()
    async with leading(store) as bench:
        offsets = Offsets(bench.ledger, servers, lambda server: True, 800)
        await offsets.ask()
        looking = asyncio.create_task(offsets.ask())
        await asyncio.sleep(0)
        servers.all[MASTER].data = 1000
        # When: meanwhile it has a successor, and it is stored how far the successor is.
        promoted = {1: Noted(FIRST, "stream", 990)}
        await bench.ledger.change(
            lambda state, epoch: with_noted(
                replace(state, table=topology.promote(state.table, epoch, 1, FIRST)), promoted
            )
        )
        await looking
        assert bench.ledger.state.offsets == promoted


async def test_what_was_asked_before_takes_nothing_from_what_was_asked_since() -> None:
    """given the answers that health checks got a little earlier are used."""
    servers, store = FakeServers(), MemoryStore()
    async with leading(store) as bench:
        offsets = Offsets(bench.ledger, servers, lambda server: True, 800)
        servers.lately = lambda server, seconds: Replication(True, "stream", 500)
        servers.all[MASTER].data = 1000
        group = bench.ledger.table.groups[1]
        await offsets.ask()
        await offsets.ask(1.5)
        assert offsets.of(group) == Noted(MASTER, "stream", 1000)
        assert offsets.age(group) < 1.0
        # When: it is newer than what is known, and lower, as for a master that came back with older data.
        offsets._asked_at[1] -= 10
        await offsets.ask(1.5)
        assert offsets.of(group) == Noted(MASTER, "stream", 500)
        assert offsets.age(group) >= 1.5


async def test_a_master_is_asked_as_soon_as_its_group_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a new stream once its first replica is whole. If it fails right after that, the new stream is known."""
    monkeypatch.setattr(offsets_module, "NOTE_SECONDS", 1000.0)
    monkeypatch.setattr(Offsets, "pause_seconds", 0.0)
    servers, bench = FakeServers(), await Bench(MemoryStore()).start()
    offsets = Offsets(bench.ledger, servers, lambda server: True, 800)
    running = asyncio.create_task(offsets.run())
    try:
        joining = {FIRST: Joining(FIRST)}
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [MASTER, FIRST]))
        await bench.ledger.change(lambda state, epoch: replace(state, joining=joining))
        await eventually(lambda: bench.ledger.state.offsets == {1: Noted(MASTER, "stream", 0)})
        servers.all[MASTER].data = 1000
        await bench.ledger.change(lambda state, epoch: replace(state, joining={}))
        await eventually(lambda: bench.ledger.state.offsets == {1: Noted(MASTER, "stream", 1000)})
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await bench.stop()


def test_how_long_a_server_has_been_silent_is_said_by_the_proxy_that_heard_it_last() -> None:
    detector = Detector(DetectorSettings())
    detector.judge_only({"m:1": 1})
    detector.report(OWN, {"m:1": 3.0}, 100.0, math.inf)
    assert detector.silence("m:1", 101.0) == 4.0
    assert detector.silence("x:1", 101.0) == 0.0
    # When: topom knows of no proxy whether it was answered. One may have just begun to ask, another is cut off.
    for viewer, silence in (("1", 20.0), ("2", 6.0), ("3", 3600.0)):
        detector.report(viewer, {"m:1": silence}, 100.0, 1, ["m:1"])
    assert detector.silence("m:1", 101.0) == 21.0
    # When: two have heard it, one of them long after the other, and two begin to ask.
    for viewer in ("1", "3"):
        detector.report(viewer, {}, 200.0, 1)
    assert detector.silence("m:1", 201.0) == 1.0, "it may have answered at the last moment"
    detector.report("1", {"m:1": 60.5}, 260.0, 1)
    for viewer in ("2", "4"):
        detector.report(viewer, {"m:1": 6.0}, 260.0, 1, ["m:1"])
    detector.report("3", {"m:1": 40.0}, 260.0, 1)
    assert detector.silence("m:1", 261.0) == 41.0
    assert detector.judge("m:1", 261.0).condition is not Condition.ALIVE


def test_what_only_one_proxy_wrote_is_not_taken_for_nothing() -> None:
    """given a master that hung for two proxies and their replica, and went on for the third one's clients."""
    detector, group = Detector(DetectorSettings()), Group(1, (MASTER, FIRST))
    detector.judge_only({MASTER: 1})
    state = ClusterState(2, "w", PRODUCT, SlotTable.empty(4).changed(1, groups=[group]))
    for viewer in ("1", "2", "3"):
        detector.report(viewer, {}, 100.0, 1)
    for viewer, silence in (("1", 90.0), ("2", 90.0), ("3", 10.0)):
        detector.report(viewer, {MASTER: silence}, 190.0, 1)
    said = {FIRST: Replication(False, "stream", 1000, None, False, down_seconds=90)}
    outage = Outage(Noted(MASTER, "stream", 1000), detector.silence(MASTER, 190.0), 5.0, 100)
    choice = failover(state, group, said, outage, has_failed=True)
    with pytest.raises(NotReady, match="lost its link 80 s before"):
        choice.require()
