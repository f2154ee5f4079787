"""Disks that fail under topom's store: full, refusing writes, or gone read-only.

The first and the last need root, for a file system of their own; without it the test is skipped. The second works
everywhere on Linux: a limit on the size of files (RLIMIT_FSIZE) is lowered for the running process.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.integration.topom_process import TopomProcess

SIZE = "4m"
COMMAND_SECONDS = 20
FROZEN_SECONDS = 60
"""How long a file system is frozen at most."""


class Disk(Protocol):
    """Where topom's folder is. ``words`` are SQLite's words for what is wrong with the disk."""

    folder: Path
    words: str

    def fail(self, topom: TopomProcess) -> None:
        """From now on nothing more can be written."""

    def mend(self, topom: TopomProcess) -> None:
        """Now it can again."""


class FullDisk:
    """A small file system of its own that can be filled to the last byte."""

    words = "full"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fail(self, topom: TopomProcess) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"\0" * 4096)
            except OSError:
                return

    def mend(self, topom: TopomProcess) -> None:
        self._filler.unlink()


class RefusedWrites:
    """A limit of the process: every write to a file is an error."""

    words = "I/O error"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fail(self, topom: TopomProcess) -> None:
        resource.prlimit(topom.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def mend(self, topom: TopomProcess) -> None:
        resource.prlimit(topom.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def run(*command: str) -> None:
    """Run a command of the system. Raises :class:`subprocess.CalledProcessError`, OSError."""
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_SECONDS)


@contextmanager
def full_disk(folder: Path) -> Iterator[Disk]:
    """A tmpfs of :data:`SIZE`."""
    with _mounted(folder, lambda: run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))):
        yield FullDisk(folder)


@contextmanager
def refused_writes(folder: Path) -> Iterator[Disk]:
    """A folder as any other."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("the system cannot change the limits of a running process")
    yield RefusedWrites(folder)


class JournalledDisk:
    """An ext4 of its own, which goes read-only when told that its journal has failed, as it does by itself."""

    words = "I/O error"

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image

    def make(self) -> None:
        with self._image.open("wb") as image:
            image.truncate(16 * 1024 * 1024)
        run("mkfs.ext4", "-q", str(self._image))
        self._mount()

    def _mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.folder))

    def fail(self, topom: TopomProcess) -> None:
        run("mount", "-o", "remount,abort", str(self.folder))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process that writes there hangs in the kernel, also one that removes what tests have left.

        So the file system thaws when this process has ended, however it ends: the pipe is closed then. It also thaws
        after :data:`FROZEN_SECONDS`, for this process may be one that hangs.
        """
        program = f'fsfreeze --freeze "$0" && echo && timeout {FROZEN_SECONDS} cat >/dev/null; fsfreeze --unfreeze "$0"'
        thawing = subprocess.Popen(
            ["sh", "-c", program, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert thawing.stdin is not None
        assert thawing.stdout is not None
        try:
            assert thawing.stdout.read(1), "the file system cannot be frozen"
            yield
        finally:
            thawing.stdin.close()
            thawing.wait(COMMAND_SECONDS)
            thawing.stdout.close()

    def repair(self) -> None:
        """Check the file system and mount it again; no process may have a file there open."""
        run("umount", str(self.folder))
        # It says 1 when it has mended something, as it has to here.
        subprocess.run(["e2fsck", "-fp", str(self._image)], check=False, capture_output=True, timeout=COMMAND_SECONDS)
        self._mount()


@contextmanager
def journalled_disk(image: Path, folder: Path) -> Iterator[JournalledDisk]:
    """An ext4 in a file."""
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    disk = JournalledDisk(image, folder)
    with _mounted(folder, disk.make):
        yield disk


@contextmanager
def _mounted(folder: Path, mount: Callable[[], None]) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    try:
        mount()
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    try:
        yield
    finally:
        run("umount", "--lazy", str(folder))
