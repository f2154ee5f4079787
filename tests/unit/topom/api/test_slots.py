"""Clients that read the slot table: whole at first, then what changes, as soon as it does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.cluster import topology
from topom.cluster.tablehistory import TABLES_KEPT
from topom.term.service import Topom
from topom.term.settings import TopomSettings


class Reader:
    """Keeps a table as docs/reading-the-table.md says."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.epoch = 0
        self.slots: dict[int, Slot] = {}
        self.groups: dict[int, Group] = {}

    async def read(self, wait: float = 0) -> dict[str, Any]:
        answer = await self._client.get("/slots", params={"epoch": self.epoch, "wait": wait})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        if found["since"] is None:
            self.slots, self.groups = {}, {}
        else:
            assert found["since"] == self.epoch
        self.slots |= {raw["id"]: Slot.from_wire(raw) for raw in found["slots"]}
        self.groups |= {raw["id"]: Group.from_wire(raw) for raw in found["groups"]}
        for group_id in found["removed_groups"]:
            del self.groups[group_id]
        self.epoch = found["epoch"]
        return found

    @property
    def table(self) -> SlotTable:
        return SlotTable(self.epoch, tuple(self.slots[i] for i in sorted(self.slots)), self.groups)


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2, waiters=2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    await one.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1", "b:1"], "rome"))
    await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(16), 1))
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        yield one


async def test_a_reader_has_the_table_after_every_change(client: httpx.AsyncClient, topom: Topom) -> None:
    reader = Reader(client)
    assert (await reader.read())["since"] is None
    assert reader.table == topom.ledger.table
    for make in (
        lambda table, epoch: topology.add_group(table, epoch, 2, ["c:1"]),
        lambda table, epoch: topology.add_group(table, epoch, 3),
        lambda table, epoch: topology.move(table, epoch, [3, 7], 2),
        lambda table, epoch: topology.remove_server(table, epoch, 1, "b:1"),
        lambda table, epoch: topology.remove_group(table, epoch, 3),
    ):
        await topom.edits.edit(make)
        found = await reader.read()
        assert len(found["slots"]) <= 2
        assert len(found["groups"]) <= 1
        assert reader.table == topom.ledger.table
    assert (await reader.read())["slots"] == []


async def test_a_reader_waits_for_a_newer_table(client: httpx.AsyncClient, topom: Topom) -> None:
    readers = [Reader(client), Reader(client)]
    async with asyncio.timeout(30):
        for reader in readers:
            await reader.read()
        waiting = [asyncio.create_task(reader.read(wait=60)) for reader in readers]
        while topom.waiters.waiting < 2:
            await asyncio.sleep(0.01)
        refused = await client.get("/slots", params={"epoch": readers[0].epoch})
        assert (refused.status_code, refused.json()["error"]) == (503, "TooManyWaiters")
        await topom.orders.set({"paused": True})  # a change, but not of the table
        await asyncio.sleep(0)
        assert topom.waiters.waiting == 2
        await topom.edits.edit(lambda table, epoch: topology.offline(table, epoch, [5]))
        for found in await asyncio.gather(*waiting):
            assert [slot["id"] for slot in found["slots"]] == [5]
        assert (await readers[0].read(wait=0.05))["epoch"] == readers[0].epoch


async def test_a_reader_that_was_away_too_long_gets_all(client: httpx.AsyncClient, topom: Topom) -> None:
    reader = Reader(client)
    await reader.read()
    for number in range(TABLES_KEPT):
        if number % 2:
            await topom.edits.edit(lambda table, epoch: topology.assign(table, epoch, [4], 1))
        else:
            await topom.edits.edit(lambda table, epoch: topology.offline(table, epoch, [4]))
    found = await reader.read()
    assert found["since"] is None
    assert reader.table == topom.ledger.table


async def test_a_newer_table_than_topoms_is_said(client: httpx.AsyncClient, topom: Topom) -> None:
    for wait in (0, 60):
        # The leader knows that at once, even if the client would wait longer.
        async with asyncio.timeout(20):
            answer = await client.get("/slots", params={"epoch": 1000, "wait": wait})
        assert (answer.status_code, answer.json()["error"]) == (409, "TableNewer")
    for wait in (-1, 61):
        assert (await client.get("/slots", params={"epoch": 1, "wait": wait})).status_code == 422
    assert len((await client.get("/slots")).json()["slots"]) == 16
