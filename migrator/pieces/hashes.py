"""Hashes are read by pages of HSCAN and written with HSET. Deadlines of fields, where servers have them, are set with
HPEXPIREAT.

The key does not change meanwhile, so HSCAN gives every field. It may give one twice; setting it twice does no harm.
A hash kept in a listpack comes in one reply, which the server's settings bound; it is written in parts.
"""

from __future__ import annotations

from migrator.connection import Connection, pack
from migrator.errors import CannotBeCut
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of, cut

NO_DEADLINE = -1
NO_FIELD = -2


async def pieces(key: Key) -> Pieces:
    """The pieces of a hash.

    Raises:
        CannotBeCut: fields have deadlines, and the target does not support them.
    """
    deadlines_known = await _knows_deadlines(key.source)
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


async def _knows_deadlines(server: Connection) -> bool:
    """Whether the server supports deadlines of fields."""
    (about,) = await server.call("COMMAND", "INFO", "HPEXPIRETIME")
    return bool(about)


def _piece(key: Key, pairs: list[bytes], deadlines: list[bytes]) -> Piece:
    commands = [pack("HSET", key.temporary, *pairs), *deadlines] if pairs else []
    return Piece(commands, len(pairs) // 2, bytes_of(pairs))


async def _with_deadlines(key: Key, pairs: list[bytes]) -> Piece:
    """A piece of fields, of which some may have deadlines. Fields that have expired meanwhile are left out."""
    fields = pairs[::2]
    (deadlines,) = await key.ask(("HPEXPIRETIME", key.name, "FIELDS", len(fields), *fields))
    if all(deadline == NO_DEADLINE for deadline in deadlines):
        return _piece(key, pairs, [])
    if any(deadline > 0 for deadline in deadlines) and not await _knows_deadlines(key.target):
        raise CannotBeCut(
            f"fields of hash {key.name!r} have deadlines, which target {key.target.address} knows nothing of",
            "upgrade it to a Redis at least as new as the source",
        )
    left: list[bytes] = []
    fields_of: dict[int, list[bytes]] = {}
    for field, value, deadline in zip(fields, pairs[1::2], deadlines, strict=True):
        if deadline == NO_FIELD:
            continue
        left += (field, value)
        if deadline != NO_DEADLINE:
            fields_of.setdefault(deadline, []).append(field)
            key.passing += 1
    return _piece(
        key,
        left,
        [
            pack("HPEXPIREAT", key.temporary, deadline, "FIELDS", len(some), *some)
            for deadline, some in fields_of.items()
        ],
    )
