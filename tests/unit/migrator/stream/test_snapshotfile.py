"""A thread reads a snapshot while it grows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from migrator.errors import MigrationError, SourceUnavailable
from migrator.stream import snapshotfile
from migrator.stream.errors import LinkClosed
from migrator.stream.snapshotfile import SnapshotReader
from migrator.stream.spool import Spool

SECONDS = 30.0


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, 1 << 20)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def all_of(reader: SnapshotReader, size: int = 1000) -> bytes:
    found, buffer = b"", memoryview(bytearray(size))
    while got := reader.readinto(buffer):
        found += buffer[:got]
    return found


def test_a_reader_follows_and_ends_where_the_snapshot_ends(spool: Spool, threads: ThreadPoolExecutor) -> None:
    content = random.Random(1).randbytes(50_000)
    readings = [threads.submit(all_of, spool.snapshot.reader(), size) for size in (7000, 300)]
    spool.snapshot.begin(len(content))
    for first in range(0, len(content), 777):
        spool.snapshot.write(memoryview(content)[first : first + 777])
    spool.snapshot.finish()
    assert [reading.result(SECONDS) for reading in readings] == [content, content]
    assert all_of(spool.snapshot.reader()) == content


def test_bytes_that_may_be_the_mark_at_the_end_are_not_read(spool: Spool) -> None:
    spool.snapshot.begin(None, withheld=40)
    reader = spool.snapshot.reader()
    buffer = memoryview(bytearray(1000))
    spool.snapshot.write(memoryview(b"s" * 30))
    assert spool.snapshot.readable == 0
    spool.snapshot.write(memoryview(b"s" * 20))
    assert reader.readinto(buffer) == 10
    spool.snapshot.write(memoryview(b"m" * 40))
    spool.snapshot.finish()
    assert all_of(reader) == b"s" * 40
    assert (spool.snapshot.size, spool.held) == (50, 50)


def test_a_reader_hears_of_a_failure(spool: Spool, threads: ThreadPoolExecutor) -> None:
    spool.snapshot.begin(100)
    spool.snapshot.write(memoryview(b"s" * 10))
    waiting: Future[bytes] = threads.submit(all_of, spool.snapshot.reader())
    spool.waking.fail(SourceUnavailable("it is gone"))
    spool.waking.fail(MigrationError("and more"))
    with pytest.raises(SourceUnavailable, match="it is gone"):
        waiting.result(SECONDS)


def test_a_reader_does_not_wait_for_ever(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshotfile, "READER_SECONDS", 0.01)
    with pytest.raises(SourceUnavailable):
        all_of(spool.snapshot.reader())


def test_what_is_released_is_freed_once_it_is_whole(spool: Spool) -> None:
    spool.snapshot.begin(20)
    spool.snapshot.write(memoryview(b"s" * 10))
    reader = spool.snapshot.reader()
    reader.readinto(memoryview(bytearray(5)))
    spool.snapshot.release()
    spool.snapshot.write(memoryview(b"t" * 10))
    assert spool.held == 20
    spool.snapshot.finish()
    assert spool.held == 0
    assert all_of(reader) == b"s" * 5 + b"t" * 10
    with pytest.raises(LinkClosed):
        all_of(spool.snapshot.reader())


def test_a_closed_spool_takes_nothing(spool: Spool) -> None:
    spool.snapshot.begin(20)
    spool.snapshot.write(memoryview(b"s" * 10))
    spool.close()
    with pytest.raises(LinkClosed):
        spool.snapshot.write(memoryview(b"s" * 10))
    with pytest.raises(LinkClosed):
        spool.snapshot.begin(20)
    with pytest.raises(LinkClosed):
        spool.stream.append(memoryview(b"c"))
    assert spool.held == 0
