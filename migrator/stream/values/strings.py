"""A string that fits into a piece is one SET. A longer one is one SET whose bytes come in parts.

To make it grow by APPEND is no way. With jemalloc the server copies the whole string now and then: of 2,048 steps to
256 MB, 22 took nine tenths of the time, the longest a sixth. SETRANGE at the far end fills it with zeroes first. The
argument of a long SET becomes the value, also within MULTI, and the server reads it as it arrives
(:mod:`migrator.pieces.strings`). What that costs: the server has memory for two such arguments for a moment. Where a
replica or an append-only file follows, it copies the argument once, in one step.

The length stands before the first byte, and a snapshot's parts do not tell it. So a long string is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from migrator.connection import pack
from migrator.errors import CopyLost
from migrator.pieces.piece import Piece
from migrator.stream.values.cutting import Limits, LongCommand, Pieces
from rdb.elements import Element


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
    head = b"*3\r\n" + pack("SET", name).partition(b"\r\n")[2] + b"$%d\r\n" % size
    yield LongCommand(len(head) + size + 2, _long(head, opened, size, limits))


def _long(head: bytes, opened: Callable[[], Iterator[Element]], size: int, limits: Limits) -> Iterator[bytes]:
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
    yield b"\r\n"


def _parts(opened: Callable[[], Iterator[Element]]) -> Iterator[bytes]:
    for part in opened():
        assert isinstance(part, bytes)
        yield part
