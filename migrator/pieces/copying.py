"""Copies one big key to the target piece by piece, under a temporary name, while the source owns it.

The caller makes sure that no client writes the key meanwhile (it may expire or be evicted), and that nothing of an
earlier call can still run at the target. Then :func:`migrator.pieces.finishing.finish` makes the copy the key.

While a piece is written, the next is read: the two servers work side by side, and each of them has turns of its
event loop for others between any two pieces.

**bounded**: two pieces are held at a time. :mod:`migrator.pieces.cutter` bounds their size. The unfinished copy has an
expiry, and every piece renews it in the same transaction. So the target removes the copy even if the copying process
dies. An unfinished copy never becomes the key: its type and length, and for a stream its groups,
have to be those of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import hiredis
import structlog

from migrator.connection import Connection, pack
from migrator.errors import CannotBeCut, CopyLost, KeyGone, MigrationError, SourceRefused, unknown_command
from migrator.options import CONFIRM_BYTES, Confirmation
from migrator.pace import Throttle
from migrator.pieces import hashes, lists, sets, sorted_sets, streams, strings
from migrator.pieces.cutter import BYTES_PER_ELEMENT, PieceCutter
from migrator.pieces.deadlines import read_deadline
from migrator.pieces.piece import EXPIRY_SECONDS, Key, Piece, Pieces, timed

log = structlog.get_logger()

QUIET_SECONDS = 2.0
"""Seconds for a command under way, after a failure, before the unfinished copy is dropped."""

MULTI = pack("MULTI")
EXEC = pack("EXEC")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of key that can be cut.

    Attributes:
        length: the command that gives the number of elements of a key, in constant time.
        pieces: gives the pieces; None for strings, which are one long command.
    """

    length: str
    pieces: Callable[[Key], Pieces] | None


KINDS: dict[bytes, Kind] = {
    b"string": Kind("STRLEN", None),
    b"list": Kind("LLEN", lists.pieces),
    b"set": Kind("SCARD", sets.pieces),
    b"zset": Kind("ZCARD", sorted_sets.pieces),
    b"hash": Kind("HLEN", hashes.pieces),
    b"stream": Kind("XLEN", streams.pieces),
}
"""The kinds, by the reply of TYPE."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that is whole, with the values that :func:`migrator.pieces.finishing.finish` checks and sets.

    Attributes:
        kind: the reply of TYPE.
        length_command: gives the length.
        least, most: the length it may have; they differ only for a hash whose fields have deadlines.
        deadline: when the key expires, in milliseconds since 1970; -1 for never.
        pieces: how many there were.
        size: bytes of all elements.
        longest_read_seconds, longest_write_seconds: the longest that a piece held up the source and the target, by
            their own clocks.
    """

    kind: bytes
    length_command: str
    least: int
    most: int
    deadline: int
    pieces: int
    size: int
    longest_read_seconds: float
    longest_write_seconds: float


async def copy(
    source: Connection,
    target: Connection,
    name: bytes,
    temporary: bytes,
    cutter: PieceCutter,
    pace: Throttle,
    confirmation: Confirmation,
) -> Copied:
    """Copy key ``name`` of the source to ``temporary`` at the target and compare the two.

    After an error or a cancellation the unfinished copy is dropped. If the target does not answer, the copy expires.

    Args:
        source, target: with the key's database selected. Nobody else may use these connections meanwhile.
        temporary: name of the copy; a key that the target has there is replaced.
        cutter: how large pieces are; keep it from key to key, because it learns.
        pace: counts the bytes. It may be paused; the unfinished copy is kept meanwhile.
        confirmation: by replicas of the target, every :data:`migrator.options.CONFIRM_BYTES`.

    Raises:
        CannotBeCut: the key is of a type that has to go whole.
        KeyGone: the key is no longer at the source.
        CopyLost: the copy is not whole; somebody deleted or changed it, or the target evicted it.
        TooFewReplicas: replicas of the target do not confirm what was written in time.
        SourceUnavailable, TargetUnavailable, SourceRefused, TargetRefused: see there.
    """
    kind = await source.call("TYPE", name)
    if kind == b"none":
        raise _gone(source, name)
    if kind not in KINDS:
        raise CannotBeCut(f"key {name!r} at source {source.address} is a {kind.decode(errors='replace')}")
    how = KINDS[kind]
    length = await source.call(how.length, name)
    (memory,) = await source.send(pack("MEMORY", "USAGE", name), 1)
    if isinstance(memory, hiredis.ReplyError):
        if not unknown_command(str(memory)):
            raise source.refusal(memory)
        # Before Redis 4 the size is unknown: large elements are assumed, so that the first piece is small.
        memory = length * BYTES_PER_ELEMENT
    if not isinstance(memory, int):
        raise _gone(source, name)
    cutter.begin(memory / max(1, length))
    key = Key(source, target, name, temporary, length, cutter, pace, confirmation)
    try:
        await target.call("UNLINK", temporary)
        if how.pieces is None:
            await strings.send(key)
            pieces, size = 1, length
        else:
            pieces, size = await _Writer(key).write_all(how.pieces(key))
        return await _compared(key, kind, how, pieces, size)
    except BaseException as error:
        await _drop(target, temporary)
        # Most commands take an absent key for an empty one; commands on streams and their groups refuse.
        if isinstance(error, SourceRefused) and not await source.call("EXISTS", name):
            raise _gone(source, name) from error
        raise


class _Writer:
    """Writes the pieces, one transaction each, and reads the next piece meanwhile."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._begun = False
        self._unconfirmed = 0  # bytes

    async def write_all(self, pieces: Pieces) -> tuple[int, int]:
        """Write them all; give their number and their bytes."""
        number = size = 0
        upcoming = asyncio.ensure_future(anext(pieces, None))
        try:
            while (piece := await upcoming) is not None:
                upcoming = asyncio.ensure_future(anext(pieces, None))
                if piece.commands:
                    await self._admitted(piece)
                    await self._write(piece)
                    await self._confirmed(piece)
                    number += 1
                    size += piece.size
        finally:
            # A read under way ends by itself: a cancelled one would leave the connection with a reply owed.
            await asyncio.wait((upcoming,), timeout=QUIET_SECONDS)
            if not upcoming.done():
                upcoming.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await upcoming
            await pieces.aclose()
        return number, size

    async def _admitted(self, piece: Piece) -> None:
        """Wait until the pace lets the piece go, and keep the unfinished copy alive meanwhile."""
        waiting = asyncio.ensure_future(self._key.pace.admit(0, piece.size))
        try:
            while not (await asyncio.wait((waiting,), timeout=EXPIRY_SECONDS / 3))[0]:
                if self._begun:
                    await self._key.target.send(self._renewal(), 1)
        finally:
            waiting.cancel()
        await waiting

    async def _write(self, piece: Piece) -> None:
        key = self._key
        commands = [MULTI, pack("EXISTS", key.temporary), *piece.commands, self._renewal(piece.size), EXEC]
        replies, held = await timed(key.target, commands)
        ran = replies.pop()
        if isinstance(ran, list):
            if self._begun and not ran[0]:
                raise CopyLost(
                    f"the unfinished copy of {key.name!r} has gone from target {key.target.address}; somebody deleted "
                    "it, or the target evicted it because it is at its maxmemory, or was out of reach for "
                    f"{EXPIRY_SECONDS:g} s"
                )
            replies = ran
        else:
            replies.append(ran)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise key.target.refusal(reply)
        self._begun = True
        key.cutter.written(piece.elements, piece.size, held)

    async def _confirmed(self, piece: Piece) -> None:
        """Keep to the pace of the replicas: a copy that is far ahead of them could not be confirmed at its end."""
        self._unconfirmed += piece.size
        if self._unconfirmed >= CONFIRM_BYTES:
            size, self._unconfirmed = self._unconfirmed, 0
            await self._key.confirmation.wait(self._key.target, size)

    def _renewal(self, size: int = 0) -> bytes:
        return pack("PEXPIRE", self._key.temporary, self._key.expiry_milliseconds(size))


async def _compared(key: Key, kind: bytes, how: Kind, pieces: int, size: int) -> Copied:
    """Compare the copy with the key."""
    kind_now, length_now = await key.ask(("TYPE", key.name), (how.length, key.name))
    deadline = await read_deadline(key.source, key.name)
    if kind_now == b"none" or deadline is None:
        raise _gone(key.source, key.name)
    least, most = length_now - key.passing, length_now
    if key.passing:
        # The source still counts expired fields until it comes across them.
        most = max(most, key.length)
    there, length_there = await key.target.call("TYPE", key.temporary), 0
    if there == kind:
        length_there = await key.target.call(how.length, key.temporary)
    if kind_now != kind or there != kind or not least <= length_there <= most:
        raise CopyLost(
            f"the copy of {kind.decode()} {key.name!r} at target {key.target.address} has {length_there} elements "
            f"instead of {length_now}; somebody deleted it there, or the target evicted it "
            "because it is at its maxmemory"
        )
    if kind == b"stream":
        await streams.check_groups(key)
    cutter = key.cutter
    return Copied(kind, how.length, least, most, deadline, pieces, size, cutter.reading.longest, cutter.writing.longest)


async def _drop(target: Connection, temporary: bytes) -> None:
    with suppress(MigrationError):
        if await target.quiet(QUIET_SECONDS):
            await target.call("UNLINK", temporary, limit=QUIET_SECONDS)
            return
    log.warning("unfinished_copy_left_to_expire", target=target.address, key=temporary)


def _gone(source: Connection, name: bytes) -> KeyGone:
    return KeyGone(f"key {name!r} expired or was evicted at source {source.address} while it was copied")
