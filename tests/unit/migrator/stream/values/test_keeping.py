"""Elements that can be read again."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.errors import CannotBeCut
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
