"""Lists are read by ranges from the head on and written with RPUSH, which keeps their order.

A server walks from the head to an index that counts from there (Redis before 7.0). So the latter half is read by
indexes that count from the tail. No piece size makes the walk to the middle of a list shorter: it is one step for each
8 KB of a list.
"""

from __future__ import annotations

from migrator.connection import pack
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of


async def pieces(key: Key) -> Pieces:
    """The pieces of a list."""
    length = key.length
    start = 0
    while start < length:
        end = min(length, start + key.elements())
        origin = length if start > length // 2 else 0
        (values,) = await key.ask(("LRANGE", key.name, start - origin, end - 1 - origin))
        if not values:
            return  # the key is gone; the comparison of lengths at the end finds that
        key.cutter.read(len(values), bytes_of(values), key.held)
        yield Piece([pack("RPUSH", key.temporary, *values)], len(values), bytes_of(values))
        start += len(values)
