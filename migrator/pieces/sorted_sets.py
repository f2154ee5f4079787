"""Sorted sets are read by ranges of ranks, from the highest score down, and written with ZADD.

The key does not change meanwhile, so ranks stay. In descending order each new member goes to the front of the target's
skip list, which takes constant time. Redis loads them in that order too. Servers write scores with 17 digits, or as few
as identify the number, and ``inf`` and ``-0`` as such: they arrive bit for bit.
"""

from __future__ import annotations

from itertools import chain

from migrator.connection import pack
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of


async def pieces(key: Key) -> Pieces:
    """The pieces of a sorted set."""
    rank = 0
    while rank < key.length:
        end = min(key.length, rank + key.elements())
        (flat,) = await key.ask(("ZREVRANGE", key.name, rank, end - 1, "WITHSCORES"))
        if not flat:
            return  # the key is gone; the comparison of lengths at the end finds that
        members, scores = flat[::2], flat[1::2]
        size = bytes_of(flat)
        key.cutter.read(len(members), size, key.held)
        pairs = chain.from_iterable(zip(scores, members, strict=True))
        yield Piece([pack("ZADD", key.temporary, *pairs)], len(members), size)
        rank += len(members)
