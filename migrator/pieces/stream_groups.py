"""Reads the groups of a stream, and their pending entries, page by page.

**bounded**: one request for pending entries asks up to :data:`GROUPS_AT_ONCE` groups, for no more in total than a piece
has. Groups whose pending entries have all been read are not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from migrator.pieces.cutter import cost_of
from migrator.pieces.deadlines import milliseconds
from migrator.pieces.piece import Key
from migrator.pieces.stream_commands import Claim
from migrator.pieces.stream_ids import StreamId, parse_id, write_id

GROUPS_AT_ONCE = 64
"""Groups that are asked in one pipeline."""

TRIES = 5
"""How many times a page is read again because the clock went on by a millisecond meanwhile."""


@dataclass(slots=True)
class Group:
    """A group, as XINFO reports it.

    Attributes:
        entries_read: how many entries it has read, -1 if the server does not know.
        pending: how many entries are pending.
        left: how many of those have not been read yet.
        consumers: how many there are.
        idle: names of the consumers that have nothing pending.
    """

    name: bytes
    last_id: bytes
    entries_read: int
    pending: int
    left: int
    consumers: int
    idle: list[bytes] = field(default_factory=list)


async def read_groups(key: Key, *, at_target: bool = False) -> list[Group]:
    """The groups of the stream, or of its copy. Idle consumers are only read for the stream."""
    if at_target:
        return [_group(flat) for flat in await key.target.call("XINFO", "GROUPS", key.temporary)]
    (listed,) = await key.ask(("XINFO", "GROUPS", key.name))
    groups = [_group(flat) for flat in listed]
    for group in groups:
        if group.consumers:
            (consumers,) = await key.ask(("XINFO", "CONSUMERS", key.name, group.name))
            told = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in consumers]
            group.idle = [consumer[b"name"] for consumer in told if not consumer[b"pending"]]
    return groups


def _group(flat: list[Any]) -> Group:
    told = dict(zip(flat[::2], flat[1::2], strict=True))
    read = told.get(b"entries-read")
    return Group(
        told[b"name"],
        told[b"last-delivered-id"],
        read if isinstance(read, int) else -1,
        told[b"pending"],
        told[b"pending"],
        told[b"consumers"],
    )


async def read_pending(
    key: Key, groups: list[Group], start: StreamId, end: StreamId | None, count: int
) -> tuple[list[Claim], StreamId | None]:
    """Pending entries from ``start`` up to and with ``end`` (None: all), in the order of their ids, some ``count``.

    The second part of the reply is None if all were read, else the last id that was read.
    """
    asked = [group for group in groups if group.left]
    each = max(1, count // max(1, len(asked)))
    claims: list[tuple[Claim, Group]] = []
    covered: StreamId | None = None
    for first in range(0, len(asked), GROUPS_AT_ONCE):
        some = asked[first : first + GROUPS_AT_ONCE]
        for group, page in zip(some, await _pages(key, some, start, end, each), strict=True):
            claims += [(claim, group) for claim in page]
            if len(page) == each and len(page) < group.left and (covered is None or page[-1].entry < covered):
                covered = page[-1].entry
    claims = [pair for pair in claims if covered is None or pair[0].entry <= covered]
    for _, group in claims:
        group.left -= 1
    return sorted((claim for claim, _ in claims), key=lambda claim: claim.entry), covered


async def _pages(key: Key, groups: list[Group], start: StreamId, end: StreamId | None, each: int) -> list[list[Claim]]:
    """A page of pending entries of each group.

    The server says how long ago each entry was delivered, but not which time its clock shows then. So the clock is read
    before and after. If both show the same millisecond, it also held in between.
    """
    bounds = (write_id(start), "+" if end is None else write_id(end), each)
    commands: list[tuple[str | bytes | int, ...]] = [("TIME",)]
    for group in groups:
        commands += [("XPENDING", key.name, group.name, *bounds), ("TIME",)]
    replies: list[Any] = []
    for _ in range(TRIES):
        replies = await key.ask(*commands)
        key.cutter.reading.learn(cost_of(sum(map(len, replies[1::2])), 0), key.held)
        clocks = [milliseconds(reply) for reply in replies[::2]]
        if all(
            before == after or not page for before, page, after in zip(clocks, replies[1::2], clocks[1:], strict=False)
        ):
            break
    return [
        [
            Claim(parse_id(entry), group.name, consumer, clock - idle, deliveries)
            for entry, consumer, idle, deliveries in page
        ]
        for group, page, clock in zip(groups, replies[1::2], clocks, strict=False)
    ]
