"""Keeps two runs from writing into one folder at once.

The lock is on a file in the folder (flock). The system releases it when the run's process ends, in any way. So it holds
on a disk of this machine, and between machines over NFS. Object stores and HDFS have no such locks: there the operator
has to make sure of it (docs/sizing-running.md).
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sizing.errors import SizingError

LOCK = ".slotferry-run"
"""The file's name. The file stays when the run ends: without it, two runs could hold a lock on different files."""


class FolderInUse(SizingError):
    """Another run writes into the folder. The message says which one and what to do."""


def local_path(address: str) -> Path | None:
    """The path of a folder on this machine's file system, from its whole address; None if it is elsewhere."""
    scheme, colon, rest = address.partition(":")
    if not colon or scheme != "file":
        return None
    return Path("/" + rest.lstrip("/"))


@contextmanager
def held(address: str, note: Callable[[str], None]) -> Iterator[None]:
    """Have a folder for this run alone inside the ``with`` block; it is made when it is missing.

    Args:
        address: the whole one, such as ``file:/home/ada/sizes``.
        note: called if the file system has no locks.

    Raises:
        FolderInUse: another run has it.
        SizingError: the folder cannot be written.
    """
    folder = local_path(address)
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SizingError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        _take(file, folder, note)
        yield
    finally:
        os.close(file)


def _take(file: int, folder: Path, note: Callable[[str], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.read(file, 200).decode(errors="replace").strip() or "of which nothing more is known"
        raise FolderInUse(
            f"another run ({who}) writes into {folder}; wait for its end, or give another folder as --into"
        ) from None
    except OSError as error:
        note(f"{folder} cannot be locked ({error.strerror or error}): see that no other run writes into it")
        return
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
