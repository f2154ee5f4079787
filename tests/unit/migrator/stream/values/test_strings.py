"""Strings, short and long."""

from collections.abc import Iterator

import pytest

from migrator.errors import CopyLost
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import Limits, LongCommand
from migrator.stream.values.strings import LIFE_MS, pieces
from rdb.elements import Element
from tests.unit.migrator.stream.values.wire import words


@pytest.mark.parametrize("size", [0, 1, 63, 64])
def test_what_fits_is_one_command(size: int) -> None:
    value = bytes(range(size))
    (piece,) = pieces(lambda: iter([value[:10], value[10:]]), b"t", Limits(1, 64))

    assert isinstance(piece, Piece)
    assert [words(command) for command in piece.commands] == [[b"SET", b"t", value]]
    assert piece.size == size


@pytest.mark.parametrize("sizes", [[65], [40, 40], [64, 64, 1], [1000], [1] * 200])
def test_what_does_not_fit_comes_in_parts(sizes: list[int]) -> None:
    value = bytes(number % 251 for number in range(sum(sizes)))

    def opened() -> Iterator[Element]:
        start = 0
        for size in sizes:
            yield value[start : start + size]
            start += size

    (piece,) = pieces(opened, b"t", Limits(1, 64))

    assert isinstance(piece, LongCommand)
    parts = list(piece.parts)
    assert words(b"".join(parts)) == [b"SET", b"t", value, b"PX", b"%d" % LIFE_MS]
    assert max(map(len, parts)) <= 64
    assert sum(map(len, parts)) == piece.size


@pytest.mark.parametrize("later", [99, 101])
def test_a_string_of_another_length_is_never_sent_whole(later: int) -> None:
    sizes = iter([100, later])
    (piece,) = pieces(lambda: iter([bytes(next(sizes))]), b"t", Limits(1, 64))
    assert isinstance(piece, LongCommand)

    sent: list[bytes] = []
    with pytest.raises(CopyLost, match="100 bytes"):
        sent.extend(piece.parts)
    assert sum(map(len, sent)) < piece.size
