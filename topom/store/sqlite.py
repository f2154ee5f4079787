"""The embedded store: one SQLite file for a topom that runs alone.

Write-ahead log and ``synchronous=FULL``: a write that returned is on the disk. SQLite blocks its caller for as
long as the disk takes, so everything runs on one thread of the store's own, off the event loop.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from topom.store import Store, StoreConflict, Stored, StoreError

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS version (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO version VALUES (0, 0);
"""
BUSY_SECONDS = 5.0
"""How long a statement waits for another process's lock on the file (a backup, a shell)."""


class SqliteStore(Store):
    """A :class:`~topom.store.Store` in the file ``path``, which is made when it is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        await self._run(self._open)

    async def read(self) -> Stored:
        return await self._run(self._read)

    async def write(self, expected: int, version: int, documents: Mapping[str, bytes | None]) -> None:
        await self._run(lambda connection: self._write(connection, expected, version, documents))

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreError(
                    f"the store {self._path} failed: {error}; nothing was changed as far as topom knows. "
                    "Look at the free space and the rights of its folder"
                ) from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)

    def _connect(self) -> sqlite3.Connection:
        # isolation_level None: transactions begin and end where this module says so.
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _open(self, connection: sqlite3.Connection) -> None:
        connection.executescript(_SCHEMA)

    def _read(self, connection: sqlite3.Connection) -> Stored:
        connection.execute("BEGIN")
        try:
            (version,) = connection.execute("SELECT version FROM version").fetchone()
            documents = dict(connection.execute("SELECT name, value FROM documents").fetchall())
        finally:
            connection.execute("ROLLBACK")
        return Stored(version, documents)

    def _write(
        self, connection: sqlite3.Connection, expected: int, version: int, documents: Mapping[str, bytes | None]
    ) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # epochs: the write counts only if nobody has written since it was made.
            changed = connection.execute("UPDATE version SET version = ? WHERE version = ?", (version, expected))
            if changed.rowcount != 1:
                (stored,) = connection.execute("SELECT version FROM version").fetchone()
                raise StoreConflict(
                    f"the store {self._path} is at version {stored}, not {expected}: another topom has written to it"
                )
            for name, value in documents.items():
                if value is None:
                    connection.execute("DELETE FROM documents WHERE name = ?", (name,))
                else:
                    connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, value))
            connection.execute("COMMIT")
        finally:
            # After a failed COMMIT, or one that SQLite rolled back itself, there may be nothing left to end.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
