"""What becomes of a snapshot for a target that does not read its payloads: which commands, and in which batches.

:func:`python_commands` makes the same commands of the elements that Python is given of a value.
"""

from __future__ import annotations

import io
import struct

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.cutter import PIECE_BYTES, PIECE_ELEMENTS
from migrator.pieces.piece import Piece
from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from migrator.stream.values.cutting import Limits
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of_absent
from migrator.stream.words import Words
from rdb.elements import NEVER, Element, Field
from rdb.errors import UnsupportedRdb
from rdb.snapshot import Snapshot
from tests.unit.migrator.stream.test_snapshotfilter import (
    EVERYTHING,
    EXPIRING,
    MODULE_HEAD,
    PLACEHOLDER,
    SLOTS,
    a_filter,
    texts,
    unpacked,
)
from tests.unit.rdb.writer import RdbWriter, length, milliseconds, string
from tests.unit.sizing.rdb.test_parser import MODULE_VALUE, VALUES

SET = 2
ABILITIES = Abilities(False, False)


def commands_of(
    data: bytes,
    *,
    field_deadlines: bool = False,
    most_bytes: int = 1 << 20,
    most_keys: int = 1000,
    most_work: int = 1 << 20,
) -> SnapshotFilter:
    found = SnapshotFilter(
        io.BytesIO(data),
        "a.rdb",
        SLOTS,
        bytearray(EVERYTHING),
        most_bytes=most_bytes,
        most_keys=most_keys,
        big_bytes=64 * 1024,
        most_work=most_work,
        big_work=1 << 20,
        placeholder_ms=PLACEHOLDER,
        size=len(data),
        words=Words("target t:1", Abilities(field_deadlines, False), frozenset()),
    )
    found.withheld_until_ms, found.noted_until_ms = 5000, 6000
    return found


def given(found: SnapshotFilter) -> list[tuple[Batch | BigKey, list[Element]]]:
    return [(item, list(found.elements()) if isinstance(item, BigKey) else []) for item in found]


def a_set(number: int, size: int = 4) -> bytes:
    return length(number) + b"".join(string(f"{member:0{size}}") for member in range(number))


def test_small_values_of_every_type_are_commands_of_one_batch() -> None:
    writer = RdbWriter(11)
    writer.key(0, string("x"), b"a").key(SET, a_set(2), b"b").key(1, length(1) + string("y"), b"c")
    writer.key(4, length(1) + string("f") + string("v"), b"d")

    [(batch, _)] = given(commands_of(writer.end()))

    assert isinstance(batch, Batch)
    assert unpacked(batch.commands) == [
        [b"UNLINK", b"a", b"b", b"c", b"d"],
        [b"SET", b"a", b"x"],
        [b"SADD", b"b", b"0000", b"0001"],
        [b"RPUSH", b"c", b"y"],
        [b"HSET", b"d", b"f", b"v"],
    ]
    assert (batch.count, batch.keys, batch.deadlines, batch.withheld, batch.looks) == (5, 4, [], [], True)


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


def test_a_batch_has_keys_of_one_database() -> None:
    items = given(commands_of(texts("a").raw(b"\xfe\x03").key(0, string("x"), b"a").end()))

    assert [(item.database, item.keys) for item, _ in items if isinstance(item, Batch)] == [(0, 1), (3, 1)]


@pytest.mark.parametrize("limits", [{"most_keys": 2}, {"most_bytes": 80}, {"most_work": 35}])
def test_a_batch_keeps_to_its_limits_and_looks_for_its_own_keys(limits: dict[str, int]) -> None:
    items = given(commands_of(texts("a", "b", "c", "d", "e").end(), **limits))  # type: ignore[arg-type]

    commands = [unpacked(item.commands) for item, _ in items if isinstance(item, Batch)]
    assert [argv[0] for argv in commands] == [[b"UNLINK", b"a", b"b"], [b"UNLINK", b"c", b"d"], [b"UNLINK", b"e"]]
    assert [[made[1] for made in argv[1:]] for argv in commands] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]


@pytest.mark.parametrize("value", [a_set(PIECE_ELEMENTS + 1), a_set(100, PIECE_BYTES // 90)])
def test_a_larger_value_comes_as_all_its_elements_behind_what_is_open(value: bytes) -> None:
    data = RdbWriter(11).key(0, string("x"), b"a").key(SET, value, b"big").key(0, string("x"), b"c").end()

    first, (big, elements), last = given(commands_of(data))

    assert isinstance(big, BigKey)
    assert big.name == b"big"
    assert len(set(elements)) == len(elements) > 99
    assert [isinstance(item, Batch) and item.keys for item, _ in (first, last)] == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize(("elements", "keys"), [(1, 200), (64, 4), (128, 1), (500, 1)])
def test_few_sorted_sets_are_in_a_batch_because_a_packed_one_is_gone_through_for_each_element(
    elements: int, keys: int
) -> None:
    """Of 128 long elements Redis 6.2 makes one in a millisecond, and a batch may take one and a half."""
    value = length(elements) + b"".join(
        string(f"{number:050}") + struct.pack("<d", number / 7) for number in range(elements)
    )
    writer = RdbWriter(11)
    for number in range(400):
        writer.key(5, value, b"%d" % number)

    items = given(commands_of(writer.end(), most_keys=200, most_work=6000))

    assert {item.keys for item, _ in items[:-1] if isinstance(item, Batch)} == {keys}


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


@pytest.mark.parametrize("code", [23, 24, 25])
@pytest.mark.parametrize("payloads", [True, False])
def test_a_number_that_is_no_type_of_the_source_is_refused_as_unknown(code: int, payloads: bool) -> None:
    data = RdbWriter(81, "VALKEY").key(code, b"", b"a").end()
    found = a_filter(data) if payloads else commands_of(data, field_deadlines=True)

    with pytest.raises(UnsupportedRdb, match=f"values of type {code} are not known here"):
        given(found)


def python_commands(kind: str, held: list[Element], name: bytes) -> list[list[bytes]]:
    """The commands of the only piece of a value, as larger values are made."""
    found = pieces_of_absent(
        kind, lambda: iter(held), name, Limits(), FieldDeadlines(0, 0, PLACEHOLDER), target="t", abilities=ABILITIES
    )
    [piece] = found
    assert isinstance(piece, Piece)
    return [argv for command in piece.commands for argv in unpacked(command)]


def same_scores(argv: list[bytes]) -> list[bytes | float]:
    """Scores as numbers: one may be written in several ways."""
    return [float(one) if argv[0] == b"ZADD" and place % 2 == 0 else one for place, one in enumerate(argv[2:])]


@pytest.mark.parametrize(("code", "version", "magic", "value"), [row[:4] for row in VALUES if row[0] != 7])
def test_each_encoding_gives_what_its_elements_give(code: int, version: int, magic: str, value: bytes) -> None:
    data = RdbWriter(version, magic).key(code, value, b"a").end()
    snapshot = Snapshot(io.BytesIO(data), "a.rdb", 0)
    [(key, held)] = [(key, list(snapshot.elements())) for key in snapshot]
    assert key.type is not None
    if any(isinstance(element, Field) and element.deadline_ms != NEVER for element in held):
        return

    [(batch, _)] = given(commands_of(data))

    assert isinstance(batch, Batch)
    _, *found = unpacked(batch.commands)
    made = python_commands(key.type, held, b"a")
    assert [argv[:2] + same_scores(argv) for argv in found] == [argv[:2] + same_scores(argv) for argv in made]


@pytest.mark.parametrize(
    "score", [0.0, -0.0, 0.1, 1 / 3, -1e15, 1e15, 2.0**53, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf")]
)
def test_a_score_arrives_bit_for_bit(score: float) -> None:
    data = RdbWriter(11).key(5, length(1) + string("m") + struct.pack("<d", score), b"a").end()

    [(batch, _)] = given(commands_of(data))

    assert isinstance(batch, Batch)
    _, [_, _, told, member] = unpacked(batch.commands)
    assert (member, struct.pack("<d", float(told))) == (b"m", struct.pack("<d", score))
