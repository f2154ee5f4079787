"""What a topom tells Prometheus: whether it leads or follows, and what only a leader knows."""

import asyncio
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from slots.version import program_version
from tests import promtool
from tests.unit.topom.operators import eventually
from tests.unit.topom.term.test_node import AUTHORISED, Topoms, follows, topoms, two
from tests.unit.topom.topom_fakes import MemoryStore
from topom.balance.sizes import SlotSize, Taking
from topom.cluster import differing, topology
from topom.cluster.state import Differs
from topom.errors import Conflict
from topom.masters.outcomes import Kind, Outcome, Outcomes
from topom.store import STATE, StoreError
from topom.store.timed import StoreTimes, TimedStore

__all__ = ["topoms", "two"]

Figures = dict[tuple[str, ...], float]


async def figures(topoms: Topoms, name: str) -> Figures:
    """Every sample by its name without prefix, and the values of its labels, which come by name."""
    async with httpx.AsyncClient(transport=topoms.network) as client:
        answer = await client.get(f"http://{name}/metrics", headers=AUTHORISED)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("slotferry_topom_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_each_topom_answers_for_itself(two: Topoms) -> None:
    async with httpx.AsyncClient(transport=two.network) as client:
        assert (await client.get("http://a/metrics")).status_code == 401
    await two.ask("a", "POST", "/slots/assign", {"slots": "0-7", "group_id": 1})
    await follows(two, "b")
    leader, follower = await figures(two, "a"), await figures(two, "b")
    assert (leader["leads",], follower["leads",]) == (1, 0)
    assert leader["term",] == 1
    assert ("term",) not in follower
    for found in (leader, follower):
        assert found["slots", "rest"] == 8
        assert found["slots", "offline"] == 8
        assert found["slots", "migrating"] == 0
        assert found["table_epoch",] == two.nodes["a"].serving.ledger.table.epoch
        assert found["events_total",] == two.nodes["a"].serving.ledger.state.events[-1].id
        assert found["protection_lifted",] == 0
    assert leader["store_seconds_count", "write"] >= 3
    assert follower["store_seconds_count", "leader"] >= 1
    assert ("proxies", "online") not in follower


async def test_prometheus_finds_no_fault_with_what_it_is_told(two: Topoms) -> None:
    await two.ask("a", "POST", "/slots/assign", {"slots": "0-7", "group_id": 1})
    await follows(two, "b")
    for name in ("a", "b"):
        async with httpx.AsyncClient(transport=two.network) as client:
            text = (await client.get(f"http://{name}/metrics", headers=AUTHORISED)).text
        assert f'slotferry_topom_build_info{{version="{program_version()}"}} 1.0' in text
        await asyncio.to_thread(promtool.check, text)


async def test_what_the_leader_knows(two: Topoms) -> None:
    topom = two.nodes["a"].serving
    taken_at = topom.sizes.clock() - 60.0
    await topom.sizes.record(Taking(taken_at, 1.0, True), {0: SlotSize(1, 1, (), taken_at)})
    await topom.edits.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "127.0.0.1:2"))
    await topom.ledger.change(lambda state, epoch: differing.marked(state, Differs("127.0.0.1:2", 1, 7)))
    topom.protection.look(3, 4)
    refused = await two.ask("a", "POST", "/groups/1/promote", {"server": "127.0.0.1:9"})
    assert refused.status_code == 404
    for server in ("127.0.0.1:1", "127.0.0.1:2"):
        await eventually(lambda server=server: topom.health.of(server).condition.value == "suspected")
    two.store.fail_before = 1
    assert (await two.ask("a", "POST", "/groups", {"id": 7})).status_code == 503
    found = await figures(two, "a")
    assert 59 < found["sizes_age_seconds",] < 600
    assert found["digest_differences", "127.0.0.1:2"] == 7
    assert found["master_changes_total", "planned", "refused"] == 1
    assert found["master_changes_total", "failover", "done"] == 0
    assert found["servers", "suspected"] == 2
    assert found["servers", "alive"] == 0
    assert found["proxies", "lost"] == 0
    assert found["store_errors_total", "failed", "write"] == 1
    for name in ("keys_moved_total", "bytes_moved_total", "slots_moved_total", "batches", "keys_per_second"):
        assert found[name,] == 0


async def test_a_topom_that_has_not_read_the_store_says_that_it_does_not_lead(topoms: Topoms, tmp_path: Path) -> None:
    topoms.store.cut_off = True
    await topoms.start("a")
    found = await figures(topoms, "a")
    assert found["leads",] == 0
    assert ("table_epoch",) not in found


async def test_outcomes_are_counted_but_not_of_what_was_cancelled() -> None:
    outcomes = Outcomes()

    async def work(error: BaseException | None = None) -> int:
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return 5

    assert await outcomes.of(Kind.PLANNED, work()) == 5
    for error in (Conflict("not now"), ValueError("broken"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            await outcomes.of(Kind.FAILOVER, work(error))
    assert outcomes.counts == {
        (Kind.PLANNED, Outcome.DONE): 1,
        (Kind.FAILOVER, Outcome.REFUSED): 1,
        (Kind.FAILOVER, Outcome.FAILED): 1,
    }


async def test_calls_of_the_store_are_timed_also_those_that_fail() -> None:
    times = StoreTimes()
    inner = MemoryStore()
    store = TimedStore(inner, times)
    await store.book(STATE).write(0, 1, {"a": b"1"})
    assert await store.book(STATE).read() == await inner.book(STATE).read()
    with pytest.raises(StoreError):
        await store.book(STATE).write(0, 1, {"a": b"2"})
    found = {
        (sample.name.removeprefix("slotferry_topom_"), *sample.labels.values()): sample.value
        for family in times.collect()
        for sample in family.samples
    }
    assert found["store_seconds_count", "write"] == 2
    assert found["store_errors_total", "write", "conflict"] == 1
