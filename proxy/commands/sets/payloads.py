"""Writes sets and sorted sets as RESTORE takes them: in forms that every server since Redis 3 reads.

A server makes of them what it makes of its own: small ones, and those of numbers, have the encodings that its settings
say. The format is that of ``rdb.c`` and ``cluster.c`` of Redis.
"""

import math

from rdb.input import crc64

SET = b"\x02"
SORTED_SET = b"\x03"
VERSION = b"\x06\x00"
"""Of the format, the last of Redis 3.0."""
_INFINITY = b"\xfe"
_MINUS_INFINITY = b"\xff"


class Payload:
    """One value.

    Args:
        kind: SET or SORTED_SET.
        count: the number of its elements.
    """

    def __init__(self, kind: bytes, count: int) -> None:
        self._parts: list[bytes] = []
        self._sum = 0
        self.add(kind + length(count))

    def add(self, data: bytes) -> None:
        """Add what comes next."""
        self._parts.append(data)
        self._sum = crc64(data, self._sum)

    def end(self) -> bytes:
        """The whole, with its version and its checksum."""
        self.add(VERSION)
        return b"".join((*self._parts, self._sum.to_bytes(8, "little")))


def length(number: int) -> bytes:
    """A number of elements or bytes."""
    if number < 1 << 6:
        return bytes((number,))
    if number < 1 << 14:
        return (number | 0x4000).to_bytes(2, "big")
    return b"\x80" + number.to_bytes(4, "big")


def text(member: bytes) -> bytes:
    """A member."""
    return length(len(member)) + member


def scored(pair: tuple[float, bytes]) -> bytes:
    """A member with its score, in the fewest digits that give the same number."""
    score, member = pair
    if math.isinf(score):
        return text(member) + (_INFINITY if score > 0 else _MINUS_INFINITY)
    digits = repr(score).encode()
    return b"%b%c%b" % (text(member), len(digits), digits)
