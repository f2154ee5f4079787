"""What the digest check asks one server: what is in keys, and how far its replication is.

**bounded**: how many keys a script looks at depends on how long the last one took. It looks at no more than
:data:`WHOLE_ELEMENTS` and :data:`WHOLE_BYTES` of content; a key with more is read in pieces of about that size. Every
call has the time limit of its connection. A server that cannot run EVAL cannot be checked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from migrator.connection import Connection
from migrator.pieces.stream_ids import LAST, id_after, parse_id, write_id
from slots.scripts import load
from topom.copies.digests.sums import CORE_TYPES, Looked

_KEYS = load("digest_keys")
_PIECE = load("digest_piece")
WHOLE_ELEMENTS = 512
WHOLE_BYTES = 262_144
PIECE_ELEMENTS = 512
PIECE_BYTES = 262_144

Ready = Callable[[int], Awaitable[None]]
"""Awaited before each piece, with the number of keys that the piece counts as."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a server is in replication, from INFO: the stream of writes, and how many bytes of it were run."""

    is_master: bool
    stream: str
    offset: int
    link_up: bool


async def look(connection: Connection, keys: Sequence[bytes]) -> tuple[int, list[Looked]]:
    """The server's clock in milliseconds, and each key as the server has it; the content only of small keys."""
    clock = 0
    looked: list[Looked] = []
    while len(looked) < len(keys):
        left = keys[len(looked) :]
        now, *found = await connection.call("EVAL", _KEYS.text, len(left), *left, WHOLE_ELEMENTS, WHOLE_BYTES)
        clock = int(now)
        looked += [
            Looked(kind.decode(), int(deadline), digest.decode(), int(length), int(size))
            for kind, deadline, length, size, digest in found
        ]
    return clock, looked


def needs_pieces(looked: Looked) -> bool:
    """Whether the key is there and its content has to be read in pieces."""
    return looked.type in CORE_TYPES and not looked.content


def piece_size(looked: Looked) -> int:
    """How many elements a piece has, or how many bytes of a string. Both servers have to be read with the same size."""
    if looked.type == "string":
        return PIECE_BYTES
    mean = max(1, looked.bytes // max(1, looked.length))
    return max(1, min(PIECE_ELEMENTS, PIECE_BYTES // mean))


async def content_in_pieces(connection: Connection, key: bytes, kind: str, size: int, length: int, ready: Ready) -> str:
    """The digest of a big key's content; ``""`` if it was changed meanwhile in a way that shows.

    Args:
        kind: its type.
        size: of a piece, see :func:`piece_size`.
        length: of the key. If a hash or set is rehashed, elements may be met twice: then their number is wrong.
    """
    unordered = kind in ("hash", "set")
    cursor: Any = b"0-0" if kind == "stream" else b"0"
    sums = [0] * 5
    ordered = blake2b(digest_size=16)
    met = 0
    while cursor != b"":
        await ready(1)
        cursor, seen, digest = await connection.call("EVAL", _PIECE.text, 1, key, kind, cursor, size)
        if int(seen) < 0:
            return ""
        met += int(seen)
        if met > 2 * length + size:
            return ""
        if unordered:
            sums = [(part + int(digest[at * 8 : at * 8 + 8], 16)) % 2**32 for at, part in enumerate(sums)]
        else:
            ordered.update(digest)
            if kind == "stream" and cursor:
                last = parse_id(cursor)
                cursor = write_id(id_after(last)) if last != LAST else b""
    if met != length:
        return ""
    return "".join(f"{part:08x}" for part in sums) if unordered else ordered.hexdigest()


async def position(connection: Connection) -> Position:
    """Where the server is in replication."""
    info = await connection.info("replication")
    with connection.understood("INFO"):
        is_master = info.is_master
        return Position(
            is_master,
            info.text("master_replid", ""),
            info.number("master_repl_offset" if is_master else "slave_repl_offset", 0),
            is_master
            or (info.text("master_link_status", "") == "up" and info.number("master_sync_in_progress", 0) == 0),
        )


async def tells_deadlines(connection: Connection) -> bool:
    """Whether the server knows PEXPIRETIME (from 7.0 on)."""
    found = await connection.call("COMMAND", "INFO", "PEXPIRETIME")
    return bool(found and found[0])
