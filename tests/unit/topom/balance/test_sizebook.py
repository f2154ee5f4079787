"""Sizes that are kept in the store: over restarts, only what changes, and never half."""

from pathlib import Path

import pytest

from tests.unit.topom.balance.measurements import BIGGEST, NOW, sized, taking
from tests.unit.topom.topom_fakes import MemoryStore
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import KnownSizes, Prefix
from topom.store import STATE, StoreError
from topom.store.sqlite import SqliteStore


async def test_only_documents_that_change_are_written() -> None:
    store = MemoryStore()
    book = SizeBook(store, 256, 60.0, lambda: NOW)
    await book.record(taking(), {0: sized(1)})
    before = dict(store.sizes)
    assert sorted(before) == ["slots/0000", "slots/0001", "slots/0002", "slots/0003", "taking"]
    await book.record(taking(complete=False), {70: sized(5)})
    assert {name for name, value in store.sizes.items() if value is not before[name]} == {"taking", "slots/0001"}


async def test_a_failed_write_changes_nothing_and_the_next_one_holds() -> None:
    store = MemoryStore()
    book = SizeBook(store, 16, 60.0, lambda: NOW)
    await book.start()
    store.fail_before = 1
    with pytest.raises(StoreError):
        await book.record(taking(), {0: sized(1)})
    assert book.known == KnownSizes()
    store.fail_after = 1
    with pytest.raises(StoreError):
        await book.record(taking(complete=False), {0: sized(1)})
    await book.record(taking(complete=False), {1: sized(2)})
    assert book.known.slots == {0: sized(1), 1: sized(2)}, "the write that failed was in the store all the same"


async def test_sizes_that_cannot_be_read_are_measured_again() -> None:
    store = MemoryStore()
    store.sizes, store.revision = {"slots/0000": b"{"}, 3
    book = SizeBook(store, 16, 60.0, lambda: NOW)
    await book.start()
    assert book.known == KnownSizes()
    await book.record(taking(), {})
    assert len(book.known.slots) == 16


async def test_sizes_are_kept_over_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    await store.open()
    book = SizeBook(store, 256, 60.0, lambda: NOW)
    await book.start()
    assert book.known == KnownSizes()
    prefixes = (Prefix(1, "user:\\xff<b>", 3, 400), Prefix(0, "", 1, 7))
    part = taking(complete=False, missing={"a:1": "timed out"}, sampled=0.5, bytes=507, keys=4, prefixes=prefixes)
    await book.record(part, {0: sized(500, biggest=BIGGEST), 200: sized(7)})
    await book.record(taking(NOW - 1, complete=False), {1: sized(3, NOW - 1)})
    await store.close()

    store = SqliteStore(tmp_path / "s")
    await store.open()
    assert (await store.book(STATE).read()).version == 0, "they have no part in the version of the state"
    again = SizeBook(store, 256, 60.0, lambda: NOW)
    await again.start()
    assert again.known == book.known
    assert again.known.slots == {0: sized(500, biggest=BIGGEST), 1: sized(3, NOW - 1), 200: sized(7)}
    assert again.known.last == part
    await again.record(taking(NOW + 1), {5: sized(9, NOW + 1)})
    assert again.known.slots[0] == sized(0, NOW + 1, keys=0)
    await store.close()
