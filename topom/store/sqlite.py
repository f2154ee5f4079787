"""The embedded store: one SQLite file for a topom that runs alone.

The file has a write-ahead log and ``synchronous=FULL``: a write that returned is on the disk. SQLite blocks its caller
for as long as the disk takes, so everything runs on one thread of the store's own, off the event loop.

**bounded**: a call may take :data:`CALL_SECONDS`. After that the store fails until the disk is back
(:mod:`topom.store.hanging`). Meanwhile nothing can be changed, and proxies serve on. Once the disk is back, topom finds
out whether the write that hung is in the store.

The store is not shared. The lock of the data folder (:mod:`topom.server`) takes the place of a lease, so the topom that
has the store leads.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import structlog

from slots.formats import STORE
from topom.store import SIZES, STATE, Book, Leader, Store, StoreConflict, Stored, StoreError, require_format
from topom.store.hanging import Hangs, OneThread

log = structlog.get_logger(__name__)

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS version (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO version VALUES (0, 0);
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sizes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO revision VALUES (0, 0);
"""
_VERSIONS = {STATE: "version", SIZES: "revision"}
"""For each book the table that has its version; the table's column has the same name."""
CALL_SECONDS = 10.0
"""How long any call may take. That is longer than a statement waits for another process's lock."""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock on the file (a backup, a shell)."""
WATCH_SECONDS = 0.05
"""Seconds between two looks at the version in :meth:`SqliteStore.watch`."""


class AloneLeadership:
    """The place of a topom that does not share its store: it is never lost."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.lost = asyncio.Event()

    def valid(self) -> bool:
        """Always true."""
        return True

    async def resign(self) -> None:
        """Do nothing: no other topom could take the place."""


class SqliteStore(Store):
    """A :class:`~topom.store.Store` in the file ``path``, which is made if it is missing."""

    shared = False

    def __init__(self, path: Path) -> None:
        self._leader: Leader | None = None
        self.path = path
        self._thread = OneThread("store", lambda: CALL_SECONDS)
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        await self.run(self._open)

    def book(self, name: str) -> Book:
        return _SqliteBook(self, name)

    async def watch(self, version: int, seconds: float) -> int:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            stored = await self.run(_SqliteBook(self, STATE).read_version)
            left = end - loop.time()
            if stored != version or left <= 0:
                return stored
            await asyncio.sleep(min(WATCH_SECONDS, left))

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> AloneLeadership:
        self._leader = Leader(instance, url, 1 if self._leader is None else self._leader.term + 1)
        return AloneLeadership(self._leader)

    async def leader(self) -> Leader | None:
        return self._leader

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        try:
            await self._thread.run(close)
        except Hangs as error:
            log.error("store_not_closed", reason=str(error))
        self._thread.end()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``work`` on the store's thread. Raises :class:`StoreError`."""

        def guarded() -> T:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreError(
                    f"the store {self.path} failed: {error}; nothing was changed as far as topom knows. "
                    "Look at the free space and the rights of its folder"
                ) from error

        try:
            return await self._thread.run(guarded)
        except Hangs as error:
            raise StoreError(
                f"the disk of the store {self.path} hangs: {error}. Nothing can be changed until it is back, and "
                "proxies serve on meanwhile; look at the disk"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        # isolation_level None: transactions begin and end where this module says so.
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _open(self, connection: sqlite3.Connection) -> None:
        if _format(connection):
            _require_format(connection)
        else:  # there is nothing in it yet
            connection.executescript(f"{_SCHEMA}PRAGMA user_version = {STORE.number};")


class _SqliteBook(Book):
    """One book. The table of its name has the documents, the table that :data:`_VERSIONS` names has the version."""

    def __init__(self, store: SqliteStore, name: str) -> None:
        self._store = store
        self._documents = name
        self._version = _VERSIONS[name]

    async def read(self) -> Stored:
        return await self._store.run(self._read)

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        await self._store.run(lambda connection: self._write(connection, expected, version, documents))

    def read_version(self, connection: sqlite3.Connection) -> int:
        (version,) = connection.execute(f"SELECT {self._version} FROM {self._version}").fetchone()
        return int(version)

    def _read(self, connection: sqlite3.Connection) -> Stored:
        with _transaction(connection, "BEGIN"):
            _require_format(connection)
            version = self.read_version(connection)
            documents = dict(connection.execute(f"SELECT name, value FROM {self._documents}").fetchall())
        return Stored(version, documents)

    def _write(
        self, connection: sqlite3.Connection, expected: int, version: int, documents: Mapping[str, bytes | None]
    ) -> None:
        with _transaction(connection):
            _require_format(connection)
            # epochs: the write counts only if no other write came since it was made.
            column = self._version
            changed = connection.execute(f"UPDATE {column} SET {column} = ? WHERE {column} = ?", (version, expected))
            if changed.rowcount != 1:
                raise StoreConflict(
                    f"the {self._documents} in the store {self._store.path} are at {self.read_version(connection)}, "
                    f"not {expected}: another topom has written to it"
                )
            gone = [(name,) for name, value in documents.items() if value is None]
            connection.executemany(f"DELETE FROM {self._documents} WHERE name = ?", gone)
            put = [(name, value) for name, value in documents.items() if value is not None]
            connection.executemany(f"INSERT OR REPLACE INTO {self._documents} VALUES (?, ?)", put)


def _format(connection: sqlite3.Connection) -> int:
    """The format that the file says it has; 0 for one that was made just now."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def _require_format(connection: sqlite3.Connection) -> None:
    require_format(_format(connection))


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit all that is done inside the ``with`` block, or nothing."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # After a failed COMMIT, or one that SQLite rolled back itself, there may be nothing left to end.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
