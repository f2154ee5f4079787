"""Groups on their way out: they get nothing new, their slots move to the others, and then they are gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.balance.rebalancing import PlanOptions
from topom.cluster import topology
from topom.cluster.state import leaving_groups
from topom.errors import GroupNotFound
from topom.leaving import groups as leaving
from topom.leaving.groups import LastGroup
from topom.store import Store
from topom.term.service import Topom
from topom.term.settings import TopomSettings

SLOTS = 16
LIMIT = 60.0


@asynccontextmanager
async def started(data: Path, store: Store, mover: FakeMover) -> AsyncIterator[Topom]:
    """A topom in which nothing goes on by itself."""
    settings = TopomSettings.load(None, data=data, number_of_slots=SLOTS, redis_timeout_seconds=0.2)
    one = Topom(settings, store, mover)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    """Slots 0 to 7 in group 1, 8 to 15 in group 2, none in group 3."""
    async with started(tmp_path, MemoryStore(), FakeMover()) as one:
        for group_id in (1, 2, 3):
            await one.edits.edit(
                lambda table, epoch, group_id=group_id: topology.add_group(  # type: ignore[misc]
                    table, epoch, group_id, [f"127.0.0.1:{group_id}", f"127.0.0.1:1{group_id}"]
                )
            )
        await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8), 1))
        await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8, 16), 2))
        yield one


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        yield one


@asynccontextmanager
async def running(topom: Topom) -> AsyncIterator[None]:
    task = asyncio.create_task(topom.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


def counts(topom: Topom) -> dict[int, int]:
    table = topom.ledger.table
    return {group_id: len(table.by_group[group_id]) for group_id in table.groups}


async def test_a_group_is_emptied_and_removed(topom: Topom, client: httpx.AsyncClient) -> None:
    answer = await client.post("/groups/1/drain", params={"why": "its machine is old"})
    (entry,) = answer.json()["leaving"]
    assert (entry["kind"], entry["id"], entry["why"]) == ("group", "1", "its machine is old")
    assert (await client.get("/status")).json()["leaving"] == [entry]
    async with running(topom):
        await until(lambda: 1 not in topom.ledger.table.groups)
    assert counts(topom) == {2: 8, 3: 8}
    assert all(slot.action is None for slot in topom.ledger.table.slots)
    assert (await client.get("/status")).json()["leaving"] == []


@pytest.mark.long
async def test_the_next_topom_goes_on(topom: Topom, tmp_path: Path) -> None:
    await topom.departures.drain(1, "why not")
    store: Any = topom.ledger._store
    async with started(tmp_path, store, FakeMover()) as following, running(following):
        assert leaving_groups(following.ledger.state) == {1}
        await until(lambda: 1 not in following.ledger.table.groups)
        assert counts(following) == {2: 8, 3: 8}


async def test_nothing_new_is_put_there(topom: Topom, client: httpx.AsyncClient) -> None:
    await topom.departures.drain(3, "")
    await topom.edits.edit(lambda table, epoch: topology.offline(table, epoch, [0]))
    for path, slot in (("assign", 0), ("move", 1)):
        answer = await client.post(f"/slots/{path}", json={"slots": str(slot), "group_id": 3})
        assert (answer.status_code, answer.json()["error"]) == (409, "GroupLeaving"), answer.text
        assert "slotferry group drain 3 --cancel" in answer.json()["message"]
    planned = (await client.post("/rebalance", params={"policy": "codis"})).json()
    assert [move for move in planned["moves"] if move["to"] == 3] == []


async def test_a_plan_made_before_begins_nothing_there(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = topom.rebalancing._plan

    async def slow(options: Any, **others: Any) -> Any:
        planned = await plan(options, **others)
        if not leaving_groups(topom.ledger.state):
            assert any(move.target == 3 for move in planned.plan.moves)
            await topom.departures.drain(3, "")
        return planned

    monkeypatch.setattr(topom.rebalancing, "_plan", slow)
    await topom.rebalancing.rebalance(PlanOptions(), dry_run=False)
    assert [slot.id for slot in topom.ledger.table.slots if slot.destination_id == 3] == []


async def test_who_comes_back_is_taken_off_the_list(topom: Topom, client: httpx.AsyncClient) -> None:
    await topom.departures.drain(1, "")
    await topom.rebalancing.empty(frozenset({1}))
    assert all(slot.destination_id != 1 for slot in topom.ledger.table.slots)
    assert (await client.delete("/groups/1/drain")).json() == {"leaving": []}
    assert all(slot.action is None for slot in topom.ledger.table.slots)
    assert counts(topom) == {1: 8, 2: 8, 3: 0}


async def test_what_was_on_its_way_there_and_waits_stays_where_it_is(topom: Topom) -> None:
    await topom.edits.edit(lambda table, epoch: topology.move(table, epoch, [0, 1], 3))
    under_way = [Slot(0, 1, Action(SlotState.MIGRATING, 3))]
    await topom.edits.edit(lambda table, epoch: topology.with_slots(table, epoch, under_way))
    await topom.departures.drain(3, "")
    state = topom.ledger.state
    assert state.table.slots[0] == under_way[0], "it arrives, and leaves again"
    assert state.table.slots[1] == Slot(1, 1)
    assert leaving.without_empty(state, 99) is state
    arrived = replace(state, table=topology.with_slots(state.table, 99, [Slot(0, 1)]))
    assert 3 not in leaving.without_empty(arrived, 100).table.groups


async def test_what_cannot_leave(topom: Topom, client: httpx.AsyncClient) -> None:
    with pytest.raises(GroupNotFound):
        await topom.departures.drain(9, "")
    with pytest.raises(GroupNotFound, match="it may have left already: slotferry events"):
        await topom.departures.keep(9)
    for group_id in (1, 2):
        await topom.departures.drain(group_id, "")
    with pytest.raises(LastGroup, match="add one with a server first"):
        await topom.departures.drain(3, "")


async def test_a_replica_leaves_at_once_and_a_master_is_listed(topom: Topom, client: httpx.AsyncClient) -> None:
    answer = await client.post("/groups/1/servers/127.0.0.1:11/drain")
    assert answer.json()["servers"] == ["127.0.0.1:1"]
    listed = await client.post("/groups/1/servers/127.0.0.1:1/drain", params={"why": "old"})
    assert (listed.status_code, listed.json()["servers"]) == (200, ["127.0.0.1:1"])
    (entry,) = (await client.get("/status")).json()["leaving"]
    assert (entry["kind"], entry["id"], entry["why"]) == ("server", "127.0.0.1:1", "old")
    assert "add a replica" in entry["reason"]["to_do"]
    assert entry["reason"]["kind"] == "operator"
    refused = await client.post("/groups/1/promote", json={"server": "127.0.0.1:1"})
    assert (refused.status_code, refused.json()["error"]) == (409, "ServerLeaving")
    assert (await client.delete("/groups/1/servers/127.0.0.1:1/drain")).json()["servers"] == ["127.0.0.1:1"]
    assert (await client.get("/status")).json()["leaving"] == []


async def test_a_group_leaves_with_its_master(topom: Topom, client: httpx.AsyncClient) -> None:
    await client.post("/groups/1/servers/127.0.0.1:1/drain")
    await client.post("/groups/1/drain")
    (_, entry) = (await client.get("/status")).json()["leaving"]
    assert entry["reason"]["what"] == "8 slots have to move to other groups first"
    async with running(topom):
        await until(lambda: not topom.ledger.state.leaving)
    assert 1 not in topom.ledger.table.groups


async def test_two_groups_that_are_empty_go_together_and_a_locked_one_waits(topom: Topom) -> None:
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 4, ["127.0.0.1:4", "127.0.0.1:14"]))
    for group_id in (3, 4):
        await topom.departures.drain(group_id, "")
    # When: one of them is locked, and unlocked again.
    await topom.edits.edit(lambda table, epoch: topology.lock_group(table, epoch, 4))
    state = await topom.ledger.change(leaving.without_empty)
    assert sorted(state.table.groups) == [1, 2, 4]
    assert leaving_groups(state) == {4}
    await topom.edits.edit(lambda table, epoch: topology.unlock_group(table, epoch, 4))
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 3, ["127.0.0.1:3"]))
    await topom.departures.drain(3, "")
    # Then: both are gone, in one change of the table.
    state = await topom.ledger.change(leaving.without_empty)
    assert sorted(state.table.groups) == [1, 2]
    assert not state.leaving


async def test_a_node_is_listed_and_gets_nothing_new(topom: Topom, client: httpx.AsyncClient) -> None:
    answer = await client.post("/nodes/127.0.0.1/drain", params={"why": "old"})
    (entry,) = answer.json()["leaving"]
    assert (entry["kind"], entry["id"], entry["why"]) == ("node", "127.0.0.1", "old")
    assert entry["reason"]["what"] == "6 of its servers are in groups"
    # When: it is told again.
    for why, shown in (("its disk fails", "its disk fails"), ("", "its disk fails")):
        answer = await client.post("/nodes/127.0.0.1/drain", params={"why": why} if why else {})
        assert [entry["why"] for entry in answer.json()["leaving"]] == [shown]
    refused = await client.post("/pool", json={"address": "127.0.0.1:22"})
    assert (refused.status_code, refused.json()["error"]) == (409, "NodeLeaving")
    refused = await client.post("/groups/1/servers", json={"address": "127.0.0.1:21", "offline_ok": True})
    assert (refused.status_code, refused.json()["error"]) == (409, "NodeLeaving")
    assert (await client.delete("/nodes/127.0.0.1/drain")).json() == {"leaving": []}
    assert (await client.delete("/nodes/127.0.0.1/drain")).status_code == 404
    assert (
        await client.post("/groups/1/servers", json={"address": "127.0.0.1:21", "offline_ok": True})
    ).status_code == 201
    # Then: it is to be filled, although it does not answer yet.
    (group, *_) = (await client.get("/groups")).json()["groups"]
    assert [server["joining"] for server in group["servers"]] == [False, True, True]
    forced = await client.post("/groups/1/promote", json={"server": "127.0.0.1:21", "force": True})
    assert (forced.status_code, forced.json()["error"]) == (409, "NotWhole")


async def test_a_body_that_would_do_nothing_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("/groups/1/drain", "/groups/1/servers/a:1/drain", "/nodes/n/drain", "/proxies/1/drain"):
        answer = await client.post(path, json={"why": "its machine is old"})
        assert (answer.status_code, answer.json()["error"]) == (422, "BodyNotTaken"), path
    assert (await client.post("/groups/1/drain", json={})).status_code == 200
