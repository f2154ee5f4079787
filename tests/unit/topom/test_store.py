"""The store on disk, the documents in it, and the one writer over it."""

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from slots.states import SlotState
from slots.table import Action, Group, Slot, SlotTable
from tests.unit.topom.topom_fakes import PRODUCT, Bench, MemoryStore
from topom import topology
from topom.errors import GroupExists
from topom.ledger import Ledger, LostPlace, ProductMismatch
from topom.state import ClusterState, Fenced, Product, ProxyRecord
from topom.store import Stored, StoreDamaged, StoredScripts, StoreError, records
from topom.store.sqlite import SqliteStore

FULL = ClusterState(
    version=7,
    writer="w",
    product=Product("p", 512, "crc32", 16),
    table=SlotTable(
        5,
        tuple(Slot(i, i % 3, Action(SlotState.MIGRATING, 1) if i % 7 == 0 else None) for i in range(512)),
        {1: Group(1, ("a:1", "b:1"), {"b:1": "paris"}), 2: Group(2)},
    ),
    next_proxy_id=4,
    proxies={3: ProxyRecord(3, "1" * 32, "h:1", "host", 5, 2, "0.1.0")},
    fenced={"2" * 32: Fenced("2" * 32, 1, frozenset({"a:1", "b:1"}))},
    migration_changes={"paused": True, "keys_per_second": 10},
)


def whole(state: ClusterState) -> dict[str, bytes]:
    return {name: value for name, value in records.differences(None, state).items() if value is not None}


def test_documents_hold_everything() -> None:
    assert records.decode(Stored(7, whole(FULL))) == FULL
    assert records.decode(Stored(0, {})) is None


def test_groups_stored_before_servers_had_datacenters() -> None:
    groups = [{"id": 1, "servers": ["a:1", "b:1"]}, {"id": 2, "servers": []}]
    state = records.decode(Stored(7, {**whole(FULL), "groups": json.dumps(groups).encode()}))
    assert state is not None
    assert state.table.groups == {1: Group(1, ("a:1", "b:1")), 2: Group(2)}


def test_only_what_differs_is_written() -> None:
    moved = FULL.table.changed(8, [Slot(300, 2)])
    new = replace(FULL, version=8, table=moved, proxies={}, fenced=dict(FULL.fenced))
    documents = records.differences(FULL, new)
    assert set(documents) == {"cluster", "slots/0001", "proxies/00000003"}
    assert documents["proxies/00000003"] is None
    stored = whole(FULL)
    for name, value in documents.items():
        if value is None:
            del stored[name]
        else:
            stored[name] = value
    assert records.decode(Stored(8, stored)) == new


@pytest.mark.parametrize("name", ["cluster", "slots/0001", "groups", "migration"])
def test_damage_is_said(name: str) -> None:
    documents = whole(FULL)
    with pytest.raises(StoreDamaged, match="backup"):
        records.decode(Stored(7, {key: value for key, value in documents.items() if key != name}))
    with pytest.raises(StoreDamaged):
        records.decode(Stored(7, {**documents, name: b"{"}))


async def test_sqlite_keeps_what_it_has(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    await store.write(0, 1, {"a": b"1"})
    await store.close()
    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert await store.read() == Stored(1, {"a": b"1"})
    await store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_store_from_before_there_were_scripts(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    await store.write(0, 1, {"a": b"1"})
    await store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        connection.executescript("DROP TABLE scripts; DROP TABLE generation;")
    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert await store.read_scripts() == StoredScripts(0, [])
    assert await store.read() == Stored(1, {"a": b"1"})
    await store.close()


async def test_sqlite_failure_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    store = SqliteStore(tmp_path / "s")
    with pytest.raises(StoreError, match="free space"):
        await store.open()
    await store.close()


async def test_the_ledger_stores_before_it_tells() -> None:
    bench = await Bench().start()
    told: list[int] = []
    bench.ledger.listen(lambda old, new: told.append(bench.store.version))
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert told == [bench.ledger.state.version] == [2]
    assert bench.ledger.table.epoch == 2
    await bench.edit(lambda table, epoch: table)
    assert bench.store.version == 2, "nothing changed, nothing is written"
    with pytest.raises(GroupExists):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert bench.store.version == 2


async def test_changes_run_one_after_the_other() -> None:
    bench = await Bench().start()
    await asyncio.gather(
        *(
            bench.edit(lambda table, epoch, group_id=group_id: topology.add_group(table, epoch, group_id))  # type: ignore[misc]
            for group_id in range(1, 9)
        )
    )
    assert sorted(bench.ledger.table.groups) == list(range(1, 9))


async def test_a_cancelled_caller_does_not_stop_a_change() -> None:
    bench = await Bench().start()
    task = asyncio.create_task(bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bench.until(lambda table: 1 in table.groups)
    assert bench.store.version == bench.ledger.state.version


async def test_a_failed_write_changes_nothing() -> None:
    bench = await Bench().start()
    bench.store.fail_before = 1
    with pytest.raises(StoreError, match="disk is full"):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert not bench.ledger.table.groups
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    assert sorted(bench.ledger.table.groups) == [2]


async def test_a_write_that_failed_and_is_stored_is_found() -> None:
    bench = await Bench().start()
    told: list[int] = []
    bench.ledger.listen(lambda old, new: told.append(new.table.epoch))
    bench.store.fail_after = 1
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert told == []
    await bench.ledger.confirm()
    assert sorted(bench.ledger.table.groups) == [1]
    assert told == [2]


async def test_epochs_a_topom_that_lost_its_place_changes_nothing() -> None:
    store = MemoryStore()
    old = await Bench(store).start()
    new = await Bench(store).start()
    assert new.ledger.table.epoch > old.ledger.table.epoch
    with pytest.raises(LostPlace):
        await old.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert old.ledger.lost.is_set()
    await new.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    with pytest.raises(LostPlace):
        await old.edit(lambda table, epoch: topology.add_group(table, epoch, 1))


async def test_a_lost_place_is_seen_after_a_failed_write_too() -> None:
    store = MemoryStore()
    old = await Bench(store).start()
    store.fail_before = 1
    with pytest.raises(StoreError):
        await old.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    await Bench(store).start()
    with pytest.raises(LostPlace):
        await old.ledger.confirm()


async def test_a_store_of_another_product_is_refused() -> None:
    store = MemoryStore()
    await Bench(store).start()
    with pytest.raises(ProductMismatch, match="data folder"):
        await Ledger(store, "w").start(replace(PRODUCT, slot_function="crc16"))


async def test_a_start_unlocks() -> None:
    store = MemoryStore()
    bench = await Bench(store).start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1"]))
    await bench.edit(lambda table, epoch: table.changed(epoch, [Slot(3, 0, Action(SlotState.PREPARED, 1))]))
    again = await Bench(store).start()
    assert again.ledger.table.slots[3].action == Action(SlotState.PREPARING, 1)
    assert again.ledger.table.epoch > bench.ledger.table.epoch


def test_skipped_slots_are_stored_with_their_reasons() -> None:
    skipped = replace(FULL, skipped={3: "too large", 300: ""})
    documents = records.differences(FULL, skipped)
    assert set(documents) == {"cluster", "skipped"}
    stored = Stored(7, {name: value for name, value in whole(skipped).items() if value is not None})
    found = records.decode(stored)
    assert found is not None
    assert found.skipped == {3: "too large", 300: ""}
    assert "skipped" not in whole(FULL), "a store from before there were skipped slots is read as it is"
