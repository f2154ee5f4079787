"""Every type and opcode of RDB files, as the format has them, and the errors for faulty files."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from rdb import errors
from rdb.errors import RdbError
from rdb.input import MOST_CONTIGUOUS, PIECE, crc64, decompress
from sizing.rdb.parser import Key, read_keys, rows
from sizing.rdb.scanner import KEY_BYTES, Scanner
from slots.functions import slot
from slots.rules import SlotRule
from tests.unit.rdb.packing import intset, listpack, ziplist
from tests.unit.rdb.writer import CREATED, RdbWriter, length, lzf, milliseconds, stream_id, string


def parsed(data: bytes, **options: object) -> tuple[list[Key], RdbError | None]:
    scanner = Scanner(io.BytesIO(data), "a.rdb", len(data), **options)  # type: ignore[arg-type]
    found: list[Key] = []
    while batch := scanner.batch():
        found += rows(batch, scanner.types)
    return found, scanner.error


def only(data: bytes, **options: object) -> Key:
    found, error = parsed(data, **options)
    assert error is None, error
    [key] = found
    return key


def group(version: int) -> bytes:
    """A consumer group with a pending entry, a consumer that has it, and as many fields as the type's version."""
    return (
        string("group")
        + length(1)
        + length(0)
        + (length(1) if version >= 2 else b"")
        + (length(1) + stream_id(1) + milliseconds(CREATED * 1000) + length(1))
        + (length(1) + string("consumer") + milliseconds(1) + (milliseconds(1) if version >= 3 else b""))
        + (length(1) + stream_id(1))
        + (length(1) + stream_id(2) if version >= 5 else b"")
    )


def stream(version: int) -> bytes:
    """A stream of two entries, in the version of its type: 1 for 15, 2 for 19, 3 for 21, 4 for 26, 5 for 27."""
    return (
        length(1)
        + string(stream_id(1))
        + string(listpack(2, 0, 1, b"field", 0, 2, 0, 0, b"one", 4, 0, 1, 0, 1, b"other", b"two", 6))
        + (length(2) + length(2) + length(0))
        + (length(1) + length(0) + length(0) + length(0) + length(2) if version >= 2 else b"")
        + (length(1) + group(version))
        + (length(100) + length(200) + length(1) + string("producer") if version >= 4 else b"")
        + (length(1) + string("iid") + length(1) + length(0) + length(1) + length(0) if version >= 4 else b"")
    )


PAIR = string("field") + string("value")
DEADLINE = milliseconds(CREATED * 1000 + 5)
# Of the module "hello-wor" in version 3.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MODULE = 0
for letter in "hello-wor":
    MODULE = MODULE << 6 | LETTERS.index(letter)
MODULE = MODULE << 10 | 3
MODULE_VALUE = b"\x01\x05\x02\x06\x03" + bytes(4) + b"\x04" + bytes(8) + b"\x05" + string("text") + b"\x00"

VALUES = [
    # code, RDB version, magic, value, type, encoding, elements
    (0, 9, "REDIS", string("text"), "string", "embstr", 4),
    (0, 9, "REDIS", string(b"x" * 45), "string", "raw", 45),
    (0, 9, "REDIS", string("12345678901"), "string", "int", 11),
    (0, 9, "REDIS", string("-9223372036854775808"), "string", "int", 20),
    (0, 9, "REDIS", string("9223372036854775808"), "string", "embstr", 19),
    (0, 9, "REDIS", string("-0"), "string", "embstr", 2),
    (0, 9, "REDIS", string("01"), "string", "embstr", 2),
    (0, 9, "REDIS", string(""), "string", "embstr", 0),
    (0, 9, "REDIS", b"\xc0\x80", "string", "int", 4),
    (0, 9, "REDIS", b"\xc1\x00\x80", "string", "int", 6),
    (0, 9, "REDIS", b"\xc2\x00\x00\x00\x80", "string", "int", 11),
    (0, 9, "REDIS", lzf(b"x" * 1000), "string", "raw", 1000),
    (1, 1, "REDIS", length(2) + string("a") + string("b"), "list", "quicklist", 2),
    (2, 9, "REDIS", length(2) + string("a") + string(7), "set", "hashtable", 2),
    (3, 7, "REDIS", length(2) + string("a") + b"\x031.5" + string("b") + b"\xfe", "zset", "skiplist", 2),
    (4, 9, "REDIS", length(1) + PAIR, "hash", "hashtable", 1),
    (5, 9, "REDIS", length(1) + string("a") + struct.pack("<d", 1.5), "zset", "skiplist", 1),
    (7, 9, "REDIS", b"\x81" + struct.pack(">Q", MODULE) + MODULE_VALUE, "hello-wor", "raw", None),
    (9, 2, "REDIS", string(b"\x01\x01a\x01\x00b\xff"), "hash", "ziplist", 1),
    (10, 6, "REDIS", string(ziplist(b"a", b"b")), "list", "quicklist", 2),
    (11, 9, "REDIS", string(intset(1, 2, 3)), "set", "intset", 3),
    (12, 9, "REDIS", string(ziplist(b"a", b"1")), "zset", "ziplist", 1),
    (13, 9, "REDIS", string(ziplist(b"a", b"b")), "hash", "ziplist", 1),
    (13, 9, "REDIS", lzf(ziplist(b"a" * 40, b"a" * 40)), "hash", "ziplist", 1),
    (14, 9, "REDIS", length(2) + string(ziplist(b"a")) + lzf(ziplist(b"b", b"c")), "list", "quicklist", 3),
    (15, 9, "REDIS", stream(1), "stream", "stream", 2),
    (16, 10, "REDIS", string(listpack(b"a", 1)), "hash", "listpack", 1),
    (17, 10, "REDIS", string(listpack(b"a", 1, b"b" * 100, 2)), "zset", "listpack", 2),
    (18, 10, "REDIS", length(1) + b"\x02" + string(listpack(b"a", 1)), "list", "quicklist", 2),
    (18, 11, "REDIS", length(1) + b"\x02" + string(listpack(b"a", 1)), "list", "listpack", 2),
    (18, 11, "REDIS", length(2) + b"\x01" + string("x" * 9000) + b"\x02" + string(listpack(1)), "list", "quicklist", 2),
    (19, 10, "REDIS", stream(2), "stream", "stream", 2),
    (20, 11, "REDIS", string(listpack(b"a", 1, 2)), "set", "listpack", 3),
    (21, 11, "REDIS", stream(3), "stream", "stream", 2),
    (22, 12, "REDIS", length(1) + length(CREATED * 1000) + PAIR, "hash", "hashtable", 1),
    (22, 80, "VALKEY", length(2) + PAIR + milliseconds(-1) + PAIR + DEADLINE, "hash", "hashtable", 2),
    (23, 12, "REDIS", string(listpack(b"a", b"b", 0)), "hash", "listpackex", 1),
    (24, 12, "REDIS", DEADLINE + length(2) + b"\x00" + PAIR + b"\x01" + PAIR, "hash", "hashtable", 2),
    (25, 12, "REDIS", DEADLINE + string(listpack(b"a", b"b", 0, b"c", b"d", 1)), "hash", "listpackex", 2),
    (26, 13, "REDIS", stream(4), "stream", "stream", 2),
    (27, 14, "REDIS", stream(5), "stream", "stream", 2),
]


@pytest.mark.parametrize(("code", "version", "magic", "value", "kind", "encoding", "elements"), VALUES)
def test_a_value_of_each_type(
    code: int, version: int, magic: str, value: bytes, kind: str, encoding: str, elements: int | None
) -> None:
    # A key after it is found only if the value was read to its end and no further.
    data = RdbWriter(version, magic).key(code, value).key(0, string("x"), b"after").end()
    found, error = parsed(data)
    assert error is None, error
    assert [(key.key, key.type, key.encoding, key.elements) for key in found] == [
        (b"key", kind, encoding, elements),
        (b"after", "string", "embstr", 1),
    ]
    # The type's code and the key's name with its length.
    assert found[0].serialized_bytes == 1 + 4 + len(value)
    assert found[0].bytes > 0


OPCODES = [
    ("REDIS", 9, b"\xfa" + string("used-mem") + b"\xc2\x00\x00\x00\x01"),
    ("REDIS", 9, b"\xfa" + string("lua") + lzf(b"y" * 5000)),
    ("REDIS", 9, b"\xfb" + length(100) + length(70000)),
    ("REDIS", 9, b"\xf7" + b"\x81" + struct.pack(">Q", MODULE) + b"\x02\x02" + MODULE_VALUE),
    ("REDIS", 10, b"\xf5" + string("#!lua name=x\nredis.register_function('f', function() end)")),
    ("REDIS", 12, b"\xf4" + length(16383) + length(2) + length(0)),
    ("VALKEY", 80, b"\xf3" + string("job") + length(1) + length(0) + length(100)),
]


@pytest.mark.parametrize(("magic", "version", "opcode"), OPCODES)
def test_what_is_no_key_is_passed(magic: str, version: int, opcode: bytes) -> None:
    key = only(RdbWriter(version, magic).raw(opcode).key(0, string("x")).end())
    assert (key.key, key.ttl_ms, key.serialized_bytes) == (b"key", None, 7)


def test_what_stands_before_a_key_belongs_to_it() -> None:
    at = CREATED * 1000 + 250
    before = [
        (b"", None),
        (b"\xfc" + milliseconds(at), 250),
        (b"\xfd" + struct.pack("<I", CREATED + 7), 7000),
        (b"\xfc" + milliseconds(CREATED * 1000 - 1) + b"\xf9\x05", -1),
        (b"\xf8" + length(100), None),
        # Of a module: one class, its number, its value.
        (b"\xf3\x01abcd" + b"\x02\x05\x00", None),
    ]
    writer = RdbWriter(13)
    for opcodes, _ in before:
        writer.key(0, string("x"), before=opcodes)
    found, error = parsed(writer.end())
    assert error is None, error
    assert [key.ttl_ms for key in found] == [ttl for _, ttl in before]
    assert [key.serialized_bytes for key in found] == [7 + len(opcodes) for opcodes, _ in before]


def test_databases_and_slots() -> None:
    names = [b"a", b"", b"{tag}x", b"\x00\xff\r\n", b"x" * 300]
    writer = RdbWriter(11)
    for number, name in enumerate(names):
        writer.raw(b"\xfe" + length(number * 100)).key(0, string("x"), name)
    writer.key(0, string("x"), b"12").raw(b"\x00\xc1\x39\x30" + string("x")).raw(b"\x00" + lzf(b"z" * 90) + string("x"))
    found, error = parsed(writer.end(), function="crc16", number_of_slots=16384)
    assert error is None, error
    assert [key.key for key in found] == [*names, b"12", b"12345", b"z" * 90]
    assert [key.database for key in found] == [0, 100, 200, 300, 400, 400, 400, 400]
    assert [key.slot for key in found] == [slot("crc16", key.key, 16384) for key in found]


def test_a_file_that_does_not_say_when_it_was_made_has_no_ttls() -> None:
    data = b"REDIS0006\xfe\x00\xfc" + milliseconds(5) + b"\x00" + string("k") + string("v") + b"\xff"
    assert only(data + struct.pack("<Q", crc64(data))).ttl_ms is None


def test_the_checksum_is_that_of_redis() -> None:
    # The check value that crc64.c of Redis has in its own test.
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    assert crc64(b"") == 0


def test_decompression() -> None:
    assert decompress(b"\x02abc\x20\x02", 6) == b"abcabc"
    assert decompress(b"\x00a\xe0\x03\x00", 13) == b"a" * 13
    with pytest.raises(ValueError, match="not LZF"):
        decompress(b"\x00a\x20\x05", 10)


HEAD = len(RdbWriter(11).data)
FAULTS = [
    (b"", errors.TruncatedRdb, 0),
    (b"SIDER0011", errors.NotAnRdbFile, 0),
    (b"REDIS00x1", errors.NotAnRdbFile, 0),
    (RdbWriter(11).key(0, length(1 << 40)).end(), errors.TruncatedRdb, HEAD + 14),
    (RdbWriter(11).raw(b"\x00" + length(1 << 40)).end(), errors.RdbError, HEAD + 10),
    (RdbWriter(11).key(2, length(1 << 60) + string("a")).end(), errors.RdbError, None),
    (RdbWriter(11).key(28, string("x")).end(), errors.UnsupportedRdb, HEAD + 5),
    (RdbWriter(11).key(6, string("x")).end(), errors.UnsupportedRdb, HEAD + 5),
    (RdbWriter(80, "VALKEY").key(25, string("x")).end(), errors.UnsupportedRdb, None),
    (RdbWriter(11).raw(b"\xf6").end(), errors.UnsupportedRdb, HEAD),
    (RdbWriter(11).key(16, string(b"\x00" * 20)).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(16, string(listpack(b"a", b"b", b"c"))).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(11, string(intset(1, 2)[:-1])).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(11, b"\xc0\x05").end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(18, length(1) + b"\x03" + string("a")).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(21, length(1) + string("id") + string(listpack(1))).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(16, b"\xc3\x02\x40\x40\x20\x05").end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(0, b"\xc4\x00").end(), errors.CorruptRdb, None),
    (RdbWriter(11).raw(b"\xfc" + bytes(8) + b"\xfe\x00").end(), errors.CorruptRdb, None),
    (RdbWriter(11).raw(b"\xfe" + length(1 << 40)).end(), errors.CorruptRdb, None),
    (RdbWriter(11).key(0, string("x")).end()[:-1], errors.TruncatedRdb, None),
    (RdbWriter(11).key(0, string("x")).end()[:-9] + b"\xff12345678", errors.ChecksumMismatch, None),
]


@pytest.mark.parametrize(("data", "kind", "offset"), FAULTS)
def test_a_fault_is_named_with_its_place(data: bytes, kind: type[RdbError], offset: int | None) -> None:
    _, error = parsed(data)
    assert isinstance(error, kind)
    assert error.file == "a.rdb"
    assert 0 <= error.offset <= len(data)
    if offset is not None:
        assert error.offset == offset
    assert str(error).startswith(f"a.rdb, offset {error.offset}: ")


def test_keys_before_a_fault_stand() -> None:
    data = RdbWriter(11).key(0, string("x"), b"one").key(0, string("x"), b"two").key(99, b"", b"three").end()
    found, error = parsed(data)
    assert [key.key for key in found] == [b"one", b"two"]
    assert isinstance(error, errors.UnsupportedRdb)


def test_only_commands_follow_the_end() -> None:
    data = RdbWriter(11).key(0, string("x")).end()
    assert only(data + b"*1\r\n$4\r\nPING\r\n").key == b"key"
    assert only(data + b"#TS:1700000000\r\n").key == b"key"
    _, error = parsed(data + b"\x00")
    assert isinstance(error, errors.CorruptRdb)
    assert error.offset == len(data)


def test_a_checksum_can_be_left_out_and_left_alone() -> None:
    good = RdbWriter(11).key(0, string("x"))
    assert only(good.end(checksum=False)).key == b"key"
    wrong = good.end()[:-1] + b"\x00"
    assert only(wrong, checksum=False).key == b"key"
    assert isinstance(parsed(wrong)[1], errors.ChecksumMismatch)


class Zeros(io.RawIOBase):
    """A file of so many zeros after a head. It remembers the most bytes that it was asked for at once."""

    def __init__(self, head: bytes, zeros: int) -> None:
        self.left = [head, zeros]
        self.most = 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.most = max(self.most, len(buffer))
        head, zeros = self.left
        some = head[: len(buffer)] or bytes(min(len(buffer), zeros))
        buffer[: len(some)] = some
        self.left = [head[len(some) :], zeros if head else zeros - len(some)]
        return len(some)


def test_a_string_of_a_gigabyte_is_passed_in_pieces() -> None:
    file = Zeros(RdbWriter(11).key(0, length(1 << 30)).data, 1 << 30)
    scanner = Scanner(file, "a.rdb")
    batch = scanner.batch()
    assert [key.elements for key in rows(batch, scanner.types)] == [1 << 30]
    assert isinstance(scanner.error, errors.TruncatedRdb)
    assert file.most <= PIECE


def test_a_key_that_cannot_be_held_is_an_error() -> None:
    file = Zeros(RdbWriter(11).data + b"\x00" + length(MOST_CONTIGUOUS + 1), MOST_CONTIGUOUS * 2)
    scanner = Scanner(file, "a.rdb")
    assert scanner.batch() == {}
    assert isinstance(scanner.error, errors.CorruptRdb)
    assert file.most <= PIECE


def test_a_batch_ends_with_its_names() -> None:
    writer = RdbWriter(11)
    for number in range(10):
        writer.key(0, string("x"), bytes([number]) * (KEY_BYTES // 2))
    data = writer.end()
    scanner = Scanner(io.BytesIO(data), "a.rdb", len(data))
    counts = []
    while batch := scanner.batch():
        counts.append(len(batch["slot"]) // 4)
        assert len(batch["keys"]) < 2 * KEY_BYTES
    assert counts == [2] * 5
    assert scanner.error is None


def test_an_error_of_the_file_system_is_one_of_the_file() -> None:
    class Broken(io.RawIOBase):
        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            raise OSError("disk on fire")

    scanner = Scanner(Broken(), "a.rdb")
    assert scanner.batch() == {}
    assert isinstance(scanner.error, errors.UnreadableRdb)
    assert "disk on fire" in str(scanner.error)


@pytest.mark.parametrize(
    "options",
    [{"function": "md6"}, {"number_of_slots": 1000}, {"number_of_slots": 0}, {"allocator": "slab"}, {"rows": 0}],
)
def test_options_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"slot|allocator|rows"):
        Scanner(io.BytesIO(), "a.rdb", **options)  # type: ignore[arg-type]


def test_slot_rules_say_which_slot_a_key_has() -> None:
    rules = (SlotRule("bull:(*):*"), SlotRule("*", 5, "queues"))
    data = RdbWriter(11).key(0, string("x"), b"bull:mail:1").end()
    assert only(data, rules=rules).slot == slot("crc32", b"mail", 1024)
    assert only(data).slot == slot("crc32", b"bull:mail:1", 1024)


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    path.write_bytes(RdbWriter(11).key(0, string("x")).end())
    assert [key.key for key in read_keys(path)] == [b"key"]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(errors.TruncatedRdb, match=r"dump.rdb, offset \d+: "):
        list(read_keys(path))
