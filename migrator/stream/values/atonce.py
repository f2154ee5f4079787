"""Makes values under their own names, where nobody sees them before they are whole.

A small stream is one piece; many small values go to the target in one transaction
(:mod:`migrator.stream.snapshotfilter`). Late keys are made while their slots are locked, and the target's keys are seen
only once all are there.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from migrator.connection import pack
from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.piece import Piece
from migrator.stream.deadlines import PLACEHOLDER_MS
from migrator.stream.errors import TooManyLate
from migrator.stream.values import streams
from migrator.stream.values.cutting import BESIDE, Limits
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of_absent
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


@dataclass(slots=True)
class Room:
    """How many elements late keys may still have (**bounded**)."""

    elements: int

    def take(self) -> None:
        """One more is read. Raises TooManyLate."""
        if self.elements <= 0:
            raise TooManyLate(
                "keys that the copy could not follow have more elements than are read within a lock",
                "these slots move in another way",
            )
        self.elements -= 1


def require_type(kind: str, database: int, name: bytes, target: str) -> None:
    """Raise CannotBeCut if no commands make values of this type."""
    if kind not in TYPES:
        raise CannotBeCut(
            f"key '{readable(name)}' of database {database} has a value of type {kind}, which no commands make, and "
            f"{target} does not read the source's payloads",
            "upgrade the target to the source's version",
        )


def small_stream(held: list[Element], name: bytes, abilities: Abilities) -> Piece | None:
    """The only piece of a stream that makes it under its own name, where no key is; None if it takes several. Raises
    CannotBeCut."""
    first, *more = islice(streams.pieces(lambda: iter(held), name, Limits(), abilities), 2)
    return None if more else first


def replacing(
    dumped: Iterable[tuple[bytes, bytes | None, int | None]],
    database: int,
    limits: Limits,
    target: str,
    abilities: Abilities,
    room: Room,
) -> Iterator[Piece]:
    """The pieces that put values in the place of those that the target has. A whole value is read at once, which takes
    a while: it is not for an event loop's thread.

    Args:
        dumped: names, with what DUMP gave and when they expire, as of
            :func:`migrator.stream.copying.deadlines_of`; None for a key that is gone.

    Raises:
        CannotBeCut: no commands can make a value, or not at this target.
        TooManyLate: there is no room for all elements.
        RdbError: a payload cannot be read.
    """
    for name, payload, deadline_ms in dumped:
        gone = [pack("UNLINK", name)]
        if payload is None or deadline_ms is None:
            yield Piece(gone, 1, len(name) + BESIDE)
            continue
        kind, held = _elements_of(payload, name, database, target, room)
        if kind == "string":
            # Whatever is late is small enough for one command.
            value = b"".join(part for part in held if isinstance(part, bytes))
            yield Piece([*gone, pack("SET", name, value)], 1, len(value))
        else:
            absent = pieces_of_absent(
                kind, partial(iter, held), name, limits, NOT_WITHHELD, target=target, abilities=abilities
            )
            for piece in absent:
                assert isinstance(piece, Piece), "only strings are long commands"
                yield replace(piece, commands=[*gone, *piece.commands])
                gone = []
            if gone:  # it has no elements, as no server should leave a key
                yield Piece(gone, 1, len(name) + BESIDE)
                continue
        if deadline_ms >= 0:
            yield Piece([pack("PEXPIREAT", name, max(1, deadline_ms))], 1, len(name) + BESIDE)


def _elements_of(payload: bytes, name: bytes, database: int, target: str, room: Room) -> tuple[str, list[Element]]:
    """The type and all elements of what DUMP gave.

    Raises:
        CannotBeCut: no commands make such a value.
        TooManyLate: there is no room for them.
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
        # Not list(), which would have no other thread run.
        for element in snapshot.elements():
            room.take()
            held.append(element)
    return kind, held
