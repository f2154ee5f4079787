"""A string that fits into a piece is one SET. A longer one is one SET whose bytes come in parts.

To make it grow by APPEND is no way. With jemalloc the server copies the whole string now and then: of 2,048 steps to
256 MB, 22 took nine tenths of the time, the longest a sixth. SETRANGE at the far end fills it with zeroes first. The
argument of a long SET becomes the value, also within MULTI, and the server reads it as it arrives
(:mod:`migrator.pieces.strings`). What that costs: the server has memory for two such arguments for a moment. Where a
replica or an append-only file follows, it copies the argument once, in one step.

The length stands before the first byte, and a snapshot's parts do not tell it. So a long string is read twice.

A long SET is not part of a transaction, so it may run however late: the process that sent it was paused, or cut off,
and its copy has ended. Nobody would know of the value then. So it has a life of :data:`LIFE_MS`, and the server removes
it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from migrator.connection import pack
from migrator.errors import CopyLost
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import Limits, LongCommand, Pieces
from rdb.elements import Element

LIFE_MS = 600_000
"""How long a value may wait for its name, which is the next step (:mod:`migrator.stream.values.finishing`): longer than
all attempts at that step take."""


def pieces(opened: Callable[[], Iterator[Element]], name: bytes, limits: Limits) -> Pieces:
    """The one piece of a string."""
    held: list[bytes] = []
    most = limits.most_bytes
    size = 0
    for part in _parts(opened):
        size += len(part)
        if size <= most:
            held.append(part)
        else:
            held.clear()
    if size <= most:
        yield Piece([pack("SET", name, b"".join(held))], 1, size)
        return
    head = b"*5\r\n" + _arguments("SET", name) + b"$%d\r\n" % size
    tail = b"\r\n" + _arguments("PX", LIFE_MS)
    yield LongCommand(len(head) + size + len(tail), _long(head, opened, size, tail, limits))


def _arguments(*some: str | bytes | int) -> bytes:
    return pack(*some).partition(b"\r\n")[2]


def _long(
    head: bytes, opened: Callable[[], Iterator[Element]], size: int, tail: bytes, limits: Limits
) -> Iterator[bytes]:
    yield head
    left = size
    for part in _parts(opened):
        left -= len(part)
        if left < 0:
            break
        start = 0
        while start < len(part):
            some = part[start : start + limits.most_bytes]
            start += len(some)
            yield some
    if left:
        raise CopyLost(f"a string of {size} bytes had another length when it was read again")
    yield tail


def _parts(opened: Callable[[], Iterator[Element]]) -> Iterator[bytes]:
    for part in opened():
        assert isinstance(part, bytes)
        yield part
