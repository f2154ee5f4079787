"""A small file is read whole, and one that is too large or no regular file is not."""

import os
from pathlib import Path

import pytest

from slots.smallfiles import MOST_BYTES, read_small


@pytest.mark.parametrize("size", [0, 1, MOST_BYTES])
def test_it_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("file")
    assert read_small(tmp_path / "link") == b"x" * size


@pytest.mark.timeout(30)
def test_nobody_waits_for_the_writer_of_a_pipe_and_no_descriptor_is_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "huge").write_bytes(b"x" * (MOST_BYTES + 1))
    before = len(os.listdir("/dev/fd"))
    for name, why in (("pipe", "regular file"), ("folder", "regular file"), ("huge", "larger than")):
        with pytest.raises(OSError, match=why):
            read_small(tmp_path / name)
    assert len(os.listdir("/dev/fd")) == before
