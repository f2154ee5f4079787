"""Books of named documents in a store of small cells: what etcd and ZooKeeper have in common.

A *book* is a set of documents with a *stamp*: the number of the last write, and an id that only that write has. A
document is kept in *cells* that are small enough for the store. The store itself gives each stamp a *mark*. Every write
names the mark of the stamp from which it was made (**epochs**), so it counts only if nothing was written in between.

A write that is too large for one transaction of the store is first put beside the documents, unseen. Then it counts at
once, with the stamp that says so. Readers lay it over the documents. The next write first puts it in its place; that
may be broken off, and any topom may do it again.

The stamp also says which cells the latest writes have changed. So a reader that catches up reads only the cells that
were changed since, as long as the stamp still names the writes in between. Cells that a broken-off write has left
belong to nothing. A reader of everything finds them, and every new leader reads everything.

A write of unknown outcome may still come true at any later time, until another write has. So its id is kept: a writer
that finds it in the stamp is not told that another topom has written.
"""

import asyncio
import base64
import json
import secrets
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import quote, unquote

from slots.formats import STORE
from topom.store import Book, StoreConflict, Stored, StoreDamaged, StoreError, require_format

CELL_BYTES = 256 * 1024
"""The largest size of one cell."""
CELL_OVERHEAD_BYTES = 256
"""What a store may need for a cell, besides its value."""
UNKNOWN_KEPT = 64
"""How many writes of unknown outcome have their ids remembered. The store is read again before each next write."""
MOST_RECENT = 32
"""For how many writes the stamp names their cells."""
MOST_NAMED = 128
"""How many cells it names, for all these writes together."""
TRIES = 5
"""How often a write is tried, if other writes to the same number come in between."""
UNSEEN = "!"
"""The beginning of the names of cells that hold a write that was too large; no document's cells have it."""


class Mismatch(Exception):
    """The book has another mark: nothing was changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All cells of a book as of one mark; mark 0 and no stamp for a book that was never written to."""

    mark: int
    stamp: bytes
    cells: Mapping[str, bytes]


class Cells(Protocol):
    """What a store must be able to do. Every method has a time limit and raises :class:`StoreError`.

    Attributes:
        most_cells, most_bytes: what one transaction may hold besides the stamp.
    """

    most_cells: int
    most_bytes: int

    async def look(self, book: str) -> tuple[int, bytes]:
        """The mark and the stamp, no older than this call."""

    async def fetch(self, book: str) -> Snapshot:
        """All cells, no older than this call."""

    async def fetch_some(self, book: str, mark: int, names: Collection[str]) -> Mapping[str, bytes]:
        """Those of these cells that exist, as of this mark. Raises :class:`Mismatch` if the book has another by now."""

    async def apply(self, book: str, mark: int, stamp: bytes | None, cells: Mapping[str, bytes | None]) -> int:
        """Put cells (delete those that are None; they may be missing) and the stamp (None: leave it), all or nothing.

        The call is sent to the store at most once.

        Returns:
            The new mark: ``mark`` itself if the stamp is left as it is.

        Raises:
            Mismatch: the mark is not ``mark``; nothing was changed.
            StoreError: the outcome is unknown.
        """


@dataclass(frozen=True, slots=True)
class Stamp:
    """The stamp of a book, which says the format of all that the store has. ``number`` is the version that its users
    know. ``unseen`` is the number of cells of a write
    that is not in its place yet.

    ``recent`` are the latest writes, the oldest first and this one last: for each its id, and the cells that it
    changed.
    """

    number: int = 0
    write: str = ""
    unseen: int = 0
    recent: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def encode(self) -> bytes:
        """The stamp as it is stored."""
        recent = [[write, *cells] for write, cells in self.recent]
        said = {"format": STORE.number, "number": self.number, "write": self.write, "unseen": self.unseen}
        return json.dumps({**said, "recent": recent}, separators=(",", ":")).encode()

    def following(self, number: int, write: str, cells: Collection[str]) -> "Stamp":
        """The stamp of the next write, which changes these cells."""
        if len(cells) > MOST_NAMED:
            return Stamp(number, write)
        recent = [*self.recent[1 - MOST_RECENT :], (write, tuple(cells))]
        while sum(len(named) for _, named in recent) > MOST_NAMED:
            del recent[0]
        return Stamp(number, write, 0, tuple(recent))

    def changed_since(self, earlier: "Stamp") -> frozenset[str] | None:
        """The cells that were changed since an earlier stamp; None if that is not known."""
        if self.unseen or earlier.unseen or not earlier.write:
            return None
        writes = [write for write, _ in self.recent]
        if earlier.write not in writes:
            return None
        return frozenset(cell for _, cells in self.recent[writes.index(earlier.write) + 1 :] for cell in cells)

    @classmethod
    def decode(cls, value: bytes) -> "Stamp":
        """The stamp that was stored. Raises :class:`StoreDamaged`, and StoreOfAnotherFormat."""
        if not value:
            return cls()
        try:
            stored = json.loads(value)
            require_format(stored["format"])
            recent = tuple((str(write), tuple(map(str, cells))) for write, *cells in stored.get("recent", ()))
            return cls(int(stored["number"]), str(stored["write"]), int(stored["unseen"]), recent)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreDamaged(f"a stamp in the store cannot be read ({error!r}); restore it from a backup") from error

    def cells(self) -> list[str]:
        """The names of the cells of a write that is not in its place yet."""
        return [f"{UNSEEN}{self.write},{part:04d}" for part in range(self.unseen)]


class CellsBook(Book):
    """One book of a store.

    Args:
        cells: the store.
        name: the name of the book there.
        piecemeal: whether documents may come true one before the other.
    """

    def __init__(self, cells: Cells, name: str, piecemeal: bool = False) -> None:
        self._piecemeal = piecemeal
        self._cells = cells
        self._name = name
        self._lock = asyncio.Lock()
        self._seen: tuple[int, Stamp] | None = None
        self._known: Stamp | None = None  # of the documents that were read or written last
        self._unknown: deque[str] = deque(maxlen=UNKNOWN_KEPT)
        self._read: tuple[Stamp, dict[str, bytes]] | None = None
        # Cells that belonged to nothing as of a mark. For another mark that is not known.
        self._left: tuple[int, frozenset[str]] = 0, frozenset()

    async def look(self) -> tuple[int, int]:
        """The mark and the number. Raises :class:`StoreError`."""
        mark, stamp = await self._cells.look(self._name)
        return mark, Stamp.decode(stamp).number

    async def read(self) -> Stored:
        return self._taken(await self._cells.fetch(self._name))

    async def catch_up(self) -> Stored:
        return self._taken(await self._snapshot())

    def _taken(self, snapshot: Snapshot) -> Stored:
        stamp = Stamp.decode(snapshot.stamp)
        self._read = None if self._piecemeal else (stamp, dict(snapshot.cells))
        cells = dict(snapshot.cells)
        for name, value in _unseen(stamp, cells).items():
            if value is None:
                cells.pop(name, None)
            else:
                cells[name] = value
        documents, used = _documents(cells)
        self._seen = snapshot.mark, stamp
        self._known = stamp
        # A broken-off write has left them, or a document that was longer before; the next write deletes them.
        self._left = snapshot.mark, frozenset(snapshot.cells.keys() - used - set(stamp.cells()))
        return Stored(stamp.number, documents)

    async def _snapshot(self) -> Snapshot:
        """All cells; those that were read before and have not been changed since are not fetched again."""
        if self._read is not None:
            earlier, cells = self._read
            mark, value = await self._cells.look(self._name)
            changed = Stamp.decode(value).changed_since(earlier)
            if changed is not None:
                try:
                    new = await self._cells.fetch_some(self._name, mark, changed)
                except Mismatch:
                    pass  # it was written to meanwhile
                else:
                    kept = {name: cell for name, cell in cells.items() if name not in changed}
                    return Snapshot(mark, value, {**kept, **new})
        return await self._cells.fetch(self._name)

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        """As :meth:`topom.store.Book.write`; StoreError also if an earlier write of its own has come true since."""
        async with self._lock:
            for _ in range(TRIES):
                mark, stamp = await self._made_from(expected)
                if stamp.number != expected or (version != expected and self._is_anothers(stamp)):
                    raise self._refusal(stamp, expected)
                mine = Stamp(version, secrets.token_hex(8))
                try:
                    await self._write(mark, stamp, mine, _cells(documents))
                except Mismatch:
                    self._seen = None
                    continue
                except BaseException:
                    self._seen = None
                    self._unknown.append(mine.write)
                    raise
                return
            raise StoreError(f"the {self._name} in the store were not written: others write to them all the time")

    async def _made_from(self, expected: int) -> tuple[int, Stamp]:
        if self._seen is None or self._seen[1].number != expected:
            mark, stamp = await self._cells.look(self._name)
            self._seen = mark, Stamp.decode(stamp)
        return self._seen

    def _is_anothers(self, stamp: Stamp) -> bool:
        """epochs: whether another write than the known one has this number, as in a copy of the store that went on."""
        known = self._known
        if self._piecemeal or known is None or known.number != stamp.number:
            return False
        return known.write != stamp.write

    def _refusal(self, stamp: Stamp, expected: int) -> StoreError:
        if stamp.write in self._unknown:
            return StoreError(
                f"an earlier write of this topom, which had failed, has reached the {self._name} in the store after "
                "all; they have to be read again"
            )
        what = f"not {expected}" if stamp.number != expected else "by another write than the one that is known"
        return StoreConflict(
            f"the {self._name} in the store are at {stamp.number}, {what}: another topom has written to it"
        )

    async def _write(self, mark: int, stamp: Stamp, mine: Stamp, cells: dict[str, bytes | None]) -> None:
        if stamp.unseen:
            mark = await self._put_in_place(mark, stamp)
        left = self._left[1] - cells.keys() if self._left[0] == mark else frozenset()
        # bounded: cells for which there is no room stay until the next write.
        cells |= dict.fromkeys(sorted(left)[: max(0, self._cells.most_cells - len(cells))])
        mine = stamp.following(mine.number, mine.write, cells)
        transactions = list(self._fitting(cells))
        if len(transactions) > 1 and not self._piecemeal:
            mine, unseen = _to_unseen(mine, cells)
            for transaction in self._fitting(unseen):
                await self._cells.apply(self._name, mark, None, transaction)
            transactions = [{}]
        for transaction in transactions[:-1]:
            await self._cells.apply(self._name, mark, None, transaction)
        mark = await self._cells.apply(self._name, mark, mine.encode(), transactions[-1])
        self._seen = mark, mine
        self._known = mine
        self._left = mark, left - cells.keys()

    async def _put_in_place(self, mark: int, stamp: Stamp) -> int:
        snapshot = await self._cells.fetch(self._name)
        if snapshot.mark != mark:
            raise Mismatch
        for transaction in self._fitting(_unseen(stamp, snapshot.cells)):
            await self._cells.apply(self._name, mark, None, transaction)
        mark = await self._cells.apply(self._name, mark, replace(stamp, unseen=0).encode(), {})
        self._left = mark, frozenset(stamp.cells())
        return mark

    def _fitting(self, cells: Mapping[str, bytes | None]) -> Iterator[dict[str, bytes | None]]:
        """The cells in transactions, at least one."""
        part: dict[str, bytes | None] = {}
        size = 0
        for name, value in cells.items():
            more = len(value or b"") + CELL_OVERHEAD_BYTES
            if part and (len(part) >= self._cells.most_cells or size + more > self._cells.most_bytes):
                yield part
                part, size = {}, 0
            part[name] = value
            size += more
        yield part


def _cells(documents: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """The cells of documents. The first cell of each says how many there are; cells beyond these belong to nothing."""
    cells: dict[str, bytes | None] = {}
    for document, value in documents.items():
        name = quote(document, safe="")
        if value is None:
            cells[f"{name},0000"] = None
            continue
        parts = [value[at : at + CELL_BYTES] for at in range(0, len(value), CELL_BYTES)] or [b""]
        for number, part in enumerate(parts):
            cells[f"{name},{number:04d}"] = part if number else b"%d\n" % len(parts) + part
    return cells


def _documents(cells: Mapping[str, bytes]) -> tuple[dict[str, bytes], set[str]]:
    """The documents in cells, and the names of the cells in which they are."""
    documents: dict[str, bytes] = {}
    used: set[str] = set()
    for cell, value in cells.items():
        name, _, part = cell.rpartition(",")
        if part != "0000" or name.startswith(UNSEEN):
            continue
        try:
            count, _, first = value.partition(b"\n")
            names = [f"{name},{number:04d}" for number in range(int(count))]
            documents[unquote(name)] = first + b"".join(cells[further] for further in names[1:])
        except (KeyError, ValueError) as error:
            raise StoreDamaged(f"{name} in the store cannot be read ({error!r}); restore it from a backup") from error
        used.update(names)
    return documents, used


def _to_unseen(stamp: Stamp, cells: Mapping[str, bytes | None]) -> tuple[Stamp, dict[str, bytes | None]]:
    """The stamp of a write that is put in cells of its own first, and those cells."""
    encoded = {name: None if value is None else base64.b64encode(value).decode() for name, value in cells.items()}
    value = json.dumps(encoded, separators=(",", ":")).encode()
    parts = [value[at : at + CELL_BYTES] for at in range(0, len(value), CELL_BYTES)]
    stamp = replace(stamp, unseen=len(parts))
    return stamp, dict(zip(stamp.cells(), parts, strict=True))


def _unseen(stamp: Stamp, cells: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The cells of the write that is not in its place yet."""
    if not stamp.unseen:
        return {}
    try:
        encoded = json.loads(b"".join(cells[name] for name in stamp.cells()))
        return {
            name: None if value is None else base64.b64decode(value, validate=True) for name, value in encoded.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreDamaged(f"a write in the store cannot be read ({error!r}); restore it from a backup") from error
