"""The temporary folder of a throw-away cluster. The folder of one that was killed is removed when the next one starts.

A cluster holds a lock on a file in its folder for as long as its process lives. The file gets its name once it is
locked. So a folder has a lock file that nobody holds only if its cluster is gone; a process id would say less, for it
is used again.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

PREFIX = "slotferry-local-"
LOCK = "lock"


class Folder:
    """One that is held. Raises OSError if none can be made."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        draft = self.path / f"{LOCK}.new"
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(self.path / LOCK)

    @classmethod
    def made(cls) -> Self:
        """A new one, after those of clusters that are gone were removed."""
        remove_abandoned()
        return cls()

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that is possible."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_abandoned() -> None:
    """Remove this user's folders that clusters which are gone have left in the system's temporary folder."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another cluster that starts may have removed it meanwhile.
        if os.path.samestat(os.fstat(lock), (folder / LOCK).lstat()):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
