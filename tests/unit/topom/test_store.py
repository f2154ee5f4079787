"""The store on disk, the documents in it, and the one writer over it."""

import asyncio
import json
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slots.states import SlotState
from slots.table import Action, Group, Slot, SlotTable, TableError
from tests.unit.topom.topom_fakes import PRODUCT, Bench, MemoryStore
from topom.balance import size_records
from topom.balance.sizes import KnownSizes, SlotSize, Taking
from topom.cluster import fences, records, topology
from topom.cluster.events import Event
from topom.cluster.ledger import Ledger, LostPlace, ProductMismatch
from topom.cluster.placement_run import Kept, Run, Step
from topom.cluster.speed import PairSpeed
from topom.cluster.state import (
    ClusterState,
    Differs,
    Fenced,
    Joining,
    Leaving,
    Lifting,
    Marked,
    Noted,
    PoolServer,
    Product,
    Promotion,
    ProxyRecord,
)
from topom.errors import GroupExists, MovesUnderWay
from topom.store import STATE, Stored, StoreDamaged, StoreError, sqlite
from topom.store.sqlite import SqliteStore
from topom.term.settings import TopomSettings

FULL = ClusterState(
    version=7,
    writer="w",
    product=Product("p", 512, "crc32", 16),
    table=SlotTable(
        5,
        tuple(Slot(i, i % 3, Action(SlotState.MIGRATING, 1) if i % 7 == 0 else None) for i in range(512)),
        {1: Group(1, ("a:1", "b:1"), {"b:1": "paris"}, nodes={"a:1": "n1"}, unread=frozenset({"b:1"})), 2: Group(2)},
    ),
    next_proxy_id=4,
    proxies={3: ProxyRecord(3, "1" * 32, "h:1", "host", 5, 2, "0.1.0")},
    fenced={"2" * 32: Fenced("2" * 32, 1, 3, 5.0)},
    last_fence=3,
    marked={"a:1": Marked("process", 3)},
    came={"b:1": 2},
    migration_changes={"paused": True, "keys_per_second": 10},
    joining={"b:1": Joining("b:1", wipe=True)},
    pool={"d:1": PoolServer("d:1", "n2", "rome", wipe=True), "e:1": PoolServer("e:1")},
    offsets={1: Noted("a:1", "5" * 40, 2**50), 63: Noted("h:1", "", 0), 64: Noted("i:1", "s", 7)},
    differing={"b:1": Differs("b:1", 1, 3, 2, "4-5", 9.0)},
    run_ids={"a:1": "1" * 40},
    priorities={"b:1": 100, "10.0.0.9:6379": 20},
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


def of_a_newer_version(value: Any, key: str = "") -> Any:
    """Every record with a field more."""
    if isinstance(value, dict):
        # Migration settings and these are no records but values by their names.
        by_name = key in (
            "skipped",
            "moved",
            "promotions",
            "priorities",
            "datacenters",
            "nodes",
            "copies",
            "marked",
            "came",
            "run_ids",
        )
        return {name: of_a_newer_version(one, name) for name, one in value.items()} | ({} if by_name else {"new": 1})
    return [of_a_newer_version(one, key) for one in value] if isinstance(value, list) else value


def test_what_a_newer_version_stores_is_read_without_what_is_new() -> None:
    state = replace(
        FULL,
        leaving={
            "group/2": Leaving("group", "2", "old", 1.0),
            "node/n1": Leaving("node", "n1", "old", 1.0, {"2": 3}),
        },
        promotions={1: Promotion("b:1", "a:1")},
        speed=PairSpeed(1.0, 2.0),
        skipped={3: "full"},
        sentinels=("c:1",),
        protection_lifted=Lifting("operator ada", 1.0, 3, 4),
        placement=Kept(True, Run(1.0, "topom", (Step(1, 1, "copy", "n2", "d:1", instead_of=("b:1",)),))),
        events=(Event(1, 1.0, "w", "unheard_of", "something", 4, 5),),
    )
    documents = {name: of_a_newer_version(json.loads(value), name) for name, value in whole(state).items()}
    documents["events/00000000"] = [[*event, "new"] for event in documents["events/00000000"]]
    found = records.decode(Stored(7, {name: json.dumps(value).encode() for name, value in documents.items()}))
    assert found is not None
    assert found.migration_changes == {**state.migration_changes, "new": 1}
    assert replace(found, migration_changes=state.migration_changes) == state
    settings = TopomSettings.load(None).migration_settings()
    assert found.migration(settings) == state.migration(settings)
    assert found.migration(settings).keys_per_second == 10


def test_sizes_of_a_newer_version_are_read() -> None:
    known = KnownSizes({3: SlotSize(10, 1, (), 5.0)}, Taking(5.0, 1.0, True))
    documents = {name: json.loads(value) for name, value in size_records.differences(KnownSizes(), known).items()}
    documents["taking"]["new"] = 1
    documents["slots/0000"]["3"].append("new")
    stored = Stored(1, {name: json.dumps(value).encode() for name, value in documents.items()})
    assert size_records.decode(stored) == known


@pytest.mark.parametrize(("name", "value"), [("proxies/00000003", {"id": 3}), ("leaving", ["id"]), ("speed", 1)])
def test_a_record_without_what_it_needs_is_damage(name: str, value: Any) -> None:
    with pytest.raises(StoreDamaged):
        records.decode(Stored(7, {**whole(FULL), name: json.dumps(value).encode()}))


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
    await store.book(STATE).write(0, 1, {"a": b"1"})
    await store.close()
    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert await store.book(STATE).read() == Stored(1, {"a": b"1"})
    await store.close()
    with sqlite3.connect(tmp_path / "s") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


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
    await bench.edit(lambda table, epoch: table.changed(epoch, [Slot(3, 0, Action(SlotState.PREPARED, 1, epoch=2))]))
    again = await Bench(store).start()
    assert again.ledger.table.slots[3].action == Action(SlotState.PREPARING, 1, epoch=2)
    assert again.ledger.table.epoch > bench.ledger.table.epoch


async def test_a_start_begins_anew_or_refuses_what_an_earlier_version_had_under_way() -> None:
    store = MemoryStore()
    bench = await Bench(store).start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1"]))
    await bench.edit(lambda table, epoch: table.changed(epoch, [Slot(3, 0, Action(SlotState.PREPARED, 1))]))
    again = await Bench(store).start()
    assert again.ledger.table.slots[3].action == Action(SlotState.PENDING, 1)
    await again.edit(lambda table, epoch: table.changed(epoch, [Slot(3, 0, Action(SlotState.MIGRATING, 1))]))
    stored = await store.book(STATE).read()
    with pytest.raises(MovesUnderWay, match="slots 3 are on their way"):
        await Bench(store).start()
    assert await store.book(STATE).read() == stored, "the version before can go on"


async def test_what_the_version_before_stored_of_the_way_that_keys_go_is_passed_over() -> None:
    store = MemoryStore()
    bench = await Bench(store).start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1"]))
    migrating = Slot(3, 0, Action(SlotState.MIGRATING, 1, epoch=2, min_replicas=1))
    await bench.edit(lambda table, epoch: table.changed(epoch, [migrating]))
    [name] = [name for name in store.documents if name.startswith("slots/")]
    text = store.documents[name].decode()
    assert '"min_replicas":1' in text
    store.documents[name] = text.replace('"min_replicas":1', '"carried":true').encode()
    store.documents["migration"] = b'{"way": "carried", "keys_per_second": 7}'
    again = await Bench(store).start()
    assert again.ledger.table.slots[3].action == Action(SlotState.MIGRATING, 1, epoch=2)
    assert again.actions.settings.keys_per_second == 7


@pytest.mark.parametrize("value", [-1, 101, True, 1.0, "1", None, [1]])
def test_a_number_of_replicas_that_cannot_be_one_is_refused(value: object) -> None:
    action = Action(SlotState.MIGRATING, 1, min_replicas=100)
    wire = Slot(3, 0, action).to_wire()
    assert Slot.from_wire(wire).action == action
    wire["action"]["min_replicas"] = value
    with pytest.raises(TableError, match="min_replicas"):
        Slot.from_wire(wire)


def test_skipped_slots_are_stored_with_their_reasons() -> None:
    skipped = replace(FULL, skipped={3: "too large", 300: ""})
    documents = records.differences(FULL, skipped)
    assert set(documents) == {"cluster", "skipped"}
    stored = Stored(7, {name: value for name, value in whole(skipped).items() if value is not None})
    found = records.decode(stored)
    assert found is not None
    assert found.skipped == {3: "too large", 300: ""}
    assert "skipped" not in whole(FULL), "a store from before there were skipped slots is read as it is"


async def test_a_disk_that_hangs_fails_calls_in_time_and_only_as_long_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    back = threading.Event()
    real = sqlite._SqliteBook._write

    def hanging(*arguments: Any) -> None:
        back.wait(60)
        real(*arguments)

    monkeypatch.setattr(sqlite._SqliteBook, "_write", hanging)
    monkeypatch.setattr(sqlite, "CALL_SECONDS", 0.05)
    with pytest.raises(StoreError, match=r"hangs: a call did not come back within 0.05 s"):
        await store.book(STATE).write(0, 1, {"a": b"1"})
    with pytest.raises(StoreError, match="an earlier call has not come back"):
        await store.book(STATE).read()
    # The process can end meanwhile.
    await asyncio.wait_for(store.close(), 5)
    monkeypatch.setattr(sqlite, "CALL_SECONDS", 10.0)
    other = SqliteStore(tmp_path / "s")
    assert (await other.book(STATE).read()).version == 0
    back.set()
    async with asyncio.timeout(10):
        while (await other.book(STATE).read()).version == 0:
            await asyncio.sleep(0.01)
    await other.close()


async def test_a_store_goes_on_when_its_disk_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    back = threading.Event()
    monkeypatch.setattr(sqlite, "CALL_SECONDS", 0.05)
    real = sqlite._SqliteBook.read_version

    def hanging(*arguments: Any) -> int:
        back.wait(60)
        return real(*arguments)

    monkeypatch.setattr(sqlite._SqliteBook, "read_version", hanging)
    with pytest.raises(StoreError, match="hangs"):
        await store.book(STATE).read()
    back.set()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await store.book(STATE).read() == Stored(0, {})
            except StoreError:
                await asyncio.sleep(0.01)
            else:
                break
    await store.close()


def test_a_thousand_fences_of_a_thousand_groups_are_small() -> None:
    """Well within what etcd takes in one request, 1.5 MB, and ZooKeeper in one node, 1 MB."""
    groups = {
        number: Group(number, (f"10.0.{number % 250}.1:{number}", f"10.1.0.1:{number}")) for number in range(1000)
    }
    servers = [server for group in groups.values() for server in group.servers]
    members = {
        number: ProxyRecord(number, f"{number:032x}", "h:1", "host", 5, 2, "0", stand_down=5.0)
        for number in range(1000)
    }
    before = replace(FULL, table=SlotTable(5, FULL.table.slots, groups), proxies=members, fenced={}, marked={}, came={})
    fenced = fences.added(replace(before, unwatched=frozenset(servers)), members.values())
    # At one server they are not up: so none is forgotten.
    state = fences.set_at(fenced, {server: Marked("f" * 40, fenced.last_fence) for server in servers[1:]})
    documents = {
        name: value
        for name, value in records.differences(before, replace(state, unwatched=frozenset())).items()
        if value
    }
    assert len(state.fenced) == 1000
    assert sum(map(len, (value for name, value in documents.items() if name.startswith("fenced/")))) < 110_000
    assert len(documents["fences"]) < 280_000
    assert sum(map(len, documents.values())) < 400_000
    assert records.decode(Stored(7, whole(state))) == state
    over = fences.set_at(state, {servers[0]: Marked("f" * 40, fenced.last_fence)})
    assert (over.fenced, over.marked, over.came) == ({}, {}, {})
