"""Damaged RDB files give what stands before the damage and an error that names file and offset, and nothing worse."""

from __future__ import annotations

import io
import random

import pytest

from rdb.errors import RdbError
from rdb.input import MOST_CONTIGUOUS, PIECE
from sizing.rdb.parser import Key, rows
from sizing.rdb.scanner import Scanner
from tests.unit.rdb.writer import RdbWriter
from tests.unit.sizing.rdb.test_parser import OPCODES, VALUES

FLIPS = 10_000


class Watched(io.BytesIO):
    """Remembers how much it was asked for at once."""

    most = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.most = max(self.most, len(buffer))
        return super().readinto(buffer)


def small_file(magic: str) -> bytes:
    """A file with every type and opcode that a server of that name writes."""
    writer = RdbWriter(14 if magic == "REDIS" else 80, magic)
    for number, (code, _, whose, value, *_) in enumerate(VALUES):
        if (whose == magic or code < 22) and len(value) < 2000:
            writer.key(code, value, b"key%d" % number, b"\xfc" + bytes(8) if number % 3 == 0 else b"")
    for whose, _, opcode in OPCODES:
        if whose == magic or whose == "REDIS":
            writer.raw(opcode)
    return writer.end()


def scanned(data: bytes, sized: bool, checksum: bool = True) -> tuple[list[Key], RdbError | None]:
    file = Watched(data)
    scanner = Scanner(file, "a.rdb", len(data) if sized else None, checksum)
    found: list[Key] = []
    while batch := scanner.batch():
        found += rows(batch, scanner.types)
    assert file.most <= max(PIECE, MOST_CONTIGUOUS)
    if scanner.error is not None:
        assert scanner.error.file == "a.rdb"
        assert 0 <= scanner.error.offset <= len(data)
    return found, scanner.error


@pytest.mark.parametrize("magic", ["REDIS", "VALKEY"])
@pytest.mark.parametrize("sized", [True, False])
def test_cut_at_every_offset(magic: str, sized: bool) -> None:
    data = small_file(magic)
    whole, error = scanned(data, sized)
    assert error is None, error
    assert len(whole) > 25
    for cut in range(len(data)):
        found, error = scanned(data[:cut], sized)
        assert error is not None, cut
        assert found == whole[: len(found)]


@pytest.mark.parametrize("magic", ["REDIS", "VALKEY"])
@pytest.mark.parametrize("checksum", [True, False])
def test_single_bytes_changed(magic: str, checksum: bool) -> None:
    data = small_file(magic)
    chance = random.Random(20261122)
    quiet = []
    for _ in range(FLIPS):
        at = chance.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= chance.randrange(1, 256)
        _, error = scanned(bytes(changed), chance.random() < 0.5, checksum)
        if error is None:
            quiet.append(at)
    # With a checksum nothing goes unnoticed; without, what is only data.
    assert (not quiet) is checksum, quiet


def test_many_bytes_changed() -> None:
    data = small_file("REDIS")
    chance = random.Random(7)
    for _ in range(FLIPS // 4):
        changed = bytearray(data)
        for _ in range(chance.randrange(2, 30)):
            changed[chance.randrange(9, len(data))] = chance.choice([0, 0x40, 0x80, 0x81, 0xC0, 0xC3, 0xFF, 1, 255])
        scanned(bytes(changed), chance.random() < 0.5, checksum=False)
