"""What becomes of snapshots that are written by hand: which keys are taken, how, and in which batches."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

import pytest

from migrator.errors import CannotBeCut
from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from rdb.elements import Element, Field
from rdb.errors import ChecksumMismatch, CorruptRdb, TruncatedRdb, UnreadableRdb, UnsupportedRdb
from rdb.input import PIECE
from slots.keyslots import KeySlots
from tests.unit.rdb.test_snapshot import Slowly, payload
from tests.unit.rdb.writer import RdbWriter, length, lzf, milliseconds, string
from tests.unit.sizing.rdb.test_parser import MODULE, MODULE_VALUE, VALUES

SLOTS = KeySlots("crc32", 1024)
PLACEHOLDER = 9_000_000_000_000
EVERYTHING = bytes([1]) * 1024
EXPIRING = (22, 23, 24, 25)
"""Types of hashes whose fields have deadlines."""
MODULE_HEAD = b"\x81" + struct.pack(">Q", MODULE)


class NoMore(io.RawIOBase):
    """Fails as a spool does whose writer has ended."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def readinto(self, buffer: object) -> int:
        if not self.data:
            raise RuntimeError("no more")
        room = memoryview(buffer)  # type: ignore[arg-type]
        room[: len(self.data)] = self.data
        read, self.data = len(self.data), b""
        return read


def a_filter(
    data: bytes,
    wanted: bytes | bytearray = EVERYTHING,
    *,
    step: int = 1 << 30,
    most_bytes: int = 1 << 20,
    most_keys: int = 1000,
    big_bytes: int = PIECE,
    most_work: int = 1 << 20,
    big_work: int = 1 << 20,
) -> SnapshotFilter:
    return SnapshotFilter(
        Slowly(data, step),
        "a.rdb",
        SLOTS,
        wanted if isinstance(wanted, bytearray) else bytearray(wanted),
        most_bytes=most_bytes,
        most_keys=most_keys,
        big_bytes=big_bytes,
        most_work=most_work,
        big_work=big_work,
        placeholder_ms=PLACEHOLDER,
        size=len(data),
    )


def unpacked(packed: bytes) -> list[list[bytes]]:
    """The commands that are packed in RESP."""
    file = io.BytesIO(packed)

    def number(kind: bytes) -> int:
        line = file.readline()
        assert line[:1] == kind
        assert line[-2:] == b"\r\n"
        return int(line[1:-2])

    def text() -> bytes:
        whole = file.read(number(b"$") + 2)
        assert whole[-2:] == b"\r\n"
        return whole[:-2]

    found = []
    while file.tell() < len(packed):
        found.append([text() for _ in range(number(b"*"))])
    return found


def batches(found: SnapshotFilter) -> list[Batch]:
    items = list(found)
    given = [item for item in items if isinstance(item, Batch)]
    assert len(given) == len(items)
    for batch in given:
        assert len(unpacked(batch.commands)) == batch.count
    return given


def names(batch: Batch) -> list[bytes]:
    return [command[1] for command in unpacked(batch.commands)]


def only(found: SnapshotFilter) -> tuple[list[bytes], list[tuple[int, bytes]], list[bytes]]:
    """The one command, the deadlines that are noted, and the keys whose own are withheld."""
    [batch] = batches(found)
    [command] = unpacked(batch.commands)
    return command, batch.deadlines, batch.withheld


def marked(**copies: int) -> bytearray:
    """The slots of these keys go to these copies."""
    wanted = bytearray(1024)
    for name, copy in copies.items():
        wanted[SLOTS.slot_of(0, name.encode())] = copy
    return wanted


def texts(*keys: str) -> RdbWriter:
    writer = RdbWriter(11)
    for key in keys:
        writer.key(0, string(f"value of {key}"), key.encode())
    return writer


@pytest.mark.parametrize(("code", "version", "magic", "value"), [row[:4] for row in VALUES if row[0] not in EXPIRING])
def test_a_value_of_each_type_becomes_what_restore_takes(code: int, version: int, magic: str, value: bytes) -> None:
    data = RdbWriter(version, magic).key(code, value).key(0, string("x"), b"after").end()
    found = a_filter(data)

    [batch] = batches(found)

    assert batch[:2] == (1, 0)
    assert unpacked(batch.commands) == [
        [b"RESTORE", b"key", b"0", payload(code, value, version)],
        [b"RESTORE", b"after", b"0", payload(0, string("x"), version)],
    ]
    assert batch.deadlines == []
    assert (found.version, found.keys_read, found.bytes_read) == (version, 2, len(data))


@pytest.mark.parametrize("step", [97, 4096, PIECE - 1, PIECE + 1])
def test_keys_are_whole_however_the_bytes_come(step: int) -> None:
    writer, expected = RdbWriter(11), []
    for number, size in enumerate((0, 1, 1000, PIECE // 3, PIECE // 2, PIECE - 10, PIECE // 5) * 3):
        for code, value in ((0, string(b"x" * size)), (2, length(3) + 3 * string(b"y" * (size // 4)))):
            name = b"%d:%d" % (code, number)
            writer.key(code, value, name)
            expected.append([b"RESTORE", name, b"0", payload(code, value)])

    found = batches(a_filter(writer.end(), step=step))

    assert [command for batch in found for command in unpacked(batch.commands)] == expected


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (string(""), b""),
        (b"\xc0\x80", b"-128"),
        (b"\xc1\x39\x30", b"12345"),
        (b"\xc2\x00\x00\x00\x80", b"-2147483648"),
        (b"\xc0\x00", b"0"),
        (lzf(b"k" * 5000), b"k" * 5000),
        (lzf(bytes(range(200))), bytes(range(200))),
        (string(b"line\r\n\x00\xff"), b"line\r\n\x00\xff"),
    ],
)
@pytest.mark.parametrize("taken", [True, False])
def test_a_name_is_read_however_it_is_stored(stored: bytes, name: bytes, taken: bool) -> None:
    wanted = bytearray(1024)
    wanted[SLOTS.slot_of(0, name)] = 3 if taken else 0
    wanted[SLOTS.slot_of(0, b"other")] = 3
    data = RdbWriter(11).raw(b"\x00" + stored + string("x")).key(0, string("y"), b"other").end()

    [batch] = batches(a_filter(data, wanted))

    assert names(batch) == ([name] if taken else []) + [b"other"]


@pytest.mark.parametrize("stored", [b"\xc3\x02\x20\x00\x00", b"\xc3\x02\x14\x00k", b"\xc3\x02\x00\x00k"])
def test_a_name_that_cannot_be_decompressed_is_a_fault(stored: bytes) -> None:
    with pytest.raises(CorruptRdb):
        batches(a_filter(RdbWriter(11).raw(b"\x00" + stored + string("x")).end()))


def test_only_keys_of_wanted_slots_are_taken_each_for_its_copy() -> None:
    found = a_filter(texts("a", "b", "c", "{a}2", "d", "__slotferry:moving").end(), marked(a=1, c=255))

    given = batches(found)

    assert [(batch.copy, names(batch)) for batch in given] == [(1, [b"a", b"{a}2"]), (255, [b"c"])]
    assert found.keys_read == 6


def test_our_own_keys_are_never_taken() -> None:
    [batch] = batches(a_filter(texts("__slotferry:moving", "__slotferry", "__slotferry:", "a").end()))

    assert names(batch) == [b"__slotferry", b"a"]


def test_a_slot_may_leave_or_change_its_copy_while_the_snapshot_is_read() -> None:
    wanted = marked(a=1, b=2)
    found = a_filter(texts("a", "b", "{a}2", "{b}2", "{a}3", "{b}3").end(), wanted, most_keys=1)
    given = [next(found), next(found)]
    wanted[SLOTS.slot_of(0, b"a")] = 0
    wanted[SLOTS.slot_of(0, b"b")] = 7
    given += found

    assert [(item.copy, names(item)) for item in given if isinstance(item, Batch)] == [
        (1, [b"a"]),
        (2, [b"b"]),
        (7, [b"{b}2"]),
        (7, [b"{b}3"]),
    ]


def test_wanted_slots_cannot_be_taken_away_under_the_filter() -> None:
    wanted = bytearray(EVERYTHING)
    found = a_filter(texts("a").end(), wanted)

    with pytest.raises(BufferError):
        wanted.clear()

    assert len(batches(found)) == 1
    del found
    wanted.clear()


@pytest.mark.parametrize("most_keys", [1, 2, 3, 7, 8])
def test_a_batch_has_at_most_so_many_keys(most_keys: int) -> None:
    keys = [f"{{a}}{number}" for number in range(7)]

    given = batches(a_filter(texts(*keys).end(), most_keys=most_keys))

    assert [name.decode() for batch in given for name in names(batch)] == keys
    counts = [batch.count for batch in given]
    assert counts == [most_keys] * (7 // most_keys) + [7 % most_keys] * bool(7 % most_keys)


def test_a_batch_has_at_most_so_many_bytes_unless_it_has_one_command() -> None:
    sizes = [100, 100, 100, 2000, 10, 10, 900, 5000, 4000, 1]
    writer = RdbWriter(11)
    for number, size in enumerate(sizes):
        writer.key(0, string(b"x" * size), b"%d" % number, b"\xfc" + milliseconds(1000 + number))
    data = writer.end()
    [whole] = batches(a_filter(data))
    one_by_one = [batch.commands for batch in batches(a_filter(data, most_keys=1))]
    assert b"".join(one_by_one) == whole.commands

    for most in (1, len(one_by_one[0]), *range(300, 10_000, 97)):
        found = a_filter(data, most_bytes=most)
        found.noted_until_ms = 10_000
        given = batches(found)
        assert b"".join(batch.commands for batch in given) == whole.commands
        assert all(len(batch.commands) <= most or batch.count == 1 for batch in given)
        # None of them could have had one more.
        assert all(
            len(one.commands) + len(one_by_one[names(other)[0][0] - 48]) > most for one, other in pairwise(given)
        )
        for batch in given:
            assert batch.deadlines == [(1000 + int(name), name) for name in names(batch)]


def test_the_batches_of_several_copies_grow_beside_each_other() -> None:
    wanted = marked(a=1, b=2)

    given = batches(a_filter(texts("a", "b", "{a}2", "{b}2", "{a}3", "{b}3").end(), wanted, most_keys=2))

    assert [(batch.copy, names(batch)) for batch in given] == [
        (1, [b"a", b"{a}2"]),
        (2, [b"b", b"{b}2"]),
        (1, [b"{a}3"]),
        (2, [b"{b}3"]),
    ]


def test_a_batch_has_keys_of_one_database() -> None:
    writer = texts("a", "b").raw(b"\xfe\x03").key(0, string("x"), b"a").raw(b"\xfe\x40\x64").key(0, string("y"), b"b")

    given = batches(a_filter(writer.end(), marked(a=1, b=2)))

    assert [(batch.copy, batch.database, names(batch)) for batch in given] == [
        (1, 0, [b"a"]),
        (2, 0, [b"b"]),
        (1, 3, [b"a"]),
        (2, 100, [b"b"]),
    ]


@pytest.mark.parametrize(
    ("deadline", "withheld_until", "noted_until", "written", "noted"),
    [
        (5000, 0, 0, 5000, False),
        (5000, 0, 4999, 5000, False),
        (5000, 0, 5000, 5000, True),
        (5000, 4999, 4999, 5000, False),
        (5000, 4999, 5000, 5000, True),
        (5000, 5000, 0, PLACEHOLDER, False),
        (5000, 5000, 6000, PLACEHOLDER, False),
        (1, 5000, 6000, PLACEHOLDER, False),
        # No server takes these.
        (0, 0, 0, PLACEHOLDER, False),
        (-5, -10, -10, PLACEHOLDER, False),
        (PLACEHOLDER + 1, 5000, 6000, PLACEHOLDER + 1, False),
    ],
)
def test_deadlines_that_are_near_are_withheld_or_noted(
    deadline: int, withheld_until: int, noted_until: int, written: int, noted: bool
) -> None:
    found = a_filter(RdbWriter(11).key(0, string("x"), before=b"\xfc" + milliseconds(deadline)).end())
    found.withheld_until_ms, found.noted_until_ms = withheld_until, noted_until

    command, deadlines, withheld = only(found)

    assert command == [b"RESTORE", b"key", b"%d" % written, payload(0, string("x")), b"ABSTTL"]
    assert deadlines == ([(deadline, b"key")] if noted else [])
    assert withheld == ([b"key"] if written == PLACEHOLDER else [])


def test_an_open_batch_keeps_the_deadlines_that_it_has() -> None:
    writer = RdbWriter(11)
    for number in range(3):
        writer.key(0, string("x" * 200), b"%d" % number, b"\xfc" + milliseconds(5000 + number))
    found = a_filter(writer.end(), most_bytes=500)
    found.noted_until_ms = 9000
    assert names(cast(Batch, next(found))) == [b"0"]

    # The second key opened a batch when the first one was given.
    found.withheld_until_ms = 9000
    opened, read_since = (cast(Batch, one) for one in found)

    assert unpacked(opened.commands)[0][2] == b"5001"
    assert (opened.deadlines, opened.withheld) == ([(5001, b"1")], [])
    assert unpacked(read_since.commands)[0][2] == b"%d" % PLACEHOLDER
    assert (read_since.deadlines, read_since.withheld) == ([], [b"2"])


def test_a_deadline_in_seconds_is_one_in_milliseconds() -> None:
    data = RdbWriter(9).key(0, string("x"), before=b"\xfd" + struct.pack("<I", 1_900_000_000)).end()

    assert only(a_filter(data))[0][2:] == [b"1900000000000", payload(0, string("x"), 9), b"ABSTTL"]


def test_what_is_withheld_may_change_between_two_items() -> None:
    writer = RdbWriter(11)
    for number in range(4):
        writer.key(0, string("x"), b"%d" % number, b"\xfc" + milliseconds(1000 * number + 1000))
    found = a_filter(writer.end(), most_keys=1)
    given: list[tuple[bytes, list[bytes]]] = []
    for moment in (0, 2000, 2000, 9000):
        found.withheld_until_ms = moment
        batch = next(found)
        assert isinstance(batch, Batch)
        given.append((unpacked(batch.commands)[0][2], batch.withheld))

    assert given == [
        (b"1000", []),
        (b"%d" % PLACEHOLDER, [b"1"]),
        (b"3000", []),
        (b"%d" % PLACEHOLDER, [b"3"]),
    ]


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (b"\xf8" + length(70_000), [b"0", b"IDLETIME", b"70000"]),
        (b"\xf8\x00", [b"0", b"IDLETIME", b"0"]),
        (b"\xf9\x07", [b"0", b"FREQ", b"7"]),
        (b"\xf9\x00", [b"0", b"FREQ", b"0"]),
        # RESTORE takes one of them.
        (b"\xf9\x07\xf8\x05", [b"0", b"IDLETIME", b"5"]),
        (b"\xfc" + milliseconds(5000) + b"\xf9\xff", [b"5000", b"ABSTTL", b"FREQ", b"255"]),
        (b"\xfc" + milliseconds(5000) + b"\xf8\x05", [b"5000", b"ABSTTL", b"IDLETIME", b"5"]),
    ],
)
def test_how_a_key_was_used_is_told(before: bytes, told: list[bytes]) -> None:
    command = only(a_filter(RdbWriter(11).key(0, string("x"), before=before).end()))[0]

    assert [command[2], *command[4:]] == told


LIST = length(600) + b"".join(string(b"%d" % number + b"x" * 1000) for number in range(600))


def with_elements(found: SnapshotFilter) -> Iterator[tuple[Batch | BigKey, list[Element]]]:
    for item in found:
        yield item, list(found.elements()) if isinstance(item, BigKey) else []


@pytest.mark.parametrize("step", [4096, 1 << 30])
def test_a_big_value_comes_as_its_elements(step: int) -> None:
    before = b"\xfc" + milliseconds(5000) + b"\xf8\x05"
    data = (
        texts("a", "b")
        .key(1, LIST, b"list", before)
        .key(0, string("small"), b"{list}2")
        .key(0, string(b"x" * (PIECE + 1)), b"{list}3", b"\xf9\x06")
        .end()
    )
    found = a_filter(data, marked(a=1, list=2), step=step)
    found.withheld_until_ms = 6000

    given = list(with_elements(found))

    assert [item[:3] if isinstance(item, BigKey) else (item.copy, names(item)) for item, _ in given] == [
        (2, 0, b"list"),
        (2, [b"{list}2"]),
        (2, 0, b"{list}3"),
        (1, [b"a"]),
    ]
    assert given[0][0] == BigKey(2, 0, b"list", "list", 5000, 5, None, False)
    assert given[0][1] == [b"%d" % number + b"x" * 1000 for number in range(600)]
    assert given[2][0] == BigKey(2, 0, b"{list}3", "string", None, None, 6, False)
    assert b"".join(part for part in given[2][1] if isinstance(part, bytes)) == b"x" * (PIECE + 1)


def test_a_string_is_big_by_its_head_alone() -> None:
    data = RdbWriter(11).key(0, string(b"x" * PIECE)).end()

    # Nothing is wrong if the byte that makes it too large comes last.
    [item] = a_filter(data, step=1, big_bytes=PIECE)

    assert isinstance(item, BigKey)


@pytest.mark.parametrize(
    ("code", "form"), [(0, string), (2, lambda data: length(2) + string("other") + string(data)), (0, lzf)]
)
@pytest.mark.parametrize("size", [1, 50, PIECE - 1, PIECE + 1, 3 * PIECE])
@pytest.mark.parametrize("step", [4096, 1 << 30])
def test_a_value_is_big_above_the_limit_and_not_at_it(
    code: int, form: Callable[[bytes], bytes], size: int, step: int
) -> None:
    value = form(b"0123456789abc" * (size // 13 + 1))
    data = texts("a").key(code, value, b"key").key(0, string("x"), b"after").end()
    wanted = marked(key=1, after=1)

    at, above = (
        list(a_filter(data, wanted, step=step, big_bytes=len(value) - less, most_bytes=1 << 24)) for less in (0, 1)
    )

    [batch] = at
    assert isinstance(batch, Batch)
    assert unpacked(batch.commands)[0][3] == payload(code, value)
    assert [(type(item), item.copy) for item in above] == [(BigKey, 1), (Batch, 1)]


def listpack(*entries: bytes) -> bytes:
    """Of bytes that are entries already; fewer than 65,535."""
    content = b"".join(entries)
    return struct.pack("<IH", len(content) + 7, min(len(entries), 65_535)) + content + b"\xff"


@pytest.mark.parametrize(
    ("code", "value", "work"),
    [
        # Each 128 bytes that come out of a compressed value count one.
        (0, string(b"x" * 1280), 10),
        (0, lzf(b"x" * 128_000), 1000),
        (0, string(5), 0),
        # A server may make a table of a packed collection, however small it is.
        (16, string(listpack(*[b"\x01\x01"] * 2000)), 1000),
        # It does not tell how many elements it has.
        (16, lzf(listpack(*[b"\x01\x01"] * 100_000)), 100_000),
        # Three nodes of a list, which are compressed.
        (18, length(3) + 3 * (b"\x01" + lzf(b"x" * 128_000)), 3003),
        (2, length(500) + b"".join(string(b"member:%d" % number) for number in range(500)), 500),
    ],
)
def test_a_value_is_big_by_the_work_that_it_is(code: int, value: bytes, work: int) -> None:
    data = texts("a").key(code, value, b"key").key(0, string("x"), b"after").end()

    [whole] = batches(a_filter(data, big_work=work + work // 2 + 20))
    assert names(whole) == [b"a", b"key", b"after"]
    if work:
        kinds = [type(item) for item in a_filter(data, big_work=work - 1)]
        assert kinds == [Batch, BigKey, Batch]


def test_a_batch_has_at_most_so_much_work_unless_it_has_one_command() -> None:
    members = length(100) + b"".join(string(b"%d" % number) for number in range(100))
    writer = RdbWriter(11)
    for number in range(7):
        writer.key(2, members, b"%d" % number)
    data = writer.end()

    def sizes(most_work: int) -> list[int]:
        return [batch.count for batch in batches(a_filter(data, most_work=most_work))]

    assert sizes(1) == [1] * 7
    assert sum(sizes(600)) == 7
    assert set(sizes(600)[:-1]) == {4}
    assert sizes(10_000) == [7]


def test_a_batch_has_at_most_so_much_work_of_commands() -> None:
    writer = RdbWriter(11)
    for number in range(100):
        writer.key(0, string("x"), b"%d" % number)

    assert [batch.count for batch in batches(a_filter(writer.end(), most_work=200))] == [16] * 6 + [4]


@pytest.mark.parametrize(("code", "version", "magic", "value"), [row[:4] for row in VALUES if row[0] in EXPIRING])
def test_a_hash_whose_fields_have_deadlines_comes_as_its_elements(
    code: int, version: int, magic: str, value: bytes
) -> None:
    data = RdbWriter(version, magic).key(code, value, b"a").key(code, value, b"b").key(0, string("x"), b"after").end()

    given = list(with_elements(a_filter(data, marked(a=1, after=1))))

    assert given[0][0] == BigKey(1, 0, b"a", "hash", None, None, None, True)
    assert all(isinstance(field, Field) for field in given[0][1])
    assert [names(item) for item, _ in given[1:] if isinstance(item, Batch)] == [[b"after"]]
    assert len(given[0][1]) in (1, 2)


def test_what_nobody_reads_of_a_big_value_is_passed_over() -> None:
    writer = RdbWriter(11)
    for number in range(4):
        writer.key(1, length(3) + string("a") + string("b") + string("c"), b"%d" % number)
    found = a_filter(writer.key(0, string("x"), b"small").end(), big_bytes=6)
    read: dict[bytes, list[Element]] = {}

    for item in found:
        if isinstance(item, Batch):
            assert names(item) == [b"small"]
        elif item.name != b"1":
            elements = found.elements()
            read[item.name] = [next(elements) for _ in range(2 if item.name == b"2" else 3)]
            with pytest.raises(ValueError, match="has been read"):
                found.elements()

    assert read == {b"0": [b"a", b"b", b"c"], b"2": [b"a", b"b"], b"3": [b"a", b"b", b"c"]}
    assert found.keys_read == 5


def test_the_elements_are_those_of_the_item_that_was_given() -> None:
    found = a_filter(texts("{b}small").key(1, LIST, b"b").end())
    with pytest.raises(ValueError, match="has been read"):
        found.elements()

    assert isinstance(next(found), Batch)
    with pytest.raises(ValueError, match="is no big key"):
        found.elements()
    assert isinstance(next(found), BigKey)
    assert len(list(found.elements())) == 600


def test_a_modules_big_value_is_named_and_cannot_be_cut() -> None:
    value = MODULE_HEAD + MODULE_VALUE[:-1] + b"\x05" + string(bytes(PIECE)) + b"\x00"
    data = RdbWriter(11).key(7, value, b"a\n").key(0, string("x"), b"after").end()
    found = a_filter(data)

    assert next(found) == BigKey(1, 0, b"a\n", "hello-wor", None, None, None, False)
    with pytest.raises(CannotBeCut, match=r"key 'a\\n' of database 0 .* hello-wor"):
        found.elements()
    # Whoever goes on gets what follows.
    [batch] = batches(found)
    assert names(batch) == [b"after"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_key_with_a_modules_data_beside_its_value_is_taken_by_nobody(taken: bool) -> None:
    data = RdbWriter(13).key(0, string("x"), b"key", b"\xf3\x01" + bytes(4) + MODULE_VALUE).end()
    found = a_filter(data, marked(key=taken))

    if taken:
        with pytest.raises(UnsupportedRdb, match="'key' of database 0 has data of modules"):
            list(found)
    else:
        assert list(found) == []


def test_functions_are_skipped() -> None:
    writer = RdbWriter(11).raw(b"\xf5" + string("#!lua name=x")).key(0, string("x")).raw(b"\xf5" + string("y"))

    assert only(a_filter(writer.end()))[0][1] == b"key"


@pytest.mark.parametrize(
    ("stored", "database"),
    [
        *((string("3"), 3), (b"\xc0\x0b", 11), (string("0"), 0)),
        *((string("-1"), -1), (b"\xc0\xff", -1), (string("x"), -1), (string("99999999999"), -1)),
    ],
)
def test_the_database_in_which_the_stream_goes_on_is_told(stored: bytes, database: int) -> None:
    writer = RdbWriter(11).raw(b"\xfa" + string("repl-stream-db") + stored).aux("repl-offset", 7)
    found = a_filter(writer.key(0, string("x")).end())
    assert found.stream_database == -1

    batches(found)

    assert found.stream_database == database


def test_a_snapshot_of_a_file_tells_no_database_of_a_stream() -> None:
    found = a_filter(RdbWriter(11).end())

    assert list(found) == []
    assert (found.stream_database, found.version, found.keys_read) == (-1, 11, 0)


@pytest.mark.parametrize("step", [4096, PIECE - 1, 1 << 30])
def test_every_changed_byte_is_noticed(step: int) -> None:
    writer = RdbWriter(11)
    for number, size in enumerate((10, PIECE // 2, 3 * PIECE, 10, PIECE // 3)):
        writer.key(0, string(b"x" * size), b"%d" % number)
    data = writer.end()
    half = marked(**{str(number): number % 2 for number in range(5)})
    list(a_filter(data, half, step=step))

    for place in range(200, len(data) - 200, len(data) // 30):
        with pytest.raises(ChecksumMismatch):
            list(a_filter(data[:place] + b"y" + data[place + 1 :], half, step=step))


@pytest.mark.parametrize("cut", [5, 20, 300, 5000])
def test_after_a_fault_nothing_more_is_given(cut: int) -> None:
    data = texts("a").key(1, LIST, b"big").key(0, string(b"x" * 4000), b"after").end()
    found = a_filter(data[:-cut], most_keys=1)

    with pytest.raises(TruncatedRdb):
        list(found)
    for _ in range(2):
        with pytest.raises(UnreadableRdb, match="a fault has ended"):
            next(found)


def test_a_file_that_fails_ends_the_filter_with_its_error() -> None:
    found = SnapshotFilter(
        NoMore(texts("a", "b").end()[:-15]),
        "a.rdb",
        SLOTS,
        bytearray(EVERYTHING),
        most_bytes=1000,
        most_keys=1,
        big_bytes=1000,
        most_work=1000,
        big_work=1000,
        placeholder_ms=PLACEHOLDER,
    )

    assert isinstance(next(found), Batch)
    with pytest.raises(RuntimeError, match="no more"):
        next(found)
    with pytest.raises(UnreadableRdb, match="a fault has ended"):
        next(found)


def test_elements_that_were_cut_end_the_filter() -> None:
    found = a_filter(RdbWriter(11).key(1, LIST, b"list").end()[:-5000])
    next(found)

    with pytest.raises(TruncatedRdb):
        list(found.elements())
    with pytest.raises(CorruptRdb, match="not read to its end"):
        next(found)
    with pytest.raises(UnreadableRdb, match="a fault has ended"):
        next(found)


def test_a_very_long_name_is_taken() -> None:
    name = b"long" * PIECE
    data = texts("a").key(0, string("x"), name).key(0, string("y"), b"z").end()

    given = batches(a_filter(data, most_bytes=1000, big_bytes=1000))

    assert [names(batch) for batch in given] == [[b"a"], [name], [b"z"]]


@pytest.mark.parametrize(
    ("wanted", "limits", "match"),
    [
        (bytes(1023), {}, "1023 slots"),
        (bytes(1024), {"most_bytes": 0}, "most_bytes is 0"),
        (bytes(1024), {"most_keys": 0}, "most_keys is 0"),
        (bytes(1024), {"big_bytes": 0}, "big_bytes is 0"),
        (bytes(1024), {"big_bytes": (64 << 20) + 1}, "big_bytes is"),
        (bytes(1024), {"most_work": 0}, "most_work is 0"),
        (bytes(1024), {"big_work": 0}, "big_work is 0"),
    ],
)
def test_limits_that_make_no_sense_are_refused(wanted: bytes, limits: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        a_filter(RdbWriter(11).end(), wanted, **limits)


@pytest.mark.parametrize("placeholder", [0, -1, 1 << 62])
def test_a_placeholder_that_is_no_deadline_is_refused(placeholder: int) -> None:
    with pytest.raises(ValueError, match="no deadline"):
        SnapshotFilter(
            io.BytesIO(),
            "a.rdb",
            SLOTS,
            bytearray(1024),
            most_bytes=1,
            most_keys=1,
            big_bytes=1,
            most_work=1,
            big_work=1,
            placeholder_ms=placeholder,
        )
