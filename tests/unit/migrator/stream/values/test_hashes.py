"""Hashes, whose fields may have deadlines."""

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import Limits
from migrator.stream.values.hashes import FieldDeadlines, pieces
from rdb.elements import NEVER, Field
from tests.unit.migrator.stream.values.wire import words

FAR = 4_102_444_800_000


def made(fields: list[Field], deadlines: FieldDeadlines, most_elements: int = 100) -> list[Piece]:
    return list(pieces(fields, b"t", Limits(most_elements, 10_000), deadlines, target="", field_deadlines=True))


def test_deadlines_are_set_withheld_or_noted() -> None:
    """given one at each bound, both bounds belong to what is below them."""
    names = {b"none": NEVER, b"past": 1, b"withheld": 100, b"noted": 101, b"at": 200, b"later": 201, b"same": 201}
    (piece,) = made([Field(name, b"v", deadline) for name, deadline in names.items()], FieldDeadlines(100, 200, FAR))

    hset, *rest = map(words, piece.commands)
    assert hset == [b"HSET", b"t", *(word for name in names for word in (name, b"v"))]
    assert rest == [
        [b"HPEXPIREAT", b"t", b"%d" % FAR, b"FIELDS", b"2", b"past", b"withheld"],
        [b"HPEXPIREAT", b"t", b"101", b"FIELDS", b"1", b"noted"],
        [b"HPEXPIREAT", b"t", b"200", b"FIELDS", b"1", b"at"],
        [b"HPEXPIREAT", b"t", b"201", b"FIELDS", b"2", b"later", b"same"],
    ]
    assert piece.deadlines == [(1, b"past"), (100, b"withheld"), (101, b"noted"), (200, b"at")]


def test_what_is_withheld_is_noted_even_beyond_what_else_is() -> None:
    (piece,) = made([Field(b"f", b"v", 50)], FieldDeadlines(100, 0, FAR))
    assert piece.deadlines == [(50, b"f")]


def test_bounds_that_move_on_count_from_the_next_piece() -> None:
    deadlines = FieldDeadlines(0, 0, FAR)
    found = pieces(
        (Field(b"%d" % number, b"v", 10) for number in range(4)),
        b"t",
        Limits(4, 1000),
        deadlines,
        target="",
        field_deadlines=True,
    )
    assert next(found).deadlines == []
    deadlines.withheld_until_ms = 10
    assert next(found).deadlines == [(10, b"2"), (10, b"3")]


def test_a_deadline_weighs_more() -> None:
    assert [piece.elements for piece in made([Field(b"f", b"v", 9)] * 5, FieldDeadlines(0, 0, FAR), 4)] == [4, 4, 2]
    assert [piece.elements for piece in made([Field(b"f", b"v", NEVER)] * 5, FieldDeadlines(0, 0, FAR), 4)] == [4, 1]


def test_a_target_without_deadlines_of_fields() -> None:
    fields = [Field(b"f", b"v", NEVER), Field(b"g", b"v", 5)]
    with pytest.raises(CannotBeCut, match=r"fields of hash b't' have deadlines, which that one knows nothing of"):
        list(pieces(fields, b"t", Limits(), FieldDeadlines(0, 0, FAR), target="that one", field_deadlines=False))
