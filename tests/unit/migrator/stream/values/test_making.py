"""The first piece of a value, and types that no commands make."""

from collections.abc import Iterator

import pytest

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.stream.values.cutting import Limits, LongCommand, Pieces
from migrator.stream.values.finishing import require_absent
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of
from migrator.stream.values.strings import LIFE_MS, _arguments
from rdb.elements import NEVER, Element, Field, Scored
from tests.unit.migrator.stream.values.wire import words

NAME = b"t"


def made(kind: str, elements: list[Element], most_bytes: int = 100, **abilities: bool) -> Pieces:
    def opened() -> Iterator[Element]:
        return iter(elements)

    deadlines = FieldDeadlines(0, 0, 0)
    limits = Limits(2, most_bytes)
    return pieces_of(kind, opened, NAME, limits, deadlines, target="there", abilities=Abilities(**abilities))


def all_words(pieces: Pieces) -> list[list[list[bytes]]]:
    return [
        [[b"in parts", b"".join(piece.parts)]]
        if isinstance(piece, LongCommand)
        else [words(command) for command in piece.commands]
        for piece in pieces
    ]


GUARD = [words(command) for command in require_absent(NAME)]


@pytest.mark.parametrize(
    ("kind", "elements", "expected"),
    [
        ("string", [], [[b"SET", NAME, b""]]),
        ("list", [b"b", b"a"], [[b"RPUSH", NAME, b"b", b"a"]]),
        ("set", [b"1"], [[b"SADD", NAME, b"1"]]),
        ("zset", [Scored(b"m", 0.1), Scored(b"n", -0.0)], [[b"ZADD", NAME, b"0.1", b"m", b"-0.0", b"n"]]),
        ("hash", [Field(b"f", b"v", NEVER)], [[b"HSET", NAME, b"f", b"v"]]),
    ],
)
def test_a_small_value_is_one_piece_which_needs_its_name_to_be_absent(
    kind: str, elements: list[Element], expected: list[list[bytes]]
) -> None:
    assert all_words(made(kind, elements)) == [GUARD + expected]


def test_only_the_first_piece_needs_that() -> None:
    assert all_words(made("list", [b"1", b"2", b"3"])) == [
        [*GUARD, [b"RPUSH", NAME, b"1", b"2"]],
        [[b"RPUSH", NAME, b"3"]],
    ]


def test_before_a_long_command_it_is_a_piece_of_its_own() -> None:
    first, long = all_words(made("string", [b"x" * 101]))

    assert first == GUARD
    assert long == [[b"in parts", b"*5\r\n" + _arguments("SET", "t", b"x" * 101, "PX", LIFE_MS)]]


def test_a_module_has_no_commands() -> None:
    with pytest.raises(CannotBeCut, match="ReJSON-RL"):
        next(made("ReJSON-RL", []))


def test_the_target_decides_which_hashes_can_be_made() -> None:
    elements: list[Element] = [Field(b"f", b"v", 1)]
    assert all_words(made("hash", elements, field_deadlines=True))

    with pytest.raises(CannotBeCut, match="which there knows nothing of"):
        list(made("hash", elements, field_deadlines=False))
