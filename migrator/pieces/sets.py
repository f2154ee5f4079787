"""Sets are read by pages of SSCAN and written with SADD.

The key does not change meanwhile, so SSCAN gives every member. It may give one twice; adding it twice does no harm.
A set kept as integers or in a listpack comes in one reply, which the server's settings bound; it is written in parts.
"""

from __future__ import annotations

from migrator.connection import pack
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of, cut


async def pieces(key: Key) -> Pieces:
    """The pieces of a set."""
    cursor = b"0"
    while True:
        count = key.elements()
        ((cursor, members),) = await key.ask(("SSCAN", key.name, cursor, "COUNT", count))
        key.cutter.read(len(members), bytes_of(members), key.held)
        if members:
            for part in cut(members, 1, count):
                yield Piece([pack("SADD", key.temporary, *part)], len(part), bytes_of(part))
        if cursor == b"0":
            return
