"""Payloads of snapshots that are written by hand: what is held, and what becomes of faulty ones."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator

import pytest

from rdb.errors import ChecksumMismatch, CorruptRdb, TruncatedRdb, UnsupportedRdb
from rdb.input import PIECE, crc64
from rdb.snapshot import Snapshot, SnapshotKey
from tests.unit.rdb.writer import RdbWriter, length, lzf, string
from tests.unit.sizing.rdb.test_parser import VALUES


class Slowly(io.RawIOBase):
    """Gives at most ``step`` bytes at once, as a connection does."""

    def __init__(self, data: bytes, step: int) -> None:
        self.data = memoryview(data)
        self.step = step

    def readinto(self, buffer: object) -> int:
        room = memoryview(buffer)  # type: ignore[arg-type]
        some = self.data[: min(self.step, len(room))]
        room[: len(some)] = some
        self.data = self.data[len(some) :]
        return len(some)


def read(data: bytes, step: int = 1 << 30, most: int = PIECE) -> list[SnapshotKey]:
    return list(Snapshot(Slowly(data, step), "a.rdb", most))


def payload(code: int, content: bytes, version: int = 11) -> bytes:
    data = bytes([code]) + content + struct.pack("<H", version)
    return data + struct.pack("<Q", crc64(data))


SIZES = (0, 1, 1000, PIECE // 3, PIECE // 2, PIECE - 10, PIECE // 5)


def a_file() -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A file, and the names and the payloads of its keys."""
    writer, expected = RdbWriter(11), []
    for number, size in enumerate(SIZES):
        letter = bytes([number + 65])
        for code, content in ((0, string(letter * size)), (2, length(3) + 3 * string(letter * (size // 4)))):
            name = b"%d:%d" % (code, number)
            writer.key(code, content, name)
            expected.append((name, payload(code, content)))
    return writer.end(), expected


@pytest.mark.parametrize("step", [97, 4096, PIECE - 1, PIECE + 1, 1 << 30])
def test_values_are_whole_however_the_bytes_come(step: int) -> None:
    data, expected = a_file()

    assert [(key.name, key.payload) for key in read(data, step)] == expected


@pytest.mark.parametrize(("code", "version", "magic", "value"), [row[:4] for row in VALUES])
def test_a_value_of_each_type(code: int, version: int, magic: str, value: bytes) -> None:
    data = RdbWriter(version, magic).key(code, value).key(0, string("x"), b"after").end()

    assert [key.payload for key in read(data)] == [payload(code, value, version), payload(0, string("x"), version)]


@pytest.mark.parametrize("step", [4096, 1 << 30])
def test_a_value_that_is_too_large_is_passed_over(step: int) -> None:
    writer = RdbWriter(11)
    for number in range(3):
        # The end of the second one comes only after much of it was read.
        writer.key(0, string(bytes(3 * PIECE)), b"string:%d" % number)
        writer.key(2, length(40) + b"".join(string(b"%d" % place * (PIECE // 20)) for place in range(40)), b"set")
        writer.key(0, string("x"), b"small:%d" % number)

    found = read(writer.end(), step)

    assert [key.name for key in found if key.payload is None] == [
        *(b"string:0", b"set", b"string:1", b"set", b"string:2", b"set")
    ]
    assert [key.payload for key in found if key.payload] == 3 * [payload(0, string("x"))]


@pytest.mark.parametrize("step", [4096, PIECE - 1, 1 << 30])
def test_every_changed_byte_is_noticed_also_of_values_that_were_held(step: int) -> None:
    writer = RdbWriter(11)
    for size in (10, PIECE // 2, 3 * PIECE, 10, PIECE // 3):
        writer.key(0, string(b"x" * size))
    data = writer.end()
    read(data, step)

    for place in range(200, len(data) - 200, len(data) // 50):
        with pytest.raises(ChecksumMismatch):
            read(data[:place] + b"y" + data[place + 1 :], step)


@pytest.mark.parametrize("size", [10, PIECE // 2])
def test_a_value_that_was_cut_is_not_given(size: int) -> None:
    data = RdbWriter(11).key(0, string("x"), b"first").key(0, string(b"x" * size)).end()
    iterator = Snapshot(Slowly(data[: -9 - size // 2], 4096), "a.rdb", PIECE)

    assert next(iterator).name == b"first"
    with pytest.raises(TruncatedRdb):
        next(iterator)


def test_what_stands_before_a_key_is_told() -> None:
    data = (
        RdbWriter(11)
        .key(0, string("x"), before=b"\xfc" + struct.pack("<q", 4_000_000_000_123) + b"\xf8" + length(70_000))
        .key(0, string("x"), b"used", before=b"\xf9\x07")
        .key(0, string("x"), b"")
        .raw(b"\xfe\x03")
        .key(0, string("x"), b"other")
        .end()
    )

    assert [key[:2] + key[3:6] for key in read(data)] == [
        (0, b"key", 4_000_000_000_123, 70_000, None),
        (0, b"used", None, None, 7),
        (0, b"", None, None, None),
        (3, b"other", None, None, None),
    ]


@pytest.mark.parametrize("read_it", [True, False])
def test_elements_of_a_value_that_was_cut_end_with_an_error(read_it: bool) -> None:
    data = RdbWriter(11).key(1, length(600) + 600 * string(b"x" * 5000), b"list").end()
    snapshot = Snapshot(Slowly(data[:-5100], 4096), "a.rdb", PIECE)
    assert next(snapshot)[:3] == (0, b"list", "list")

    with pytest.raises(TruncatedRdb):
        list(snapshot.elements() if read_it else snapshot)


def test_elements_that_nobody_reads_are_passed_over() -> None:
    writer = RdbWriter(11)
    for number in range(4):
        writer.key(1, length(3) + string("a") + string("b") + string("c"), b"%d" % number)
    snapshot = Snapshot(io.BytesIO(writer.end()), "a.rdb", 0)
    read: list[tuple[bytes, list[object]]] = []

    for key in snapshot:
        if key.name != b"1":
            elements = snapshot.elements()
            read.append((key.name, [next(elements) for _ in range(2 if key.name == b"2" else 3)]))
            with pytest.raises(ValueError, match="has been read"):
                snapshot.elements()

    assert read == [(b"0", [b"a", b"b", b"c"]), (b"2", [b"a", b"b"]), (b"3", [b"a", b"b", b"c"])]


def test_a_limit_holds_also_after_a_much_longer_string() -> None:
    writer = RdbWriter(11)
    writer.key(0, string("x"), b"long" * (2 * PIECE))
    for size in (2 * PIECE, PIECE + 1, PIECE // 2):
        writer.key(0, string(b"x" * size), b"%d" % size)

    found = read(writer.end(), 1 << 30, PIECE)

    assert [key.name for key in found if key.payload is not None][1:] == [b"%d" % (PIECE // 2)]


def test_a_value_whose_reader_gave_up_is_read_to_its_end() -> None:
    def one(snapshot: Snapshot) -> Iterator[object]:
        yield from snapshot.elements()

    data = RdbWriter(11).key(1, length(2) + string("a") + string("b"), b"list").key(0, string("x"), b"after").end()
    snapshot = Snapshot(io.BytesIO(data), "a.rdb", 0)
    next(snapshot)
    given_up = one(snapshot)
    assert next(given_up) == b"a"
    given_up.close()  # type: ignore[attr-defined]

    assert next(snapshot).name == b"after"


def test_nothing_is_read_behind_a_faulty_value() -> None:
    data = RdbWriter(11).key(18, length(2) + b"\x03" + string("a"), b"list").key(0, string("x"), b"after").end()
    snapshot = Snapshot(io.BytesIO(data), "a.rdb", 0)
    next(snapshot)
    with pytest.raises(CorruptRdb, match="container 3"):
        list(snapshot.elements())

    with pytest.raises(CorruptRdb, match="not read to its end"):
        next(snapshot)


def test_a_modules_value_has_no_elements_and_is_passed_over() -> None:
    [(code, version, magic, value)] = [row[:4] for row in VALUES if row[0] == 7]
    data = RdbWriter(version, magic).key(code, value).key(0, string("x"), b"after").end()
    snapshot = Snapshot(io.BytesIO(data), "a.rdb", 0)

    assert next(snapshot).type is None
    with pytest.raises(UnsupportedRdb, match="type 7"):
        snapshot.elements()
    assert next(snapshot).name == b"after"


@pytest.mark.parametrize("size", [1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE])
@pytest.mark.parametrize("form", [string, lzf])
@pytest.mark.parametrize("content", [b"x", b"0123456789"])
def test_a_long_string_comes_in_parts(form: Callable[[bytes], bytes], size: int, content: bytes) -> None:
    text = (content * size)[:size]
    data = RdbWriter(11).key(0, form(text)).key(0, string("x"), b"after").end()
    snapshot = Snapshot(Slowly(data, 50_000), "a.rdb", 0)

    next(snapshot)
    parts = [part for part in snapshot.elements() if isinstance(part, bytes)]

    assert b"".join(parts) == text
    assert max(map(len, parts)) < PIECE + 300
    assert next(snapshot).name == b"after"
