"""Elements that can be read again."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.errors import CannotBeCut
from migrator.stream import space
from migrator.stream.errors import SpoolFull
from migrator.stream.values import keeping
from migrator.stream.values.keeping import Kept
from rdb.elements import Consumer, Counters, Element, Entry, Field, Group, Owned, Pending, Scored

ELEMENTS: list[Element] = [
    *(b"bytes", b"", Scored(b"m", float("inf")), Field(b"f", b"v", -1), Entry((1, 2**64 - 1), [b"a", b"b"])),
    *(Counters(1, (1, 1), None, None, None), Group(b"g", (0, 0), None), Pending((1, 1), 5, 6)),
    *(Consumer(b"c", 1, None), Owned((1, 1))),
]


@pytest.mark.parametrize("in_memory", [10, 1 << 20])
def test_elements_come_again_and_again(tmp_path: Path, in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_IN_MEMORY", in_memory)
    with Kept(iter(ELEMENTS), tmp_path, 10_000) as kept:
        for _ in range(2):
            found = list(kept())
            assert found == ELEMENTS
            assert list(map(type, found)) == list(map(type, ELEMENTS))
        # A call that was given up changes nothing for the next one.
        assert next(kept()) == ELEMENTS[0]
        assert list(kept()) == ELEMENTS


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_IN_MEMORY", 10)
    with Kept(iter(ELEMENTS), tmp_path, 10_000):
        assert os.listdir(tmp_path) == []


def test_a_file_that_gets_too_large(tmp_path: Path) -> None:
    read = 0

    def elements() -> Iterator[Element]:
        nonlocal read
        while True:
            read += 1
            yield b"x" * 100

    with pytest.raises(CannotBeCut, match="more than 1000 bytes on disk"):
        Kept(elements(), tmp_path, 1000)
    assert read < 12


def test_a_part_of_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "SPARE_BYTES", 1 << 60)
    monkeypatch.setattr(keeping, "LOOK_BYTES", 1000)
    with Kept(iter([b"x" * 900]), tmp_path, 10_000):
        pass
    with pytest.raises(SpoolFull, match="have to stay free"):
        Kept(iter([b"x" * 900, b"x" * 900]), tmp_path, 10_000)


@pytest.mark.parametrize(("size", "count"), [(200, 10), (2000, 100)])
def test_the_disk_is_full(tmp_path: Path, size: int, count: int) -> None:
    """Which is seen when the last of them are written, or before."""
    code = (
        "import resource, sys; from pathlib import Path; from migrator.stream.errors import SpoolFull;"
        "from migrator.stream.values import keeping; keeping.MOST_IN_MEMORY = 10;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "elements = (b'x' * int(sys.argv[2]) for _ in range(int(sys.argv[3])));"
        "error = None\n"
        "try: keeping.Kept(elements, Path(sys.argv[1]), 1 << 30)\n"
        "except SpoolFull as found: error = found\n"
        "assert 'is full' in str(error), error"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(size), str(count)], timeout=30, check=True)
