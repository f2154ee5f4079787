"""Elements of values of every type and encoding, also of servers that are not at hand."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import pytest

from rdb.elements import NEVER, Consumer, Counters, Entry, Field, Group, Owned, Pending, Scored
from rdb.errors import CorruptRdb, RdbError
from rdb.snapshot import Snapshot
from tests.unit.rdb.packing import listpack, ziplist
from tests.unit.rdb.writer import CREATED, RdbWriter, length, milliseconds, stream_id, string
from tests.unit.sizing.rdb.test_parser import VALUES

SOON = CREATED * 1000 + 5


def read(code: int, value: bytes, version: int = 11, magic: str = "REDIS") -> list[Any]:
    data = RdbWriter(version, magic).key(code, value).key(0, string("x"), b"after").end()
    snapshot = Snapshot(io.BytesIO(data), "a.rdb", 0)
    next(snapshot)
    found: list[Any] = list(snapshot.elements())
    assert next(snapshot).name == b"after"
    return found


def field(name: bytes = b"field", value: bytes = b"value", deadline: int = NEVER) -> Field:
    return Field(name, value, deadline)


def stream(version: int) -> list[Any]:
    """What :func:`tests.unit.sizing.rdb.test_parser.stream` writes."""
    known = version >= 2
    return [
        Entry((1, 0), [b"field", b"one"]),
        Entry((2, 0), [b"other", b"two"]),
        Counters(2, (2, 0), *(((1, 0), (0, 0), 2) if known else (None, None, None))),
        Group(b"group", (1, 0), 1 if known else None),
        Pending((1, 0), CREATED * 1000, 1),
        Consumer(b"consumer", 1, 1 if version >= 3 else None),
        Owned((1, 0)),
    ]


EXPECTED: list[list[Any]] = [
    *([b"text"], [b"x" * 45], [b"12345678901"], [b"-9223372036854775808"], [b"9223372036854775808"]),
    *([b"-0"], [b"01"], [], [b"-128"], [b"-32768"], [b"-2147483648"], [b"x" * 1000], [b"a", b"b"], [b"a", b"7"]),
    [Scored(b"a", 1.5), Scored(b"b", float("inf"))],
    [field()],
    [Scored(b"a", 1.5)],
    [field(b"a", b"b")],
    *([b"a", b"b"], [b"1", b"2", b"3"], [Scored(b"a", 1.0)], [field(b"a", b"b")], [field(b"a" * 40, b"a" * 40)]),
    [b"a", b"b", b"c"],
    stream(1),
    *([field(b"a", b"1")], [Scored(b"a", 1.0), Scored(b"b" * 100, 2.0)], [b"a", b"1"], [b"a", b"1"]),
    [b"x" * 9000, b"1"],
    stream(2),
    [b"a", b"1", b"2"],
    stream(3),
    *([field(deadline=CREATED * 1000)], [field(), field(deadline=SOON)], [field(b"a", b"b")]),
    *([field(), field(deadline=SOON)], [field(b"a", b"b"), field(b"c", b"d", 1)]),
    stream(4),
    stream(5),
]


@pytest.mark.parametrize(
    ("row", "expected"),
    list(zip([row for row in VALUES if row[0] != 7], EXPECTED, strict=True)),
    ids=range(len(EXPECTED)),
)
def test_a_value_of_each_type_has_its_elements(row: tuple[Any, ...], expected: list[Any]) -> None:
    code, version, magic, value = row[:4]

    assert read(code, value, version, magic) == expected


def a_node(*items: bytes | int) -> bytes:
    """A stream of one node, which begins at 1000-7."""
    node = (1000).to_bytes(8, "big") + (7).to_bytes(8, "big")
    return length(1) + string(node) + string(listpack(*items)) + length(2) + length(2000) + length(0) + length(0)


def test_an_entry_that_was_deleted_is_no_element_and_ids_may_be_below_the_nodes_number() -> None:
    found = read(15, a_node(2, 1, 1, b"f", 0, 2, 0, 0, b"a", 4, 3, 5, 1, b"gone", 4, 2, 1000, -7, b"b", 4))

    assert found[:-1] == [Entry((1000, 7), [b"f", b"a"]), Entry((2000, 0), [b"f", b"b"])]


@pytest.mark.parametrize(
    "items",
    [
        (2, 0, 1, b"f", 0, 2, 0, 0, b"a", 4),
        (1, 0, 1, b"f", 0, 2, 0, 0, b"a", 4, 2, 0, 1, b"b", 4),
        (1, 0, 1, b"f", 0, 2, b"x", 0, b"a", 4),
        (1, 0, 1 << 40, b"f", 0, 2, 0, 0, b"a", 4),
        (1, 0, -1, b"f"),
        (),
    ],
    ids=["too-few-entries", "too-many-entries", "no-number", "many-fields", "fewer-than-none", "nothing"],
)
def test_a_faulty_node_of_a_stream_is_refused(items: tuple[bytes | int, ...]) -> None:
    with pytest.raises(CorruptRdb, match="node of a stream"):
        read(15, a_node(*items))


@pytest.mark.parametrize(
    ("code", "value", "reason"),
    [
        (17, string(listpack(b"a", 1, b"b")), "a member without a score"),
        (17, string(listpack(b"a", b"b")), "b'b' is no score"),
        (3, length(1) + string("a") + b"\x02xy", "b'xy' is no score"),
        (16, string(listpack(b"a")), "a field without a value"),
        (25, milliseconds(SOON) + string(listpack(b"a", b"b")), "a field without a value"),
        (25, milliseconds(SOON) + string(listpack(b"a", b"b", b"soon")), "b'soon' is no deadline"),
        (20, string(ziplist(b"a")), "cannot be taken apart"),
        (18, length(1) + b"\x03", "container 3"),
        (15, length(1) + string(stream_id(1)[:15]) + string(listpack()), "no ID of 16 bytes"),
        (0, b"\xc3" + length(2) + length(100) + b"\x01a", "cannot be decompressed"),
        (0, b"\xc3" + length(3) + length(100) + b"\x20\x05a", "cannot be decompressed"),
        (0, b"\xc3" + length(2) + length(1 << 63) + b"\x00a", "cannot give"),
        (0, b"\xc3" + length(2) + length(1 << 40) + b"\x00a", "cannot give"),
        (2, length(1) + b"\xc3" + length(4) + length(2) + b"\x02abc", "cannot be decompressed"),
        (0, b"\xc3" + length(2) + length(9) + b"\x00a", "cannot be decompressed"),
    ],
)
def test_a_faulty_value_is_refused(code: int, value: bytes, reason: str) -> None:
    with pytest.raises(CorruptRdb, match=reason):
        read(code, value)


@pytest.mark.parametrize("row", [row for row in VALUES if row[0] != 7], ids=lambda row: row[0])
def test_a_damaged_value_is_read_or_refused_with_the_parsers_own_error(row: tuple[Any, ...]) -> None:
    code, version, magic, value = row[:4]
    for place in range(min(len(value), 200)):
        for byte in (0, value[place] ^ 1, value[place] ^ 0x80, 0x81, 255):
            damaged = value[:place] + bytes([byte]) + value[place + 1 :]
            snapshot = Snapshot(io.BytesIO(RdbWriter(version, magic).key(code, damaged).end()), "a.rdb", 0)
            with suppress(RdbError):
                next(snapshot)
                list(snapshot.elements())
