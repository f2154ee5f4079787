"""Hashes: HSET, and HPEXPIREAT for fields with deadlines.

A copy never expires by itself, nor do its fields: the source says when one is gone. So a field whose deadline is near
or past gets one that is far ahead, and the piece gives the true one to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from migrator.connection import pack
from migrator.pieces.field_deadlines import deadline_commands, no_deadlines
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import BESIDE, Limits, cut
from rdb.elements import NEVER, Element, Field

DEADLINE_ELEMENTS = 2
"""A field with a deadline costs as much as so many without."""


@dataclass(slots=True)
class FieldDeadlines:
    """Which deadlines of fields are withheld, in milliseconds since 1970. It may be changed while pieces are made.

    Attributes:
        withheld_until_ms: up to here a deadline is withheld: the field has ``placeholder_ms``.
        noted_until_ms: up to here a deadline is given to the caller, withheld or not.
        placeholder_ms: far ahead.
    """

    withheld_until_ms: int
    noted_until_ms: int
    placeholder_ms: int


def pieces(
    elements: Iterable[Element],
    name: bytes,
    limits: Limits,
    deadlines: FieldDeadlines,
    *,
    target: str,
    field_deadlines: bool,
) -> Iterator[Piece]:
    """The pieces of a hash.

    Args:
        target: how errors name it.
        field_deadlines: whether it has deadlines of fields.

    Raises:
        CannotBeCut: fields have deadlines, and the target does not support them.
    """

    def fields() -> Iterator[Field]:
        for element in elements:
            assert isinstance(element, Field)
            if element.deadline_ms != NEVER and not field_deadlines:
                raise no_deadlines(name, target)
            yield element

    for some, number, size in cut(fields(), limits, _weigh):
        noted = []
        fields_of: dict[int, list[bytes]] = {}
        for field, _, deadline in some:
            if deadline == NEVER:
                continue
            withheld = deadline <= deadlines.withheld_until_ms
            if withheld or deadline <= deadlines.noted_until_ms:
                noted.append((deadline, field))
            fields_of.setdefault(deadlines.placeholder_ms if withheld else deadline, []).append(field)
        pairs = chain.from_iterable((field.name, field.value) for field in some)
        yield Piece([pack("HSET", name, *pairs), *deadline_commands(name, fields_of)], number, size, noted)


def _weigh(field: Field) -> tuple[int, int]:
    size = len(field.name) + len(field.value) + 2 * BESIDE
    if field.deadline_ms == NEVER:
        return 1, size
    # Each deadline may need a command of its own.
    return DEADLINE_ELEMENTS, size + len(field.name) + 6 * BESIDE
