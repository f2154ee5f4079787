"""The stored state of a large cluster stays small for as long as it runs; newcomers beyond its limits are refused."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks import fleet
from slots.group import Group
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom import errors
from topom.cluster import changed_records, records, rules
from topom.cluster.departures import KEPT_MOST, Departures, added
from topom.cluster.state import ClusterState, PoolServer
from topom.proxies.member import Refused
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings
from topom.store import Stored

MOST_DOCUMENT, MOST_STATE = 512 * 1024, 2_000_000
"""Bytes. etcd refuses 1.5 MB and ZooKeeper 1 MB; topom cuts documents into cells of a quarter of that."""


def documents(state: ClusterState) -> dict[str, bytes]:
    return {name: value for name, value in changed_records.differences(None, state).items() if value is not None}


def size(found: Mapping[str, bytes]) -> int:
    """How many there are of things without a bound of their own."""
    return sum(len(value) for name, value in found.items() if not name.startswith("events/"))


def test_the_state_of_a_large_cluster_stays_small() -> None:
    """1,000 groups of three, 1,000 proxies, 16,384 slots that have all moved, after ten years."""
    state = fleet.grown(gone=2000)
    assert (len(state.table.groups), len(state.proxies), len(state.table.slots)) == (1000, 1000, 16_384)
    assert (len(state.moved), len(state.run_ids), len(state.events)) == (16_384, 3000, 2048)
    assert state.fenced, "a server is down, so some fences are not up yet"
    found = documents(state)
    assert max(map(len, found.values())) < MOST_DOCUMENT
    assert size(found) < MOST_STATE
    assert records.decode(Stored(state.version, found)) == state


def test_proxies_that_come_and_go_leave_nothing() -> None:
    few, many = (fleet.grown(30, 64, 20, gone) for gone in (100, 20_000))
    assert len(few.proxies) == len(many.proxies)
    assert many.next_proxy_id > 20_000
    assert size(documents(many)) < 1.1 * size(documents(few))


def test_a_state_as_large_as_may_be_has_small_documents() -> None:
    state = fleet.grown(rules.MOST_GROUPS, 16_384, 10, 10)
    pool = [f"10.9.{number // 250}.{number % 250}:6379" for number in range(rules.MOST_SERVERS)]
    pool = pool[: rules.MOST_SERVERS - len(state.run_ids)]
    full = replace(state, pool={address: PoolServer(address, f"rack-01-node-{address}", "zone-1") for address in pool})
    assert max(map(len, documents(full).values())) < MOST_DOCUMENT


def test_the_departures_of_a_day_are_small() -> None:
    known: Departures = {}
    for slot in range(KEPT_MOST):  # each at a time of its own
        known = {**known, slot % 100: {**known.get(slot % 100, {}), slot: 1_700_000_000 + slot}}
    known = added(known, 1, [1, 2], 1_700_000_000 + KEPT_MOST)
    assert sum(map(len, known.values())) <= KEPT_MOST
    state = replace(fleet.grown(30, 64, 20, 10), departures=known)
    assert len(documents(state)["departures"]) < 350_000


async def test_newcomers_beyond_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_GROUPS", 2), ("MOST_SERVERS", 3), ("MOST_PROXIES", 1)):
        monkeypatch.setattr(rules, name, most)
    bench = await Bench().start()

    async def add(*groups: Group) -> None:
        await bench.edit(lambda table, epoch: table.changed(epoch, groups=groups))

    async def into_the_pool(*servers: str) -> None:
        pool = {server: PoolServer(server) for server in servers}
        await bench.ledger.change(lambda state, epoch: replace(state, pool=pool))

    await add(Group(1, ("a:1", "b:1")), Group(2))
    with pytest.raises(errors.TooMany, match="2 groups already"):
        await add(Group(3))
    await into_the_pool("c:1")
    with pytest.raises(errors.TooMany, match="3 servers in groups and pool already"):
        await into_the_pool("c:1", "d:1")
    with pytest.raises(errors.TooMany, match="3 servers in groups and pool already"):
        await add(Group(2, ("d:1",)))
    one = await FakeProxy(bench, 1).register()
    with pytest.raises(Refused, match="1 proxies already") as refused:
        await FakeProxy(bench, 2).register()
    assert refused.value.reason == "invalid"
    # When: one place is left, and then there are more than allowed, as after an upgrade.
    assert one.member is not None
    await bench.members.leave(one.member)
    await FakeProxy(bench, 2).register()
    monkeypatch.setattr(rules, "MOST_SERVERS", 1)
    await add(Group(1, ("b:1", "a:1")))
    await into_the_pool()
    await bench.stop()


def test_what_has_not_changed_is_not_built_anew() -> None:
    """A topom that follows reads states one after the other."""
    state = fleet.grown(20, 1024, 10, 10)
    reader = records.Reader()
    first = reader.decode(Stored(state.version, documents(state)))
    assert first == state
    record = next(iter(state.proxies.values()))
    after = replace(
        state, version=state.version + 1, proxies={**state.proxies, record.id: replace(record, draining=True)}
    )
    second = reader.decode(Stored(after.version, documents(after)))
    assert second == after
    assert first is not None
    assert second is not None
    assert second.table is first.table
    assert second.events is first.events
    assert (second.run_ids is first.run_ids, second.offsets is first.offsets) == (True, True)
    assert [old for old in first.proxies.values() if second.proxies[old.id] is not old] == [first.proxies[record.id]]
    moved = replace(after, version=after.version + 1, table=after.table.changed(after.version + 1))
    third = reader.decode(Stored(moved.version, documents(moved)))
    assert third == moved
    assert third is not None
    assert third.table.slots is first.table.slots


def test_servers_that_everybody_hears_are_not_judged() -> None:
    """The cost grows with the servers that fail, and not with proxies times servers."""
    servers = [f"s{number}:1" for number in range(3000)]
    detector = Detector(DetectorSettings())
    detector.judge_only(dict.fromkeys(servers, 1))
    for viewer in (OWN, *map(str, range(1000))):
        detector.report(viewer, {}, 10.0, 1)
    found, well = detector.judge_all(10.0)
    assert (found, well.condition, well.views) == ({}, Condition.ALIVE, 1001)
    for viewer in (OWN, *map(str, range(1000))):
        detector.report(viewer, {"s7:1": 9.0}, 11.0, 1)
    found, _ = detector.judge_all(11.0)
    assert {server: judged.condition for server, judged in found.items()} == {"s7:1": Condition.FAILED}
    # When: it is heard again, and that has settled.
    for now in (12.0, 12.0 + DetectorSettings().late_seconds):
        for viewer in (OWN, *map(str, range(1000))):
            detector.report(viewer, {}, now, 1)
        found, _ = detector.judge_all(now)
    assert detector.judge_all(now)[0] == {}


def test_a_proxy_has_no_view_of_servers_that_its_table_has_not() -> None:
    detector = Detector(DetectorSettings())
    detector.judge_only({"old:1": 1, "new:1": 7})
    detector.report(OWN, {"old:1": 9.0, "new:1": 9.0}, 0.0, 7)
    detector.report("1", {"old:1": 9.0}, 0.0, 6)
    found, _ = detector.judge_all(0.0)
    assert (found["old:1"].condition, found["old:1"].views) == (Condition.FAILED, 2)
    # It does not hear the server, and does not miss it.
    assert (found["new:1"].condition, found["new:1"].views) == (Condition.SUSPECTED, 1)
