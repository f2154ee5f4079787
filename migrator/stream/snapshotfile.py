"""The snapshot of a source in one file, which a thread reads while it grows."""

from __future__ import annotations

from migrator.errors import MigrationError, SourceUnavailable
from migrator.stream.errors import LinkClosed
from migrator.stream.space import NamelessFile, Space
from migrator.stream.waking import Waking

READER_SECONDS = 1200.0
"""How long a reader waits for more. The link's own limits are below it, so a reader hears of them first."""


class SpooledSnapshot:
    """Written by one thread, read by any number of threads at their own pace.

    Attributes:
        size: bytes that it has in all; None until that is known.
        readable: bytes that may be read now.
        whole: whether all of it is there.
    """

    def __init__(self, space: Space, waking: Waking) -> None:
        self._space = space
        self._waking = waking
        self._file: NamelessFile | None = None
        self._written = 0
        self._withheld = 0
        self._released = False
        self.size: int | None = None
        self.readable = 0
        self.whole = False

    def begin(self, size: int | None, withheld: int = 0) -> None:
        """Make the file.

        Args:
            size: bytes that will come; None if that is not known.
            withheld: how many bytes at the end are not shown to readers and do not belong to it.

        Raises:
            SpoolFull: it has more bytes than the spool or the disk.
            SpoolUnusable: no file can be made.
        """
        file = self._space.file()
        with self._waking.condition:
            if self._released:
                raise LinkClosed("the spool is closed")
            if size is not None:
                self._space.require(size)
                self._space.require_on_disk(file, size)
            self.size = size
            self._withheld = withheld
            self._file = file

    def write(self, data: memoryview) -> None:
        """Append what came. Raises :class:`SpoolFull`, :class:`SpoolUnusable` and :class:`LinkClosed`."""
        if (file := self._file) is None:
            raise LinkClosed("the spool is closed")
        self._space.write(file, data)
        with self._waking.condition:
            self._written += len(data)
            self._space.held += len(data)
            self.readable = max(0, self._written - self._withheld)
            self._waking.wake()

    def finish(self) -> None:
        """All of it has come."""
        if (file := self._file) is None:
            raise LinkClosed("the spool is closed")
        if self._withheld:
            file.shorten(self.readable)
        with self._waking.condition:
            self._space.held -= self._withheld
            self._withheld = 0
            self._written = self.size = self.readable
            self.whole = True
            freed = self._let_go() if self._released else None
            self._waking.wake()
        del freed

    def reader(self) -> SnapshotReader:
        """A file to read it by, from its beginning."""
        return SnapshotReader(self, self._waking)

    def release(self) -> None:
        """Nobody begins to read it any more: its file goes once it is whole and its readers let go of it."""
        with self._waking.condition:
            self._released = True
            freed = self._let_go() if self.whole or self._waking.failure is not None else None
        del freed  # the system takes a while to free a large file, and nobody waits for it

    def opened(self) -> NamelessFile:
        """Its file; the caller holds the condition. Raises :class:`LinkClosed` if it is released."""
        if self._file is None:
            raise LinkClosed("the snapshot has been released")
        return self._file

    def _let_go(self) -> NamelessFile | None:
        file, self._file = self._file, None
        if file is not None:
            self._space.held -= self._written
        return file


class SnapshotReader:
    """Reads a snapshot as a file that waits for what has yet to come. It is for one thread, and not for an event
    loop's.

    Attributes:
        position: bytes read so far.
    """

    def __init__(self, snapshot: SpooledSnapshot, waking: Waking) -> None:
        self._snapshot = snapshot
        self._waking = waking
        self._file: NamelessFile | None = None
        self._error: MigrationError | None = None
        self.position = 0

    def readinto(self, buffer: memoryview) -> int:
        """Fill as much of a buffer as there is, at least a byte; 0 at the end of the snapshot.

        Raises:
            MigrationError: the link or the spool has failed, or the reader is closed.
            SourceUnavailable: nothing came for :data:`READER_SECONDS`.
        """
        snapshot = self._snapshot
        with self._waking.condition:
            if not self._waking.wait(self._may_go_on, READER_SECONDS):
                raise SourceUnavailable(f"no more of the snapshot came within {READER_SECONDS:g} s")
            if self._error is not None:
                raise self._error
            if self._waking.failure is not None:
                raise self._waking.failure
            if self._file is None:
                self._file = snapshot.opened()
            size = min(len(buffer), snapshot.readable - self.position)
        got = self._file.read_into(memoryview(buffer)[:size], self.position) if size else 0
        self.position += got
        return got

    def close(self, error: MigrationError) -> None:
        """Whoever reads by it gets this error, also who waits."""
        with self._waking.condition:
            self._error = error
            self._waking.wake()

    def _may_go_on(self) -> bool:
        return self._snapshot.readable > self.position or self._snapshot.whole or self._error is not None
