"""Hashes are read by pages of HSCAN and written with HSET. Deadlines of fields, where servers have them, are set with
HPEXPIREAT.

The key does not change meanwhile, so HSCAN gives every field. It may give one twice; setting it twice does no harm.
A hash kept in a listpack comes in one reply, which the server's settings bound; it is written in parts.
"""

from __future__ import annotations

from migrator.connection import pack
from migrator.pieces.abilities import has_field_deadlines
from migrator.pieces.field_deadlines import deadline_commands, no_deadlines
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of, cut

NO_DEADLINE = -1
NO_FIELD = -2


async def pieces(key: Key) -> Pieces:
    """The pieces of a hash.

    Raises:
        CannotBeCut: fields have deadlines, and the target does not support them.
    """
    deadlines_known = await has_field_deadlines(key.source)
    cursor = b"0"
    while True:
        count = key.elements()
        ((cursor, flat),) = await key.ask(("HSCAN", key.name, cursor, "COUNT", count))
        key.cutter.read(len(flat) // 2, bytes_of(flat), key.held)
        if flat:
            for part in cut(flat, 2, count):
                yield await _with_deadlines(key, part) if deadlines_known else _piece(key, part, [])
        if cursor == b"0":
            return


def _piece(key: Key, pairs: list[bytes], deadlines: list[bytes]) -> Piece:
    commands = [pack("HSET", key.temporary, *pairs), *deadlines] if pairs else []
    return Piece(commands, len(pairs) // 2, bytes_of(pairs))


async def _with_deadlines(key: Key, pairs: list[bytes]) -> Piece:
    """A piece of fields, of which some may have deadlines. Fields that have expired meanwhile are left out."""
    fields = pairs[::2]
    (deadlines,) = await key.ask(("HPEXPIRETIME", key.name, "FIELDS", len(fields), *fields))
    if all(deadline == NO_DEADLINE for deadline in deadlines):
        return _piece(key, pairs, [])
    if any(deadline > 0 for deadline in deadlines) and not await has_field_deadlines(key.target):
        raise no_deadlines(key.name, f"target {key.target.address}")
    left: list[bytes] = []
    fields_of: dict[int, list[bytes]] = {}
    for field, value, deadline in zip(fields, pairs[1::2], deadlines, strict=True):
        if deadline == NO_FIELD:
            continue
        left += (field, value)
        if deadline != NO_DEADLINE:
            fields_of.setdefault(deadline, []).append(field)
            key.passing += 1
    return _piece(key, left, deadline_commands(key.temporary, fields_of))
