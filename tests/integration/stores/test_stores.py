"""What every store does: the same tests over SQLite, etcd and ZooKeeper."""

import asyncio
import json
from dataclasses import replace

import pytest

from slots.formats import STORE
from slots.functions import names as slot_functions
from slots.group import Group
from slots.messages.message import Product
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.integration.stores.conftest import Open
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import KnownSizes, SlotSize, Taking
from topom.cluster import changed_records, records
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.store import SIZES, STATE, Leader, Store, StoreConflict, Stored, StoreOfAnotherFormat
from topom.store.sqlite import SqliteStore

ONE, TWO = "1" * 32, "2" * 32
URL = "http://127.0.0.1:1"
LIMIT_SECONDS = 60.0
"""Against hanging only."""


async def test_it_compares_and_swaps(another: Open) -> None:
    store, other = await another(), await another()
    assert await store.book(STATE).read() == Stored(0, {})
    await store.book(STATE).write(0, 1, {"a": b"1", "b/c": b"2", "e": b""})
    with pytest.raises(StoreConflict, match=r"1, not 0.*another topom"):
        await other.book(STATE).write(0, 1, {"a": b"other"})
    await other.book(STATE).write(1, 5, {"a": None, "c,0001": b"3", "never there": None})
    assert await store.book(STATE).read() == Stored(5, {"b/c": b"2", "c,0001": b"3", "e": b""})
    with pytest.raises(StoreConflict, match=r"5, not 1.*another topom"):
        await store.book(STATE).write(1, 2, {"a": b"late"})
    await store.book(STATE).write(5, 6, {"c,0001": None})
    with pytest.raises(StoreConflict):
        await store.book(STATE).write(5, 6, {"a": b"again"})
    assert await other.book(STATE).read() == Stored(6, {"b/c": b"2", "e": b""})


async def test_one_of_many_writers_wins(another: Open) -> None:
    stores = [await another() for _ in range(4)]
    for version in range(5):
        outcomes = await asyncio.gather(
            *(store.book(STATE).write(version, version + 1, {"who": b"%d" % at}) for at, store in enumerate(stores)),
            return_exceptions=True,
        )
        winners = [at for at, outcome in enumerate(outcomes) if outcome is None]
        assert len(winners) == 1, outcomes
        assert all(isinstance(outcome, StoreConflict) for outcome in outcomes if outcome is not None), outcomes
        for store in stores:
            assert await store.book(STATE).read() == Stored(version + 1, {"who": b"%d" % winners[0]})


async def test_documents_of_any_size_and_number(another: Open) -> None:
    """More than one transaction of etcd or ZooKeeper takes is still stored all or nothing."""
    store, other = await another(), await another()
    many = {f"proxies/{number:08d}": b"%d" % number for number in range(300)}
    large = bytes(range(256)) * 5_500  # 1.4 MB
    await store.book(STATE).write(0, 1, {**many, "large": large, "other": b"1"})
    assert await other.book(STATE).read() == Stored(1, {**many, "large": large, "other": b"1"})
    with pytest.raises(StoreConflict):
        await other.book(STATE).write(0, 1, {"large": large[:-1]})
    # The next write may be anybody's, and small.
    await other.book(STATE).write(1, 2, {"large": b"small", "other": None, "proxies/00000007": None})
    del many["proxies/00000007"]
    assert await store.book(STATE).read() == Stored(2, {**many, "large": b"small"})
    await store.book(STATE).write(2, 3, dict.fromkeys([*many, "large"]))
    assert await other.book(STATE).read() == Stored(3, {})
    await store.book(STATE).write(3, 4, {"large": large[:300_000]})
    assert await other.book(STATE).read() == Stored(4, {"large": large[:300_000]})


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"], indirect=True)
async def test_the_largest_table_and_its_changes(another: Open) -> None:
    product = Product(name="p", number_of_slots=16_384, slot_function=slot_functions()[0], databases=16)
    groups = {number: Group(number, (f"10.0.0.{number}:6379", f"10.0.1.{number}:6379")) for number in range(1, 101)}
    slots = tuple(Slot(at, at % 100 + 1, Action(SlotState.PENDING, 1)) for at in range(16_384))
    old = ClusterState(version=1, writer="w", product=product, table=SlotTable(1, slots, groups))
    store, other = await another(), await another()
    await store.book(STATE).write(0, 1, changed_records.differences(None, old))
    assert records.decode(await other.book(STATE).read()) == old
    moved = {slot: 1_700_000_000.0 + slot for slot in range(16_384)}
    table = old.table.changed(2, [replace(slot, action=None) for slot in slots])
    new = replace(old, version=2, table=table, moved=moved)
    await other.book(STATE).write(1, 2, changed_records.differences(old, new))
    assert records.decode(await store.book(STATE).read()) == new


async def test_it_takes_no_sizes_of_another_revision(another: Open) -> None:
    store = await another()
    await store.book(SIZES).write(0, 1, {"a": b"1"})
    with pytest.raises(StoreConflict, match=r"revision 0|1, not 0"):
        await store.book(SIZES).write(0, 1, {"a": b"2"})
    assert await store.book(SIZES).read() == Stored(1, {"a": b"1"})
    assert await store.book(STATE).read() == Stored(0, {})


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"], indirect=True)
async def test_sizes_of_the_largest_table(another: Open) -> None:
    store = await another()
    book = SizeBook(store, 16_384, 60.0, lambda: 1000.0)
    await book.start()
    sizes = {slot: SlotSize(slot, 1, (), 1000.0) for slot in range(16_384)}
    await book.record(Taking(1000.0, 2.0, True), sizes)
    again = SizeBook(await another(), 16_384, 60.0)
    await again.start()
    assert again.known == book.known != KnownSizes()


async def _of_a_later_format(store: Store) -> None:
    """Have a store say that a later version has written it."""
    if isinstance(store, SqliteStore):
        await store.run(lambda connection: connection.execute(f"PRAGMA user_version = {STORE.number + 1}"))
        return
    cells = store.book(STATE)._cells  # type: ignore[attr-defined]
    mark, stamp = await cells.look(STATE)
    later = json.dumps({**json.loads(stamp), "format": STORE.number + 1}).encode()
    await cells.apply(STATE, mark, later, {})


async def test_it_refuses_another_format_and_changes_nothing(another: Open) -> None:
    store, other = await another(), await another()
    await store.book(STATE).write(0, 1, {"a": b"1"})
    await other.book(STATE).catch_up()
    await _of_a_later_format(store)
    sentence = f"has format {STORE.number + 1}, .*reads format {STORE.number}; use the version"
    for act in (
        lambda: other.book(STATE).catch_up(),
        lambda: other.book(STATE).read(),
        lambda: other.book(STATE).write(1, 2, {"a": b"2"}),
    ):
        with pytest.raises(StoreOfAnotherFormat, match=sentence):
            await act()
    # A process that starts now does not take the store for an empty one, wherever the later version keeps things.
    if isinstance(store, SqliteStore):
        await store.run(lambda connection: connection.execute("DROP TABLE documents"))
        with pytest.raises(StoreOfAnotherFormat, match=sentence):
            await another()
        tables = "SELECT name FROM sqlite_master WHERE name = 'documents'"
        assert not await store.run(lambda connection: connection.execute(tables).fetchall())
        return
    with pytest.raises(StoreOfAnotherFormat, match=sentence):
        await (await another()).book(STATE).read()
    cells = store.book(STATE)._cells  # type: ignore[attr-defined]
    assert (await cells.fetch(STATE)).cells


async def test_a_ledger_over_it(another: Open) -> None:
    product = Product(name="p", number_of_slots=64, slot_function="crc32", databases=16)
    old, new = Ledger(await another(), "old"), Ledger(await another(), "new")
    await old.start(product)
    await old.change(lambda state, epoch: replace(state, next_proxy_id=7))
    await new.start(product)
    assert new.state.next_proxy_id == 7
    assert new.state.version == old.state.version + 1


async def test_a_watch_tells_at_once(another: Open) -> None:
    store, other = await another(), await another()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert await store.watch(3, 1000.0) == 0, "it differs already"
        assert await store.watch(0, 0.05) == 0, "nothing has happened"
        for version in range(3):
            watches = [asyncio.create_task(one.watch(version, 1000.0)) for one in (store, other)]
            await asyncio.sleep(0.05 * version)
            await other.book(STATE).write(version, version + 1, {"a": b"1"})
            assert await asyncio.gather(*watches) == [version + 1] * 2
        watch = asyncio.create_task(store.watch(3, 1000.0))
        await asyncio.sleep(0.05)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert watch.cancelled()


async def test_who_campaigns_leads(another: Open) -> None:
    store = await another()
    assert await store.leader() is None
    async with asyncio.timeout(LIMIT_SECONDS):
        first = await store.campaign(ONE, URL, 10.0)
    assert first.valid()
    assert not first.lost.is_set()
    assert await store.leader() == first.leader == Leader(ONE, URL, first.leader.term)
    await first.resign()
    async with asyncio.timeout(LIMIT_SECONDS):
        again = await store.campaign(ONE, URL, 10.0)
    assert again.leader.term > first.leader.term
    await again.resign()
