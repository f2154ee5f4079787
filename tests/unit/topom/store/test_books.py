"""Books over cells in memory, which fail at any point. tests/integration/stores tests real stores."""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import pytest

from topom.store import StoreConflict, Stored, StoreDamaged, StoreError, books
from topom.store.books import CellsBook, Mismatch, Snapshot
from topom.store.lease import Lease
from topom.store.shared import SharedStore

CELL_BYTES = 64
LARGE = bytes(range(256)) + b"end"


@pytest.fixture(autouse=True)
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "CELL_BYTES", CELL_BYTES)


class MemoryCells:
    """Two cells a transaction. ``before`` and ``after`` say at which transactions it fails, and how."""

    most_cells = 2
    most_bytes = 1 << 20

    def __init__(self) -> None:
        self.mark = 0
        self.stamp = b""
        self.cells: dict[str, bytes] = {}
        self.transactions = 0
        self.fail_before: set[int] = set()
        self.fail_after: set[int] = set()
        self.late: set[int] = set()
        self.fetched: list[frozenset[str]] = []
        """The cells that were read by name, for each such read."""
        self.held: list[Callable[[], None]] = []
        """Transactions that failed, and may still be done at any later time."""

    async def look(self, book: str) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        return self.mark, self.stamp

    async def fetch(self, book: str) -> Snapshot:
        await asyncio.sleep(0)
        return Snapshot(self.mark, self.stamp, dict(self.cells))

    async def fetch_some(self, book: str, mark: int, names: Collection[str]) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        if mark != self.mark:
            raise Mismatch
        self.fetched.append(frozenset(names))
        return {name: self.cells[name] for name in names if name in self.cells}

    async def apply(self, book: str, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None]) -> int:
        await asyncio.sleep(0)
        assert len(cells) <= self.most_cells
        number, self.transactions = self.transactions, self.transactions + 1
        if number in self.fail_before:
            raise StoreError("cut off")
        if number in self.late:
            self.held.append(lambda: self._apply(mark, stamp, cells))
            raise StoreError("no answer")
        if mark != self.mark:
            raise Mismatch
        self._apply(mark, stamp, cells)
        if number in self.fail_after:
            raise StoreError("no answer")
        return self.mark

    def come_true(self) -> None:
        """Do the transactions that were held back."""
        for work in self.held:
            work()
        self.held.clear()

    def _apply(self, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None]) -> None:
        if mark != self.mark:
            return
        for name, value in cells.items():
            if value is None:
                self.cells.pop(name, None)
            else:
                self.cells[name] = value
        if stamp is not None:
            self.stamp = stamp
            self.mark += 1


class Shelf(SharedStore):
    """A shared store over such cells."""

    async def open(self) -> None: ...

    async def leader(self) -> None: ...

    async def _changed(self, mark: int, seconds: float) -> None:
        """It tells nothing."""

    async def _stand(self, instance: str, url: str, lease_seconds: float) -> Lease:
        raise AssertionError

    async def _disconnect(self) -> None: ...


async def test_an_own_write_that_comes_true_late_is_not_anothers() -> None:
    cells = MemoryCells()
    book = CellsBook(cells, "b")
    await book.write(0, 1, {"a": b"1"})
    cells.late = {1}
    with pytest.raises(StoreError):
        await book.write(1, 2, {"a": b"2"})
    assert await book.read() == Stored(1, {"a": b"1"})
    cells.come_true()
    with pytest.raises(StoreError, match="after all") as raised:
        await book.write(1, 2, {"a": b"other"})
    assert not isinstance(raised.value, StoreConflict)
    assert await book.read() == Stored(2, {"a": b"2"})
    await book.write(2, 3, {"a": b"3"})
    with pytest.raises(StoreConflict):
        await book.write(2, 3, {"a": b"4"})


async def test_a_late_write_changes_nothing_after_the_next() -> None:
    cells = MemoryCells()
    book = CellsBook(cells, "b")
    await book.write(0, 0, {"a": b"1"})
    cells.late = {1}
    with pytest.raises(StoreError):
        await book.write(0, 0, {"a": b"2"})
    await book.write(0, 0, {"b": b"3"})
    cells.come_true()
    assert await book.read() == Stored(0, {"a": b"1", "b": b"3"})


async def test_a_write_of_the_same_number_is_tried_again_over_anothers() -> None:
    cells = MemoryCells()
    first, second = CellsBook(cells, "b"), CellsBook(cells, "b")
    await first.write(0, 0, {"a": b"1"})
    await second.write(0, 0, {"b": b"2"})
    await first.write(0, 0, {"c": b"3"})
    assert await second.read() == Stored(0, {"a": b"1", "b": b"2", "c": b"3"})


async def test_epochs_the_same_number_of_another_history_is_no_place_to_write_from() -> None:
    """The store was put back, and another topom has taken it as far as this one had."""
    store = MemoryCells()
    one = CellsBook(store, "documents")
    for number in range(3):
        await one.write(number, number + 1, {"a": b"%d" % number})
    saved = store.stamp, dict(store.cells)
    await one.write(3, 4, {"a": b"mine"})
    store.stamp, store.cells = saved
    store.mark += 7
    other = CellsBook(store, "documents")
    await other.write(3, 4, {"a": b"another's"})
    with pytest.raises(StoreConflict, match="another topom has written"):
        await one.write(4, 5, {"b": b"mine"})
    assert (await one.read()).documents == {"a": b"another's"}
    await one.write(4, 5, {"b": b"mine"})


@pytest.mark.parametrize("how", ["fail_before", "fail_after", "late"])
async def test_a_large_write_broken_off_anywhere_is_whole_or_not_there(how: str) -> None:
    """What follows puts the write in its place. That may be broken off, too, and another process goes on."""
    old = {"a": b"1", "gone": b"1", "long": LARGE}
    wanted = {"a": LARGE, "b": b"2", "c": b"3", "long": b"4"}
    point = 0
    while True:
        cells = MemoryCells()
        book = CellsBook(cells, "b")
        await book.write(0, 1, old)
        first = cells.transactions
        setattr(cells, how, {first + point})
        outcomes = []
        for number, documents in ((2, {**wanted, "gone": None}), (3, {"d": b"5"})):
            try:
                await book.write(number - 1, number, documents)
                outcomes.append(number)
            except StoreConflict:
                raise
            except StoreError:
                break
        whole = {1: old, 2: wanted, 3: {**wanted, "d": b"5"}}
        cells.fail_before = cells.fail_after = cells.late = set()
        other = CellsBook(cells, "b")
        found = await other.read()
        number, documents = found.version, found.documents
        assert documents == whole[number], (how, point)
        assert number >= max(outcomes, default=1), "nothing acknowledged is lost"
        cells.come_true()
        # The process that goes on finds it whole, and leaves nothing behind.
        found = await other.read()
        number, documents = found.version, found.documents
        assert documents == whole[number], (how, point)
        await other.write(number, 9, {"e": b"6"})
        for again in range(10, 30):
            assert await other.read() == Stored(again - 1, {**documents, "e": b"6"}), (how, point)
            await other.write(again - 1, again, {})
        used = sum(len(value) // CELL_BYTES + 1 for value in {**documents, "e": b"6"}.values())
        assert len(cells.cells) == used, (how, point, sorted(cells.cells))
        if outcomes == [2, 3]:
            break
        point += 1
    assert point > 5


async def test_what_is_left_over_is_not_taken_from_who_uses_it_again() -> None:
    cells = MemoryCells()
    cells.most_cells = 50
    book, other = CellsBook(cells, "b"), CellsBook(cells, "b")
    await book.write(0, 1, {"a": LARGE})
    await book.write(1, 2, {"a": b"short"})
    assert len(cells.cells) > 1
    await book.read()
    await other.write(2, 3, {"a": LARGE})
    await book.write(3, 4, {"b": b"1"})
    assert await book.read() == Stored(4, {"a": LARGE, "b": b"1"})
    await book.write(4, 5, {"a": b"short"})
    await book.read()
    await book.write(5, 6, {"a": LARGE})
    assert (await book.read()).documents["a"] == LARGE


async def test_damage_is_said() -> None:
    cells = MemoryCells()
    book = CellsBook(cells, "b")
    await book.write(0, 1, {"a": LARGE})
    for name in list(cells.cells):
        kept = cells.cells.pop(name)
        if not name.endswith(",0000"):
            with pytest.raises(StoreDamaged, match="backup"):
                await book.read()
        cells.cells[name] = kept
    cells.stamp = b"{"
    with pytest.raises(StoreDamaged, match="backup"):
        await book.read()


async def test_who_catches_up_reads_only_what_was_changed() -> None:
    cells = MemoryCells()
    writer, reader = CellsBook(cells, "documents"), CellsBook(cells, "documents")
    await writer.write(0, 1, {"a": b"1"})
    await writer.write(1, 2, {"b": b"1"})
    assert await reader.catch_up() == Stored(2, {"a": b"1", "b": b"1"})
    await writer.write(2, 3, {"a": b"2"})
    assert await reader.catch_up() == Stored(3, {"a": b"2", "b": b"1"})
    assert cells.fetched == [{"a,0000"}]
    # When: several writes came, one of them a deletion, and when none came.
    await writer.write(3, 4, {"a": None})
    await writer.write(4, 5, {"c": b"1"})
    for _ in range(2):
        assert await reader.catch_up() == Stored(5, {"b": b"1", "c": b"1"})
    assert cells.fetched == [{"a,0000"}, {"a,0000", "c,0000"}, frozenset()]


async def test_who_catches_up_reads_everything_where_it_is_not_known_what_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(books, "MOST_RECENT", 2)
    cells = MemoryCells()
    writer, reader = CellsBook(cells, "documents"), CellsBook(cells, "documents")
    await writer.write(0, 1, {"a": b"1"})
    await reader.catch_up()
    for version in range(1, 4):
        await writer.write(version, version + 1, {f"d{version}": b"1"})
    assert (await reader.catch_up()).documents.keys() == {"a", "d1", "d2", "d3"}
    assert cells.fetched == [], "more writes came than the stamp names"
    # A write too large for one transaction lies beside the documents first.
    await writer.write(4, 5, {f"e{number}": b"1" for number in range(5)})
    assert len((await reader.catch_up()).documents) == 9
    await writer.write(5, 6, {"a": b"2"})
    assert (await reader.catch_up()).documents["a"] == b"2"
    assert cells.fetched == []
    await writer.write(6, 7, {"a": b"3"})
    assert (await reader.catch_up()).documents["a"] == b"3"
    (fetched,) = cells.fetched
    assert {name for name in fetched if not name.startswith(books.UNSEEN)} == {"a,0000"}
    # When: a write names more cells than a stamp may.
    monkeypatch.setattr(books, "MOST_NAMED", 1)
    await writer.write(7, 8, {"f": b"1", "g": b"1"})
    assert len((await reader.catch_up()).documents) == 11
    assert len(cells.fetched) == 1


@pytest.mark.parametrize("seed", range(20))
async def test_who_catches_up_has_what_is_there_whatever_happened_meanwhile(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """given two writers, small and large writes that fail at any point or are done late, and restored backups."""
    monkeypatch.setattr(books, "MOST_RECENT", 4)
    monkeypatch.setattr(books, "MOST_NAMED", 8)
    chance = random.Random(seed)
    cells = MemoryCells()
    writers = [CellsBook(cells, "documents") for _ in range(2)]
    readers = [CellsBook(cells, "documents") for _ in range(3)]
    backups = [(cells.stamp, dict(cells.cells))]
    for _ in range(300):
        what = chance.random()
        if what < 0.7:
            writer = chance.choice(writers)
            fault = chance.choice((None, None, None, cells.fail_before, cells.fail_after, cells.late))
            if fault is not None:
                fault.add(cells.transactions + chance.randrange(3))
            documents = {
                chance.choice("abcdefgh"): chance.choice((None, chance.randbytes(chance.choice((1, 90, 400)))))
                for _ in range(chance.choice((1, 1, 2, 5)))
            }
            with suppress(StoreError):
                number = (await CellsBook(cells, "documents").look())[1]
                await writer.write(number, number + 1, documents)
        elif what < 0.75:
            cells.come_true()
        elif what < 0.8:
            backups.append((cells.stamp, dict(cells.cells)))
        elif what < 0.82:
            # As if all topoms were stopped and started again, except those that follow.
            cells.held.clear()
            stamp, kept = chance.choice(backups)
            cells.stamp, cells.cells, cells.mark = stamp, dict(kept), cells.mark + 1
            writers = [CellsBook(cells, "documents") for _ in range(2)]
        else:
            assert await chance.choice(readers).catch_up() == await CellsBook(cells, "documents").read()
    assert cells.fetched
