"""Lists, sets and sorted sets: one command a piece, whose arguments are the elements.

A snapshot has large sorted sets from the highest score down, so each new member goes to the front of the target's skip
list, which takes constant time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from migrator.connection import pack
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import BESIDE, Limits, cut
from rdb.elements import Element, Scored


def of_list(elements: Iterable[Element], name: bytes, limits: Limits) -> Iterator[Piece]:
    """The pieces of a list."""
    return _added("RPUSH", elements, name, limits)


def of_set(elements: Iterable[Element], name: bytes, limits: Limits) -> Iterator[Piece]:
    """The pieces of a set."""
    return _added("SADD", elements, name, limits)


def of_sorted_set(elements: Iterable[Element], name: bytes, limits: Limits) -> Iterator[Piece]:
    """The pieces of a sorted set. A score's shortest text that reads as the same number arrives bit for bit."""

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        for element in elements:
            assert isinstance(element, Scored)
            yield repr(element.score).encode(), element.member

    for some, number, size in cut(pairs(), limits, lambda pair: (1, len(pair[0]) + len(pair[1]) + 2 * BESIDE)):
        yield Piece([pack("ZADD", name, *chain.from_iterable(some))], number, size)


def _added(command: str, elements: Iterable[Element], name: bytes, limits: Limits) -> Iterator[Piece]:
    def items() -> Iterator[bytes]:
        for element in elements:
            assert isinstance(element, bytes)
            yield element

    for some, number, size in cut(items(), limits, lambda item: (1, len(item) + BESIDE)):
        yield Piece([pack(command, name, *some)], number, size)
