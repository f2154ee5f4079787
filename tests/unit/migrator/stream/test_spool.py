"""Several copies read one spool, each at its own pace: it keeps what one of them has yet to read, and no more."""

import asyncio
import os
import threading
import weakref
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from migrator.errors import MigrationError, SourceUnavailable
from migrator.stream.errors import LinkClosed
from migrator.stream.space import SPARE_BYTES, Space
from migrator.stream.spool import Spool, SpoolReader

SNAPSHOT, STREAM = b"snapshot", b"0123456789"


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """It has a snapshot, and a stream in files of two bytes."""
    spool = Spool(tmp_path, 1000)
    spool.stream._segment_bytes = 2
    spool.stream.begin(100)
    spool.snapshot.begin(None)
    spool.snapshot.write(memoryview(SNAPSHOT))
    spool.snapshot.finish()
    return spool


def append(spool: Spool) -> None:
    spool.stream.append(memoryview(STREAM))


def read_snapshot(reader: SpoolReader) -> bytes:
    buffer = bytearray(100)
    return bytes(buffer[: reader.readinto(memoryview(buffer))])


def test_the_snapshot_is_kept_for_the_last_of_its_readers(spool: Spool) -> None:
    one, other = spool.reader(), spool.reader()
    assert read_snapshot(one) == SNAPSHOT
    one.leave_snapshot()
    assert spool.held == len(SNAPSHOT)
    assert read_snapshot(other) == SNAPSHOT
    other.leave_snapshot()
    assert spool.held == 0


def test_the_disk_has_the_snapshot_no_longer_than_its_readers_need_it(spool: Spool) -> None:
    one, other = spool.reader(), spool.reader()
    assert read_snapshot(one) == read_snapshot(other) == SNAPSHOT
    assert spool.snapshot._file is not None
    on_disk = weakref.ref(spool.snapshot._file)
    one.leave_snapshot()
    assert on_disk() is not None
    other.close()
    assert on_disk() is None


def test_the_stream_is_kept_for_the_slowest_reader_that_is_left(spool: Spool) -> None:
    readers = [spool.reader() for _ in range(3)]
    append(spool)
    for reader in readers:
        reader.leave_snapshot()
    readers[0].release(110)
    readers[1].release(104)
    append(spool)  # frees
    assert readers[2].read(100, 100) == b"01"
    readers[2].close()
    append(spool)
    with pytest.raises(ValueError, match="not within 104"):
        spool.stream.read(100, 1)
    assert readers[1].read(104, 100) == b"45"
    readers[1].close()
    assert readers[0].read(110, 100) == b"01"
    with pytest.raises(ValueError, match="not within 110"):
        spool.stream.read(109, 1)


def test_the_reader_that_is_furthest_behind(spool: Spool) -> None:
    assert spool.furthest_behind() is None
    readers = [spool.reader() for _ in range(3)]
    append(spool)
    assert spool.furthest_behind() is None, "all need all of it"
    readers[1].leave_snapshot()
    assert spool.furthest_behind() in (readers[0], readers[2])
    readers[2].leave_snapshot()
    assert spool.furthest_behind() is readers[0]
    readers[0].leave_snapshot()
    readers[1].release(104)
    readers[2].release(104)
    assert spool.furthest_behind() is None, "without it most of the rest would be kept"
    readers[1].release(110)
    assert spool.furthest_behind() is readers[0]
    readers[0].close()
    assert spool.furthest_behind() is readers[2]
    readers[2].close()
    assert spool.furthest_behind() is None


def test_nobody_is_given_up_for_what_is_freed_with_others(tmp_path: Path) -> None:
    """A disk that others fill makes room short, however little is held."""
    spool = Spool(tmp_path, 1000)
    spool.stream._segment_bytes = 10
    spool.stream.begin(100)
    spool.snapshot.begin(0)
    spool.snapshot.finish()
    behind, ahead = spool.reader(), spool.reader()
    for reader in (behind, ahead):
        reader.leave_snapshot()
    spool.stream.append(memoryview(STREAM))
    ahead.release(110)
    assert spool.furthest_behind() is None
    spool.stream.append(memoryview(STREAM))
    ahead.release(111)
    assert spool.furthest_behind() is behind


def test_what_a_closed_reader_needed_is_free_before_the_room_is_looked_at_again(spool: Spool) -> None:
    """The source may write nothing meanwhile, and another copy would be given up for it."""
    closed, other = spool.reader(), spool.reader()
    append(spool)
    for reader in (closed, other):
        reader.leave_snapshot()
    other.release(110)
    closed.close()
    spool.is_short()
    assert spool.held == 0
    append(spool)
    assert other.read(110, 100) == b"01"


def test_room_is_short_when_an_eighth_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(tmp_path, 80)
    file = space.file()
    for size, short in ((70, False), (1, True)):
        space.write(file, memoryview(bytearray(size)))
        space.held += size
        assert space.is_short() is short
    space = Space(tmp_path, 1 << 60)
    assert not space.is_short()
    space.held = 80
    # A disk that has 11 bytes for it, or 20.
    for free, short in ((11, True), (20, False)):
        found = SimpleNamespace(f_bavail=SPARE_BYTES + free, f_frsize=1)
        monkeypatch.setattr(os, "statvfs", lambda folder, found=found: found)
        assert space.is_short() is short


@pytest.mark.parametrize("ends", [False, True])
async def test_no_event_loop_waits_until_the_system_has_freed_a_snapshot(
    spool: Spool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = spool.reader()
    read_snapshot(reader)
    assert spool.snapshot._file is not None
    number, close = spool.snapshot._file._descriptor, os.close
    closed: SimpleQueue[int] = SimpleQueue()

    def noted(descriptor: int) -> None:
        close(descriptor)
        if descriptor == number:
            closed.put(threading.get_ident())

    monkeypatch.setattr(os, "close", noted)
    if ends:
        reader.close()
        spool.close()
    else:
        reader.leave_snapshot()
    assert await asyncio.to_thread(closed.get, timeout=30) != threading.get_ident()


async def test_who_reads_by_a_closed_reader_hears_why(spool: Spool) -> None:
    append(spool)
    one, other = spool.reader(), spool.reader()
    one.close(SourceUnavailable("too slow"))
    one.close()
    with pytest.raises(SourceUnavailable, match="too slow"):
        read_snapshot(one)
    with pytest.raises(SourceUnavailable, match="too slow"):
        one.read(100, 1)
    with pytest.raises(SourceUnavailable, match="too slow"):
        await one.more(100)
    assert read_snapshot(other) == SNAPSHOT
    other.close()
    with pytest.raises(LinkClosed):
        other.read(100, 1)


async def test_who_waits_for_more_of_the_snapshot_by_a_closed_reader_hears_why(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    spool.snapshot.begin(None)
    one, other = spool.reader(), spool.reader()
    spool.snapshot.write(memoryview(b"some"))

    def parse() -> None:
        with one.parsing():
            while True:
                read_snapshot(one)

    try:
        async with asyncio.timeout(60):
            waits = asyncio.create_task(asyncio.to_thread(parse))
            assert one._file is not None
            while one._file.position < 4:
                await asyncio.sleep(0)
            with other.parsing():  # it has looked whether the reader is open
                pass
            one.close(SourceUnavailable("too slow"))
            with pytest.raises(SourceUnavailable, match="too slow"):
                await waits
            assert read_snapshot(other) == b"some"
    finally:
        spool.close()  # its threads end with it


async def test_who_waits_for_more_of_the_snapshot_lets_others_parse(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    spool.snapshot.begin(None)
    one, other = spool.reader(), spool.reader()
    spool.snapshot.write(memoryview(b"some"))

    def parse(reader: SpoolReader, times: int) -> list[bytes]:
        with reader.parsing():
            return [read_snapshot(reader) for _ in range(times)]

    try:
        async with asyncio.timeout(60):
            ahead = asyncio.create_task(asyncio.to_thread(parse, one, 2))
            assert one._file is not None
            while one._file.position < 4:
                await asyncio.sleep(0)
            assert await asyncio.to_thread(parse, other, 1) == [b"some"]
            spool.snapshot.write(memoryview(b"more"))
            assert await ahead == [b"some", b"more"]
    finally:
        spool.close()  # its threads end with it


def test_only_one_parses_at_a_time(spool: Spool) -> None:
    one, other = spool.reader(), spool.reader()
    with one.parsing():
        read_snapshot(one)
        assert not other._turn.acquire(blocking=False)
    with other.parsing():
        other.close()
        with pytest.raises(MigrationError):
            read_snapshot(other)
    assert one._turn.acquire(blocking=False)
