"""Two runs into one folder: the second one is told of the first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sizing.errors import SizingError
from sizing.locking import LOCK, FolderInUse, held, local_path

OTHER = """
import sys
from sizing.locking import held
with held(sys.argv[1], print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:/tmp/a b", Path("/tmp/a b")),
        ("file:///tmp/a", Path("/tmp/a")),
        ("hdfs://host/tmp/a", None),
        ("s3a://bucket/a", None),
    ],
)
def test_only_local_folders_are_locked(address: str, path: Path | None) -> None:
    assert local_path(address) == path


def test_a_second_run_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sizes"
    address = f"file:{folder}"
    with held("s3a://bucket/a", print), held(address, print):
        pass
    command = [sys.executable, "-c", OTHER, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            refusal = rf"process {other.pid} on .* writes into {folder}; wait"
            with pytest.raises(FolderInUse, match=refusal), held(address, print):
                pass
        finally:
            # However it ends: nothing is left that has to be cleaned up.
            other.kill()
    with held(address, print):
        assert os.listdir(folder) == [LOCK]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SizingError, match="cannot be written"), held(f"file:{tmp_path}/file/sizes", print):
        pass
