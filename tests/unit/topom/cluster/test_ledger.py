"""The one writer over the store: it stores before it tells, one change after the other."""

import asyncio
import time

import pytest

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import PRODUCT, Bench, MemoryStore
from topom.cluster import ledger, topology
from topom.cluster.ledger import Ledger, LostPlace, ProductMismatch
from topom.errors import GroupExists
from topom.store import StoreError


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


async def test_a_failed_write_is_told_until_one_succeeds_and_the_ledger_tries_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "FIRST_WAIT_SECONDS", 0.01)
    bench = await Bench().start()
    bench.store.fail_before = 1_000_000
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    first = bench.ledger.unstored
    assert first is not None
    assert "disk is full" in first.what
    await eventually(lambda: bench.store.fail_before <= 999_998)
    assert bench.ledger.unstored is not None
    assert bench.ledger.unstored.since == first.since
    epoch = bench.ledger.table.epoch
    bench.store.fail_before = 1
    await eventually(lambda: bench.ledger.unstored is None)
    assert (bench.store.fail_before, bench.store.version) == (0, bench.ledger.state.version)
    assert bench.ledger.table.epoch == epoch, "proxies hear nothing of it"


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
        await Ledger(store, "w").start(PRODUCT.model_copy(update={"slot_function": "crc16"}))


async def test_a_start_unlocks() -> None:
    store = MemoryStore()
    bench = await Bench(store).start()
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1"]))
    await bench.edit(lambda table, epoch: table.changed(epoch, [Slot(3, 0, Action(SlotState.PREPARED, 1, epoch=2))]))
    again = await Bench(store).start()
    assert again.ledger.table.slots[3].action == Action(SlotState.PREPARING, 1, epoch=2)
    assert again.ledger.table.epoch > bench.ledger.table.epoch


async def test_it_is_stored_since_when_slots_are_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "time", lambda: now)
    store = MemoryStore()
    one = await Bench(store).start()
    every = range(PRODUCT.number_of_slots)

    def since() -> float | None:
        return one.ledger.state.offline_since

    assert since() == 100.0
    now = 200.0
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["s1:6379"]))
    await one.edit(lambda table, epoch: topology.assign(table, epoch, every[1:], 1))
    assert since() == 100.0, "one is offline from the beginning on"
    await one.edit(lambda table, epoch: topology.assign(table, epoch, every[:1], 1))
    assert since() is None
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [3]))
    now = 300.0
    await one.edit(lambda table, epoch: topology.offline(table, epoch, [5]))
    assert since() == 200.0
    one = await Bench(store).start()
    assert since() == 200.0, "another topom goes on from that"
