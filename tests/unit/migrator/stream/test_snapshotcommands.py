"""What becomes of a snapshot for a target that does not read its payloads: which commands, and in which batches."""

from __future__ import annotations

import io

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.cutter import PIECE_BYTES, PIECE_ELEMENTS
from migrator.stream.batches import Batch
from migrator.stream.snapshotcommands import SnapshotCommands
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from migrator.stream.values.finishing import EMPTY_STRING
from migrator.stream.words import Words
from rdb.elements import NEVER, Element, Field
from tests.unit.migrator.stream.test_snapshotfilter import (
    EVERYTHING,
    EXPIRING,
    MODULE_HEAD,
    PLACEHOLDER,
    SLOTS,
    marked,
    texts,
    unpacked,
)
from tests.unit.rdb.writer import RdbWriter, length, milliseconds, string
from tests.unit.sizing.rdb.test_parser import MODULE_VALUE, VALUES

SET = 2


def commands_of(
    data: bytes,
    wanted: bytes | bytearray = EVERYTHING,
    *,
    field_deadlines: bool = False,
    most_bytes: int = 1 << 20,
    most_keys: int = 1000,
    most_work: int = 1 << 20,
) -> SnapshotCommands:
    """Those for copy 1; copy 2 has a target that reads payloads."""
    words = {1: Words("target t:1", Abilities(field_deadlines, False), frozenset())}
    found = SnapshotFilter(
        io.BytesIO(data),
        "a.rdb",
        SLOTS,
        bytearray(wanted),
        most_bytes=1 << 20,
        most_keys=most_keys,
        big_bytes=64 * 1024,
        most_work=most_work,
        big_work=1 << 20,
        placeholder_ms=PLACEHOLDER,
        size=len(data),
        apart=words,
    )
    found.withheld_until_ms, found.noted_until_ms = 5000, 6000
    return SnapshotCommands(found, words, most_bytes=most_bytes, placeholder_ms=PLACEHOLDER)


def given(found: SnapshotCommands) -> list[tuple[Batch | BigKey, list[Element]]]:
    return [(item, list(found.elements()) if isinstance(item, BigKey) else []) for item in found]


def a_set(number: int, size: int = 4) -> bytes:
    return length(number) + b"".join(string(f"{member:0{size}}") for member in range(number))


def absent(name: bytes) -> list[list[bytes]]:
    """What shows that a key is not there already."""
    return [[b"RESTORE", name, b"0", EMPTY_STRING], [b"UNLINK", name]]


def test_small_values_of_every_type_are_commands_of_one_batch() -> None:
    writer = RdbWriter(11)
    writer.key(0, string("x"), b"a").key(SET, a_set(2), b"b").key(1, length(1) + string("y"), b"c")
    writer.key(4, length(1) + string("f") + string("v"), b"d")

    [(batch, _)] = given(commands_of(writer.end()))

    assert isinstance(batch, Batch)
    assert unpacked(batch.commands) == [
        *(*absent(b"a"), [b"SET", b"a", b"x"]),
        *(*absent(b"b"), [b"SADD", b"b", b"0000", b"0001"]),
        *(*absent(b"c"), [b"RPUSH", b"c", b"y"]),
        *(*absent(b"d"), [b"HSET", b"d", b"f", b"v"]),
    ]
    assert (batch.count, batch.keys, batch.deadlines, batch.withheld) == (12, 4, [], [])


@pytest.mark.parametrize(
    ("deadline", "written", "noted"),
    [(-1, PLACEHOLDER, False), (5000, PLACEHOLDER, False), (5001, 5001, True), (6000, 6000, True), (6001, 6001, False)],
)
def test_deadlines_are_set_withheld_or_noted_as_those_of_payloads(deadline: int, written: int, noted: bool) -> None:
    data = RdbWriter(11).key(0, string("x"), b"a", b"\xfc" + milliseconds(deadline)).end()

    [(batch, _)] = given(commands_of(data))

    assert isinstance(batch, Batch)
    assert unpacked(batch.commands)[-1] == [b"PEXPIREAT", b"a", b"%d" % written]
    assert batch.deadlines == ([(deadline, b"a")] if noted else [])
    assert batch.withheld == ([b"a"] if written == PLACEHOLDER else [])


def test_the_batches_of_a_target_that_reads_payloads_are_not_touched() -> None:
    items = given(commands_of(texts("a", "b", "{a}2", "{b}2").end(), marked(a=1, b=2)))

    of = {item.copy: [argv[0] for argv in unpacked(item.commands)] for item, _ in items if isinstance(item, Batch)}
    assert of == {2: [b"RESTORE"] * 2, 1: [b"RESTORE", b"UNLINK", b"SET"] * 2}


def test_a_batch_has_keys_of_one_database() -> None:
    items = given(commands_of(texts("a").raw(b"\xfe\x03").key(0, string("x"), b"a").end()))

    assert [(item.database, item.keys) for item, _ in items if isinstance(item, Batch)] == [(0, 1), (3, 1)]


@pytest.mark.parametrize("limits", [{"most_keys": 2}, {"most_bytes": 280}, {"most_work": 90}])
def test_a_batch_keeps_to_its_limits(limits: dict[str, int]) -> None:
    items = given(commands_of(texts("a", "b", "c", "d", "e").end(), **limits))  # type: ignore[arg-type]

    assert [item.keys for item, _ in items if isinstance(item, Batch)] == [2, 2, 1]


@pytest.mark.parametrize("value", [a_set(PIECE_ELEMENTS + 1), a_set(100, PIECE_BYTES // 90)])
def test_a_larger_value_comes_as_all_its_elements_behind_what_is_open(value: bytes) -> None:
    data = RdbWriter(11).key(0, string("x"), b"a").key(SET, value, b"big").key(0, string("x"), b"c").end()

    first, (big, elements), last = given(commands_of(data))

    assert isinstance(big, BigKey)
    assert big.name == b"big"
    assert len(set(elements)) == len(elements) > 99
    assert [isinstance(item, Batch) and item.keys for item, _ in (first, last)] == [1, 1]


def test_a_value_of_just_a_piece_is_small() -> None:
    [(batch, _)] = given(commands_of(RdbWriter(11).key(SET, a_set(PIECE_ELEMENTS), b"a").end()))

    assert isinstance(batch, Batch)
    assert len(unpacked(batch.commands)[-1]) == PIECE_ELEMENTS + 2


def test_a_value_of_a_module_is_refused_by_name() -> None:
    data = RdbWriter(11).key(7, MODULE_HEAD + MODULE_VALUE, b"{a}module").end()

    with pytest.raises(
        CannotBeCut, match=r"key '{a}module' of database 0 .* no commands make, and target t:1 does not"
    ):
        given(commands_of(data))


@pytest.mark.parametrize(("code", "version", "magic", "value"), [row[:4] for row in VALUES if row[0] in EXPIRING])
def test_fields_with_deadlines_are_refused_where_the_target_has_none(
    code: int, version: int, magic: str, value: bytes
) -> None:
    data = RdbWriter(version, magic).key(code, value, b"a").end()

    [(key, elements)] = given(commands_of(data, field_deadlines=True))
    assert isinstance(key, BigKey)
    assert key.fields_expire
    if any(isinstance(element, Field) and element.deadline_ms != NEVER for element in elements):
        with pytest.raises(CannotBeCut, match="fields of hash b'a' have deadlines, which target t:1 knows nothing of"):
            given(commands_of(data))
    else:
        [(batch, _)] = given(commands_of(data))
        assert isinstance(batch, Batch)
        assert unpacked(batch.commands)[-1][0] == b"HSET"
