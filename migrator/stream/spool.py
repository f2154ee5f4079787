"""Keeps what a source sends, on disk and within a bound, so that it is read at full speed whatever the targets do.

A source that has to wait for a slow reader ends the connection at its ``client-output-buffer-limit``, and the reader
would begin again for ever. So one thread writes here what comes, and others read from here at their own pace.

**bounded**: snapshot and stream together have at most a given number of bytes, and leave a part of the disk free. At
the bound the link ends with :class:`~migrator.stream.errors.SpoolFull`: the copy is given up.
"""

from __future__ import annotations

from pathlib import Path

from migrator.errors import MigrationError
from migrator.stream.errors import LinkClosed
from migrator.stream.snapshotfile import SpooledSnapshot
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

    @property
    def held(self) -> int:
        """Bytes on disk."""
        return self._space.held

    @property
    def failure(self) -> MigrationError | None:
        """Why nothing more comes; None while more may come."""
        return self.waking.failure

    def close(self) -> None:
        """Free everything. Who waits or writes gets :class:`LinkClosed`, or the error of before."""
        self.waking.fail(LinkClosed("the spool is closed"))
        self.snapshot.release()
        self.stream.close()
