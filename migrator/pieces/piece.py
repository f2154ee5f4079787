"""A piece of a big key, and the code that the files of all types share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis

from migrator.connection import Connection, pack
from migrator.options import Confirmation
from migrator.pace import Throttle
from migrator.pieces.cutter import PieceCutter

EXPIRY_SECONDS = 60.0
"""After this time without another piece, an unfinished copy expires at the target: the migrator has died, or cannot
reach the target."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Commands that add to the copy at the target. They run in one transaction, in this order.

    Attributes:
        commands: packed, one each.
        elements: how many elements they add; an expensive one counts as several.
        size: bytes of these.
        deadlines: of fields of a hash that the caller has to see to, in milliseconds since 1970; each with the field.
            Only :mod:`migrator.stream.values` gives some.
    """

    commands: list[bytes]
    elements: int
    size: int
    deadlines: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Key:
    """A big key on its way.

    Attributes:
        source: connection to the server that owns it, with its database selected.
        target: connection to the server that gets it, likewise.
        name: of the key.
        temporary: name of the unfinished copy at the target.
        length: elements (bytes of a string) when the copying began.
        cutter: how large pieces may be.
        pace: how fast they may go.
        confirmation: by replicas of the target, as the copy is written.
        passing: elements with a deadline of their own, which may expire at either server at any moment.
        held: seconds that the source took for the latest :meth:`ask`.
    """

    source: Connection
    target: Connection
    name: bytes
    temporary: bytes
    length: int
    cutter: PieceCutter
    pace: Throttle
    confirmation: Confirmation
    passing: int = 0
    held: float = 0.0

    def elements(self) -> int:
        """How many elements the next piece may have."""
        return self.cutter.elements(self.pace.batch.bytes)

    def expiry_milliseconds(self, size: int) -> int:
        """How long an unfinished copy lives after ``size`` bytes were written, for which replicas may be waited."""
        return int((EXPIRY_SECONDS + self.confirmation.seconds(size)) * 1000)

    async def ask(self, *commands: Sequence[str | bytes | int]) -> list[Any]:
        """Replies of the source to commands sent at once. Raises SourceRefused for an error among them."""
        replies, self.held = await timed(self.source, [pack(*command) for command in commands])
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise self.source.refusal(reply)
        return replies


Pieces = AsyncGenerator[Piece, None]

TIME = pack("TIME")


async def timed(server: Connection, commands: list[bytes]) -> tuple[list[Any], float]:
    """Replies to packed commands sent at once, and the seconds the server took, by its own clock.

    The clock is read before and after. So neither the network counts, nor this process's other work. A clock that is
    set in between does no harm: the time measured here is the upper bound.
    """
    before, *replies, after = await server.send(b"".join([TIME, *commands, TIME]), len(commands) + 2)
    if isinstance(before, hiredis.ReplyError):
        raise server.refusal(before)
    seconds = server.seconds
    if not isinstance(after, hiredis.ReplyError):
        seconds = min(seconds, max(0.0, (microseconds(after) - microseconds(before)) / 1e6))
    return replies, seconds


def microseconds(clock: list[bytes]) -> int:
    """The reply of TIME, in microseconds since 1970."""
    return int(clock[0]) * 1_000_000 + int(clock[1])


def cut(flat: list[bytes], width: int, most: int) -> list[list[bytes]]:
    """A reply in parts of at most ``most`` elements of ``width`` items; a server gives small encodings all at once."""
    step = most * width
    return [flat] if len(flat) <= 2 * step else [flat[start : start + step] for start in range(0, len(flat), step)]


def bytes_of(items: list[bytes]) -> int:
    """Bytes of items together."""
    return sum(map(len, items))
