"""Files of a spool have no name, and a bound."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.stream import space
from migrator.stream.errors import SpoolFull, SpoolUnusable
from migrator.stream.space import NamelessFile, Space
from migrator.stream.spool import Spool


def test_a_file_has_no_name_and_is_this_users_only(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "spools"
    place = Space(folder, 100)
    file = place.file()
    place.write(file, memoryview(b"content"))
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.fstat(file._descriptor).st_mode & 0o777 == 0o600
    assert file.read(100, 3) == b"tent"


def test_a_file_is_freed_with_its_last_user(tmp_path: Path) -> None:
    file = NamelessFile(tmp_path)
    number = file._descriptor
    another = file
    del file
    os.fstat(number)
    del another
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_nothing_is_left_over_by_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from migrator.stream.spool import Spool;"
        "spool = Spool(Path(sys.argv[1]), 1 << 20); spool.snapshot.begin(None);"
        "spool.snapshot.write(memoryview(b'x' * 1000)); spool.stream.append(memoryview(b'x' * 1000));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=30)
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_bound_is_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    spool.snapshot.begin(60)
    spool.snapshot.write(memoryview(b"s" * 60))
    spool.stream.append(memoryview(b"c" * 40))
    with pytest.raises(SpoolFull, match="more than the 100 bytes"):
        spool.stream.append(memoryview(b"c"))
    assert spool.held == 100
    spool.close()
    assert spool.held == 0


def test_a_snapshot_that_cannot_fit_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpoolFull):
        Spool(tmp_path, 100).snapshot.begin(101)


def test_a_part_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Space(tmp_path, 1 << 30)
    file = place.file()
    place.write(file, memoryview(b"x"))
    monkeypatch.setattr(space, "SPARE_BYTES", file.free_bytes() + (1 << 40))
    monkeypatch.setattr(space, "LOOK_BYTES", 10)
    place.write(file, memoryview(b"x" * 8))
    with pytest.raises(SpoolFull, match="have to stay free"):
        place.write(file, memoryview(b"xx"))


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, SpoolFull), (errno.EDQUOT, SpoolFull), (errno.EIO, SpoolUnusable)]
)
def test_errors_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    place = Space(tmp_path, 100)
    file = place.file()
    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(error):
        place.write(file, memoryview(b"xx"))


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpoolUnusable):
        Spool(tmp_path / "file", 100)
