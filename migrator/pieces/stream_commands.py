"""Commands that make a stream, and what those do that read one from a server and those that have it from a snapshot.

XCLAIM makes an entry pending only while the entry exists. So for a pending entry that was deleted a *stand-in* is added
at its place, claimed and removed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from migrator.connection import pack
from migrator.pieces.stream_ids import StreamId, write_id

CLAIM_ELEMENTS = 10
"""A pending entry costs as much as so many entries: XCLAIM looks for it in the stream (10 and 1 microseconds)."""

STAND_IN = (b"", b"")
"""Field and value of a stand-in."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A pending entry.

    Attributes:
        delivered: when, in milliseconds since 1970 by the source's clock.
        deliveries: how often.
    """

    entry: StreamId
    group: bytes
    consumer: bytes
    delivered: int
    deliveries: int


def make_empty(name: bytes) -> list[bytes]:
    """Commands that make a stream without a trace of an entry. There is no other way."""
    return [pack("XGROUP", "CREATE", name, "x", "0-0", "MKSTREAM"), pack("XGROUP", "DESTROY", name, "x")]


def claim_commands(name: bytes, claims: Iterable[Claim]) -> list[bytes]:
    """Commands that make entries pending, those that differ only by id together."""
    together: dict[tuple[bytes, bytes, int, int], list[bytes]] = {}
    for each in claims:
        together.setdefault((each.group, each.consumer, each.delivered, each.deliveries), []).append(
            write_id(each.entry)
        )
    commands = []
    for (group, consumer, delivered, deliveries), ids in together.items():
        options = ("TIME", delivered, "RETRYCOUNT", deliveries, "FORCE", "JUSTID")
        commands.append(pack("XCLAIM", name, group, consumer, 0, *ids, *options))
    return commands


def set_last_id(name: bytes, last: StreamId, added: int | None, most_deleted: StreamId | None) -> bytes:
    """The command that sets a stream's last id and, unless ``added`` is None, its counters.

    Args:
        added: how many entries were ever added; None for a target that does not count them.
        most_deleted: the largest id that was deleted; None if it is not known.
    """
    options: list[str | bytes | int] = []
    if added is not None:
        options += ["ENTRIESADDED", added]
        if most_deleted is not None and most_deleted != (0, 0):
            options += ["MAXDELETEDID", write_id(most_deleted)]
    return pack("XSETID", name, write_id(last), *options)


def estimate_read(at: StreamId, first: StreamId | None, last: StreamId, length: int) -> int:
    """How many entries a group has read, as Redis 7.0 estimates it when it loads a stream of an older server.

    -1 where it cannot be known. Source: ``streamEstimateDistanceFromFirstEverEntry`` in Redis' t_stream.c.

    Args:
        at: the id that the group has read up to.
        first: of the stream's entries; None if there are none.
        last: the stream's last id.
        length: how many entries it has.
    """
    if first is None:
        return 0
    if at == last:
        return length
    if at < first:
        return 0
    return 1 if at == first else -1
