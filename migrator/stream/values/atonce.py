"""Makes values under their own names, where nobody sees them before they are whole.

A small value is one piece; many of these go to the target in one transaction. Late keys are made while their slots are
locked, and the target's keys are seen only once all are there.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from migrator.connection import pack
from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.piece import Piece
from migrator.stream.deadlines import PLACEHOLDER_MS
from migrator.stream.values.cutting import BESIDE, Limits, Pieces
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of
from rdb.elements import Element
from rdb.snapshot import Snapshot
from slots.keynames import readable

TYPES = frozenset({"string", "list", "set", "zset", "hash", "stream"})
"""Those that commands make. Others are of modules, or of a server that is not known here."""
VALKEY = 80
"""The first version of Valkey's own format."""
FOOT = 10
"""Bytes of a payload behind its value: the version of the format, and a checksum."""
NOT_WITHHELD = FieldDeadlines(0, 0, PLACEHOLDER_MS)


def require_type(kind: str, database: int, name: bytes, target: str) -> None:
    """Raise CannotBeCut if no commands make values of this type."""
    if kind not in TYPES:
        raise CannotBeCut(
            f"key '{readable(name)}' of database {database} has a value of type {kind}, which no commands make, and "
            f"{target} does not read the source's payloads",
            "upgrade the target to the source's version",
        )


def one_piece(
    kind: str, held: list[Element], name: bytes, limits: Limits, target: str, abilities: Abilities
) -> Piece | None:
    """The only piece of a value, which makes it under its own name; None if it takes several. Raises CannotBeCut."""
    first, *more = islice(_pieces(kind, held, name, limits, target, abilities), 2)
    return first if isinstance(first, Piece) and not more else None


def replacing(
    dumped: Iterable[tuple[bytes, bytes | None, int | None]],
    database: int,
    limits: Limits,
    target: str,
    abilities: Abilities,
) -> Iterator[Piece]:
    """The pieces that put values in the place of those that the target has.

    Args:
        dumped: names, with what DUMP gave and when they expire, as of
            :func:`migrator.stream.copying.deadlines_of`; None for a key that is gone.

    Raises:
        CannotBeCut: no commands can make a value, or not at this target.
        RdbError: a payload cannot be read.
    """
    for name, payload, deadline_ms in dumped:
        gone = [pack("UNLINK", name)]
        if payload is None or deadline_ms is None:
            yield Piece(gone, 1, len(name) + BESIDE)
            continue
        kind, held = _elements_of(payload, name, database, target)
        if kind == "string":
            # Whatever is late is small enough for one command.
            value = b"".join(part for part in held if isinstance(part, bytes))
            yield Piece([*gone, pack("SET", name, value)], 1, len(value))
        else:
            for piece in _pieces(kind, held, name, limits, target, abilities):
                assert isinstance(piece, Piece), "only strings are long commands"
                yield replace(piece, commands=[*gone, *piece.commands])
                gone = []
            if gone:  # it has no elements, as no server should leave a key
                yield Piece(gone, 1, len(name) + BESIDE)
                continue
        if deadline_ms >= 0:
            yield Piece([pack("PEXPIREAT", name, max(1, deadline_ms))], 1, len(name) + BESIDE)


def _pieces(kind: str, held: list[Element], name: bytes, limits: Limits, target: str, abilities: Abilities) -> Pieces:
    return pieces_of(kind, lambda: iter(held), name, limits, NOT_WITHHELD, target=target, abilities=abilities)


def _elements_of(payload: bytes, name: bytes, database: int, target: str) -> tuple[str, list[Element]]:
    """The type and all elements of what DUMP gave.

    Raises:
        CannotBeCut: no commands make such a value.
        RdbError: it cannot be read.
    """
    version = int.from_bytes(payload[-FOOT : 2 - FOOT], "little")
    magic = b"VALKEY%03d" % version if version >= VALKEY else b"REDIS%04d" % version
    # A file with one key of database 0 and no checksum, which the payload has.
    file = b"".join((magic, b"\xfe\x00", payload[:1], b"\x01k", payload[1:-FOOT], b"\xff", bytes(8)))
    snapshot = Snapshot(io.BytesIO(file), f"payload of key '{readable(name)}'", 0, len(file))
    kind = ""
    held: list[Element] = []
    for key in snapshot:
        kind = key.type or "module"
        require_type(kind, database, name, target)
        held = list(snapshot.elements())
    return kind, held
