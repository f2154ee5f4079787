"""Files without a name, and how many bytes all of them together may have.

A file has no name from the moment it is made. The system frees it once its last user lets go of it or the process ends,
in any way, so nothing is ever left over. Nobody else can open it.

**bounded**: a spool has a number of bytes, and leaves :data:`SPARE_BYTES` of its disk to others.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from migrator.stream.errors import SpoolFull, SpoolUnusable
from migrator.stream.freeing import free, prepare

SPARE_BYTES = 512 * 1024 * 1024
"""What has to stay free on the disk."""
LOOK_BYTES = 16 * 1024 * 1024
"""After how many bytes the disk is looked at again."""
LEAST_ROOM = 1 / 8
"""Room is short once less than this part is left of what a spool may have, or of what the disk has for it. A source
sends far less than that in a second."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_on_disk(folder: Path, size: int) -> None:
    """Raises :class:`SpoolFull` if the disk of a folder is too full for so many bytes more, and OSError."""
    if (free := _free_at(folder)) < size + SPARE_BYTES:
        raise _full(folder, free)


def disk_full(folder: Path, error: OSError) -> SpoolFull | None:
    """What an error says of the disk of a folder; None if it says that of something else."""
    return _full(folder) if error.errno in _NO_SPACE else None


class NamelessFile:
    """A file that is gone once nobody holds this object. Errors are OSError."""

    def __init__(self, folder: Path) -> None:
        prepare()
        with tempfile.TemporaryFile(dir=folder, buffering=0) as made:  # its mode is 0600
            self._descriptor = os.dup(made.fileno())

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            free(partial(os.close, self._descriptor))

    def write(self, data: memoryview) -> None:
        """Append all of it."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def shorten(self, size: int) -> None:
        """Have it end after ``size`` bytes."""
        os.ftruncate(self._descriptor, size)

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``."""
        return os.pread(self._descriptor, size, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from ``position`` on; gives how many bytes there were."""
        return os.preadv(self._descriptor, [buffer], position)

    def free_bytes(self) -> int:
        """What its disk has left for us."""
        return _free_at(self._descriptor)


class Space:
    """What one spool may take of a disk. Only the thread that writes takes; any may give back, under one lock.

    Args:
        folder: where the files are; made, for this user only, if it is not there.
        most: bytes of all files together.

    Raises:
        SpoolUnusable: no files can be made there.

    Attributes:
        held: bytes of all files.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.held = 0
        self._unlooked = LOOK_BYTES
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            NamelessFile(folder)
        except OSError as error:
            raise self._unusable(error) from error

    def file(self) -> NamelessFile:
        """An empty file. Raises :class:`SpoolFull` and :class:`SpoolUnusable`."""
        try:
            return NamelessFile(self.folder)
        except OSError as error:
            raise self._failed(error) from error

    def require(self, size: int) -> None:
        """Raises :class:`SpoolFull` if so many bytes more are too many."""
        if self.held + size > self.most:
            raise SpoolFull(
                f"following the source takes more than the {self.most} bytes that its spool in {self.folder} may have, "
                "so the copy is given up, for the source must not be slowed down",
                "give the spool more bytes, move fewer slots at a time or at a quieter hour, or move without `stream`",
            )

    def is_short(self) -> bool:
        """Whether the files are about to reach a bound. It may block, as disks do."""
        room = self.most - self.held
        with suppress(OSError):  # the files work without their folder
            room = min(room, _free_at(self.folder) - SPARE_BYTES)
        return room < LEAST_ROOM * (self.held + max(0, room))

    def write(self, file: NamelessFile, data: memoryview) -> None:
        """Append to a file. Raises :class:`SpoolFull` and :class:`SpoolUnusable`."""
        self.require(len(data))
        self._unlooked += len(data)
        try:
            if self._unlooked >= LOOK_BYTES:
                self._unlooked = 0
                self.require_on_disk(file, len(data))
            file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def require_on_disk(self, file: NamelessFile, size: int) -> None:
        """Raises :class:`SpoolFull` if the disk of a file is too full for so many bytes more, and OSError."""
        if (free := file.free_bytes()) < size + SPARE_BYTES:
            raise _full(self.folder, free)

    def _failed(self, error: OSError) -> SpoolFull | SpoolUnusable:
        return disk_full(self.folder, error) or self._unusable(error)

    def _unusable(self, error: OSError) -> SpoolUnusable:
        what = f"no spool can be kept in {self.folder}: {error.strerror or error}"
        return SpoolUnusable(what, "see to that folder, which this process has to be able to write to")


def _free_at(place: Path | int) -> int:
    """Bytes that the disk of a folder, or of an open file, has left for us."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def _full(folder: Path, free: int | None = None) -> SpoolFull:
    how = "is full" if free is None else f"has {free} bytes left and {SPARE_BYTES} have to stay free"
    what = f"the disk of the spools in {folder} {how}, so the copy is given up"
    return SpoolFull(what, "free space there, or move without `stream`")
