"""Keeps what a source sends, on disk and within a bound, so that it is read at full speed whatever the targets do.

A source that has to wait for a slow reader ends the connection at its ``client-output-buffer-limit``, and the reader
would begin again for ever. So one thread writes here what comes, and others read from here at their own pace.

**bounded**: snapshot and stream together have at most a given number of bytes, and leave a part of the disk free. At
the bound the link ends with :class:`~migrator.stream.errors.SpoolFull`: the copies are given up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrator.errors import MigrationError
from migrator.stream.errors import LinkClosed
from migrator.stream.snapshotfile import SnapshotReader, SpooledSnapshot
from migrator.stream.space import Space
from migrator.stream.streamfile import SpooledStream
from migrator.stream.waking import Waking


class Spool:
    """Files for one source. They have no names, so none is left over when the process ends, in any way.

    Args:
        folder: a folder on a disk, not in memory. It is made, for this user only, if it is not there.
        most: bytes of snapshot and stream together.

    Raises:
        SpoolUnusable: no files can be made there.

    Attributes:
        snapshot: for threads.
        stream: for an event loop.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.waking = Waking()
        self._space = Space(folder, most)
        self.snapshot = SpooledSnapshot(self._space, self.waking)
        self.stream = SpooledStream(self._space, self.waking)
        self._readers: list[SpoolReader] = []
        self._turn = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes on disk."""
        return self._space.held

    @property
    def failure(self) -> MigrationError | None:
        """Why nothing more comes; None while more may come."""
        return self.waking.failure

    def reader(self) -> SpoolReader:
        """A reader of all that comes. It is made before another one has read anything."""
        reader = SpoolReader(self, self._turn)
        self._readers.append(reader)
        return reader

    def is_short(self) -> bool:
        """As :meth:`~migrator.stream.space.Space.is_short`, once what nobody needs any more is freed."""
        self.stream.free()  # its source may write nothing for a while
        return self._space.is_short()

    def furthest_behind(self) -> SpoolReader | None:
        """The reader for which most is kept; None if another one needs nearly as much, or if it is so little that no
        file would be freed."""
        if not self._readers:
            return None
        last = min(self._readers, key=lambda one: (not one.in_snapshot, one.offset))
        first = max(self._readers, key=lambda one: (not one.in_snapshot, one.offset))
        if last.in_snapshot and not first.in_snapshot:
            return last
        return last if first.offset - last.offset > max(self.held // 2, self.stream.file_bytes) else None

    def let_go(self, closed: SpoolReader | None = None) -> None:
        """Free what no reader needs any more. A closed one needs nothing."""
        if closed in self._readers:
            self._readers.remove(closed)
        if self._readers:
            if not any(one.in_snapshot for one in self._readers):
                self.snapshot.release()
            self.stream.release(min(one.offset for one in self._readers))

    def close(self) -> None:
        """Free everything. Who waits or writes gets :class:`LinkClosed`, or the error of before."""
        self.waking.fail(LinkClosed("the spool is closed"))
        self.snapshot.release()
        self.stream.close()


class SpoolReader:
    """Reads a spool at its own pace: first the snapshot, in threads, one at a time; then the stream, in an event loop.
    What it has yet to read is kept for it.

    Attributes:
        in_snapshot: whether it has yet to read of the snapshot.
        offset: of the stream, up to which it needs nothing any more.
    """

    def __init__(self, spool: Spool, turn: threading.Lock) -> None:
        self._spool = spool
        self._turn = turn
        self._has_turn = False
        self._file: SnapshotReader | None = spool.snapshot.reader()
        self._error: MigrationError | None = None
        self.in_snapshot = True
        self.offset = spool.stream.start

    @property
    def end(self) -> int:
        """Offset behind what has come of the stream."""
        return self._spool.stream.end

    @contextmanager
    def parsing(self) -> Iterator[None]:
        """Parse the snapshot within the block. One reader does so at a time: the thread of the link gets no turn
        at the interpreter beside many others. Who waits for more of the snapshot lets the others."""
        with self._turn:
            self._has_turn = True
            try:
                yield
            finally:
                self._has_turn = False

    def readinto(self, buffer: memoryview) -> int:
        """As :meth:`~migrator.stream.snapshotfile.SnapshotReader.readinto`. Raises the error of :meth:`close`, too."""
        file = self._file
        self._require_open()
        assert file is not None, "it has yet to read of the snapshot"
        if not self._has_turn:
            return file.readinto(buffer)
        self._turn.release()
        try:
            return file.readinto(buffer)
        finally:
            self._turn.acquire()

    def leave_snapshot(self) -> None:
        """It has read the snapshot."""
        self.in_snapshot = False
        self._file = None  # the snapshot is on disk for as long as a reader has it
        self._spool.let_go()

    async def more(self, offset: int) -> None:
        """As :meth:`~migrator.stream.streamfile.SpooledStream.more`."""
        self._require_open()
        await self._spool.stream.more(offset)

    def read(self, offset: int, most: int) -> bytes:
        """As :meth:`~migrator.stream.streamfile.SpooledStream.read`. Raises the error of :meth:`close`, too."""
        self._require_open()
        return self._spool.stream.read(offset, most)

    def arrived_ms(self, offset: int) -> int:
        """As :meth:`~migrator.stream.streamfile.SpooledStream.arrived_ms`."""
        return self._spool.stream.arrived_ms(offset)

    def release(self, offset: int) -> None:
        """It needs nothing before this offset any more."""
        self.offset = offset
        self._spool.let_go()

    def close(self, error: MigrationError | None = None) -> None:
        """It needs nothing any more. Who reads by it gets this error from then on, by default LinkClosed."""
        self._error = self._error or error or LinkClosed("the reader is closed")
        file, self._file = self._file, None  # behind the error: a thread that reads finds one or the other
        if file is not None:
            file.close(self._error)
        self._spool.let_go(self)

    def _require_open(self) -> None:
        if self._error is not None:
            raise self._error
