"""The commands that make a value of any type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.piece import Piece
from migrator.stream.values import flat, hashes, streams, strings
from migrator.stream.values.cutting import Limits, Pieces
from migrator.stream.values.finishing import require_absent
from migrator.stream.values.hashes import FieldDeadlines
from rdb.elements import Element


def pieces_of(
    kind: str,
    opened: Callable[[], Iterator[Element]],
    temporary: bytes,
    limits: Limits,
    deadlines: FieldDeadlines,
    *,
    target: str,
    abilities: Abilities,
) -> Pieces:
    """The pieces that make a value under a temporary name. Each is applied once, whole and in this order.

    No key may have that name: the first command's reply is BUSYKEY if one does. No reply may be an error.

    Args:
        kind: the value's type, as TYPE tells it.
        opened: gives the elements of the value from the first one on. It is called twice for a stream, and for a string
            that is longer than a piece; :class:`migrator.stream.values.keeping.Kept` can be called so.
        limits: of a piece.
        deadlines: which deadlines of fields are withheld, and which are given to the caller.
        target: how errors name it.
        abilities: the target's.

    Raises:
        CannotBeCut: no commands can make this value, or not at this target.
        CopyLost: the elements were others when they were read again.
        RdbError: while it iterates; the snapshot is damaged.
    """
    pieces = pieces_of_absent(kind, opened, temporary, limits, deadlines, target=target, abilities=abilities)
    guard = require_absent(temporary)
    for first in pieces:
        if isinstance(first, Piece):
            yield replace(first, commands=[*guard, *first.commands])
        else:
            yield Piece(guard, 1, len(temporary))
            yield first
        break
    yield from pieces


def pieces_of_absent(
    kind: str,
    opened: Callable[[], Iterator[Element]],
    temporary: bytes,
    limits: Limits,
    deadlines: FieldDeadlines,
    *,
    target: str,
    abilities: Abilities,
) -> Pieces:
    """The same, under a name that is known to be absent."""
    if kind == "string":
        return strings.pieces(opened, temporary, limits)
    if kind == "list":
        return flat.of_list(opened(), temporary, limits)
    if kind == "set":
        return flat.of_set(opened(), temporary, limits)
    if kind == "zset":
        return flat.of_sorted_set(opened(), temporary, limits)
    if kind == "hash":
        return hashes.pieces(
            opened(), temporary, limits, deadlines, target=target, field_deadlines=abilities.field_deadlines
        )
    if kind == "stream":
        return streams.pieces(opened, temporary, limits, abilities)
    raise CannotBeCut(f"no commands make a value of type {kind}")
