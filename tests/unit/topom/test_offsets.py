"""How far masters are: noted whatever others think of them, stored sparsely, and known to whoever leads next."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.unit.topom.test_promotions import FIRST, MASTER, FakeServers
from tests.unit.topom.topom_fakes import Bench, MemoryStore
from topom import topology
from topom.detector import OWN, Condition, Detector, DetectorSettings
from topom.offsets import Offsets
from topom.state import Noted


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
        await offsets.look()
        group = bench.ledger.table.groups[1]
        assert offsets.of(group) == Noted(MASTER, "stream", 1000) == bench.ledger.state.offsets[1]
        version, epoch = bench.ledger.state.version, bench.ledger.table.epoch
        # When: it goes on by less than is worth a write, and by more.
        servers.all[MASTER].data = 1100
        await offsets.look()
        assert offsets.of(group) == Noted(MASTER, "stream", 1100)
        assert bench.ledger.state.version == version
        servers.all[MASTER].data = 1101
        await offsets.look()
        assert bench.ledger.state.offsets[1].offset == 1101
        assert bench.ledger.table.epoch == epoch, "no proxy is told"
        # When: it answers topom no more.
        heard.clear()
        servers.all[MASTER].data = 9000
        await offsets.look()
        assert offsets.of(group) == Noted(MASTER, "stream", 1101)
    async with leading(store) as bench:
        offsets = Offsets(bench.ledger, servers, heard.__contains__, 800)
        await offsets.look()
        assert offsets.of(bench.ledger.table.groups[1]) == Noted(MASTER, "stream", 1101)
        assert offsets.age(bench.ledger.table.groups[1]) == math.inf
        # What is known of one master says nothing of another, and goes with the group.
        other = replace(bench.ledger.table.groups[1], servers=(FIRST, MASTER))
        assert offsets.of(other) is None
        await bench.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, FIRST))
        await offsets.look()
        assert bench.ledger.state.offsets == {}


def test_how_long_a_server_has_been_silent_is_said_by_the_proxy_in_the_middle() -> None:
    detector = Detector(DetectorSettings())
    detector.report(OWN, {"m:1": 3.0}, 100.0)
    assert detector.silence("m:1", 101.0) == 4.0
    # One of them was just started, another one is cut off.
    for viewer, silence in (("1", 20.0), ("2", 2.0), ("3", 3600.0)):
        detector.report(viewer, {"m:1": silence}, 100.0)
    assert detector.silence("m:1", 101.0) == 21.0
    assert detector.silence("x:1", 101.0) == 0.0
    assert detector.judge("m:1", 101.0).condition is not Condition.ALIVE
