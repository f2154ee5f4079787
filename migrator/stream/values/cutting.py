"""How much of a value goes in one piece.

A target does nothing else while it runs a piece. So pieces have at most so many elements and bytes.

**bounded**: a piece is within :class:`Limits`, unless a single command is larger, which is a piece of its own. An
element is never cut: one of a list, or a field with its value, may have 512 MB. A string is cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from migrator.pieces.cutter import PIECE_BYTES, PIECE_ELEMENTS
from migrator.pieces.piece import Piece

BESIDE = 16
"""Bytes that an argument of a command has besides its own, or somewhat more."""

T = TypeVar("T")


@dataclass(slots=True)
class Limits:
    """Of a piece. They may be changed while pieces are made; the next piece keeps to them.

    Attributes:
        most_elements: how many it adds; an expensive one counts as several.
        most_bytes: of these.
    """

    most_elements: int = PIECE_ELEMENTS
    most_bytes: int = PIECE_BYTES


class LongCommand(NamedTuple):
    """A piece that is one long command. It makes the same however often it is sent.

    A server reads at once all that has arrived. So wait for a reply on another connection between two parts: else its
    turns get long, as parts pile up before it.

    Attributes:
        size: bytes of all parts.
        parts: its bytes in order, each part within :attr:`Limits.most_bytes`. If they raise, the connection has half a
            command and cannot be used again.
    """

    size: int
    parts: Iterator[bytes]


Pieces = Iterator[Piece | LongCommand]


def cut(
    items: Iterable[T], limits: Limits, weigh: Callable[[T], tuple[int, int]]
) -> Iterator[tuple[list[T], int, int]]:
    """Items in lists that keep to the limits, each with the number of its elements and their bytes.

    Args:
        weigh: the elements and the bytes of an item.
    """
    some: list[T] = []
    elements = size = 0
    for item in items:
        more, larger = weigh(item)
        if some and (elements + more > limits.most_elements or size + larger > limits.most_bytes):
            yield some, elements, size
            some, elements, size = [], 0, 0
        some.append(item)
        elements += more
        size += larger
    if some:
        yield some, elements, size
