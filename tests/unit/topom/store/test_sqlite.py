"""The store on disk: it keeps its documents, and a disk that hangs does not hold the process up for long."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from topom.store import STATE, Stored, StoreError, sqlite
from topom.store.sqlite import SqliteStore


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
    async with asyncio.timeout(60):
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
    async with asyncio.timeout(60):
        while True:
            try:
                assert await store.book(STATE).read() == Stored(0, {})
            except StoreError:
                await asyncio.sleep(0.01)
            else:
                break
    await store.close()
