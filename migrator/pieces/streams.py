"""Streams: entries with their ids, groups, consumers, pending entries, and the counters a stream keeps.

Entries and pending entries are read side by side, in the order of ids, and written together. XCLAIM makes an entry
pending only while the entry exists. So a pending entry that was deleted is added empty, claimed and removed again.
Before the first entry it is removed by XTRIM, which leaves no trace, elsewhere by XDEL. The final XSETID corrects the
counters of XDEL, like all others.

One value starts again, because no command sets it: when a consumer was last seen. Delivery times are those of the
source's clock, to the millisecond.
"""

from __future__ import annotations

from migrator.connection import Connection, pack
from migrator.errors import CopyLost
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of
from migrator.pieces.stream_groups import Claim, Group, read_groups, read_pending
from migrator.pieces.stream_ids import LAST, StreamId, id_after, parse_id, write_id

Entry = tuple[StreamId, list[bytes]]

CLAIM_ELEMENTS = 10
"""A pending entry costs as much as so many entries: XCLAIM looks for it in the stream (10 and 1 microseconds)."""

CLAIM_BYTES = 64
"""The bytes that a pending entry counts for in a piece."""


async def pieces(key: Key) -> Pieces:
    """The pieces of a stream."""
    state = await _state(key)
    groups = await read_groups(key)
    for some in _parts(key, _founded(key, groups)):
        yield Piece(some, len(some), 0)
    async for piece in _contents(key, groups):
        yield piece
    for some in _parts(key, await _counters(key, state, groups)):
        yield Piece(some, len(some), 0)


async def check_groups(key: Key) -> None:
    """Compare the groups of the copy with the source's groups. Raises CopyLost where they differ."""
    ours, theirs = (
        sorted((group.name, group.last_id, group.pending, group.consumers) for group in groups)
        for groups in (await read_groups(key), await read_groups(key, at_target=True))
    )
    if ours != theirs:
        raise CopyLost(
            f"the groups of stream {key.name!r} are not the same in its copy at target {key.target.address}; "
            "somebody else may have changed it there"
        )


async def _state(key: Key) -> dict[bytes, object]:
    (flat,) = await key.ask(("XINFO", "STREAM", key.name))
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _parts(key: Key, commands: list[bytes]) -> list[list[bytes]]:
    count = key.elements()
    return [commands[start : start + count] for start in range(0, len(commands), count)]


def _founded(key: Key, groups: list[Group]) -> list[bytes]:
    """Commands that make the stream, empty, with its groups and the consumers that have nothing pending."""
    if not groups:  # the only way to an empty stream without a trace of an entry
        return [
            pack("XGROUP", "CREATE", key.temporary, "x", "0-0", "MKSTREAM"),
            pack("XGROUP", "DESTROY", key.temporary, "x"),
        ]
    commands = []
    for group in groups:
        commands.append(pack("XGROUP", "CREATE", key.temporary, group.name, group.last_id, "MKSTREAM"))
        commands += [pack("XGROUP", "CREATECONSUMER", key.temporary, group.name, name) for name in group.idle]
    return commands


async def _contents(key: Key, groups: list[Group]) -> Pieces:
    """The stream's entries, with their pending entries."""
    ahead: list[Entry] = []  # read and not written yet
    ended = False  # no entry after those
    began = False  # an entry has been written
    position: StreamId = (0, 0)
    while True:
        count = key.elements()
        if not ahead and not ended:
            ahead = await _entries(key, position, count)
            ended = len(ahead) < count or ahead[-1][0] == LAST
        last = None if ended else ahead[-1][0]
        claims, covered = await read_pending(key, groups, position, last, max(1, count // CLAIM_ELEMENTS))
        now = ahead if covered is None else [entry for entry in ahead if entry[0] <= covered]
        ahead = ahead[len(now) :]
        commands: list[bytes] = []
        early: list[Claim] = []  # deleted ones before the first entry
        if not began:
            first = now[0][0] if now else None
            early = [claim for claim in claims if first is None or claim.entry < first]
            if early:
                commands += _written(key, [], early)
                commands[-1] = pack("XTRIM", key.temporary, "MAXLEN", 0)  # instead of XDEL: leaves no trace
            began = bool(now)
        commands += _written(key, now, claims[len(early) :])
        if commands:
            size = sum(bytes_of(fields) for _, fields in now) + CLAIM_BYTES * len(claims)
            yield Piece(commands, len(now) + CLAIM_ELEMENTS * len(claims), size)
        if covered is None and ended:
            return
        position = id_after(covered if covered is not None else last)  # type: ignore[arg-type]


async def _entries(key: Key, position: StreamId, count: int) -> list[Entry]:
    (reply,) = await key.ask(("XRANGE", key.name, write_id(position), "+", "COUNT", count))
    entries = [(parse_id(entry), fields) for entry, fields in reply]
    key.cutter.read(len(entries), sum(bytes_of(fields) for _, fields in entries), key.held)
    return entries


def _written(key: Key, entries: list[Entry], claims: list[Claim]) -> list[bytes]:
    """Commands that add entries and make some pending; the last ones remove pending entries that were deleted."""
    there = {entry for entry, _ in entries}
    deleted = sorted({claim.entry for claim in claims} - there)
    merged = entries
    if deleted:
        merged = sorted([*entries, *((entry, [b"", b""]) for entry in deleted)])
    commands = [pack("XADD", key.temporary, write_id(entry), *fields) for entry, fields in merged]
    together: dict[tuple[bytes, bytes, int, int], list[bytes]] = {}
    for claim in claims:
        together.setdefault((claim.group, claim.consumer, claim.delivered, claim.deliveries), []).append(
            write_id(claim.entry)
        )
    for (group, consumer, delivered, deliveries), ids in together.items():
        options = ("TIME", delivered, "RETRYCOUNT", deliveries, "FORCE", "JUSTID")
        commands.append(pack("XCLAIM", key.temporary, group, consumer, 0, *ids, *options))
    if deleted:
        commands.append(pack("XDEL", key.temporary, *map(write_id, deleted)))
    return commands


async def _counters(key: Key, state: dict[bytes, object], groups: list[Group]) -> list[bytes]:
    """Commands that set the stream's last id, and the counters of servers from Redis 7.0 on."""
    last = state[b"last-generated-id"]
    assert isinstance(last, bytes)
    if not await _counts_entries(key.target):
        return [pack("XSETID", key.temporary, last)]
    added = state.get(b"entries-added")
    counted = isinstance(added, int)
    options: list[str | bytes | int] = ["ENTRIESADDED", added if isinstance(added, int) else key.length]
    deleted = state.get(b"max-deleted-entry-id")
    if isinstance(deleted, bytes) and deleted != b"0-0":
        options += ["MAXDELETEDID", deleted]
    commands = [pack("XSETID", key.temporary, last, *options)]
    first = await _entries(key, (0, 0), 1) if not counted else []
    for group in groups:
        read = group.entries_read if counted else _estimated(group, first[0][0] if first else None, last, key.length)
        commands.append(pack("XGROUP", "SETID", key.temporary, group.name, group.last_id, "ENTRIESREAD", read))
    return commands


async def _counts_entries(server: Connection) -> bool:
    """Whether a server counts entries added and read: its XSETID then takes more than two arguments."""
    (about,) = await server.call("COMMAND", "INFO", "XSETID")
    return bool(about) and about[1] < 0


def _estimated(group: Group, first: StreamId | None, last: bytes, length: int) -> int:
    """How many entries a group has read, as Redis 7.0 estimates it when it loads a stream of an older server.

    -1 where it cannot be known. Source: ``streamEstimateDistanceFromFirstEverEntry`` in Redis' t_stream.c.
    """
    at = parse_id(group.last_id)
    if first is None:
        return 0
    if at == parse_id(last):
        return length
    if at < first:
        return 0
    return 1 if at == first else -1
