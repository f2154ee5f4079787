"""Streams: entries with their ids, groups, consumers, pending entries, and the counters a stream keeps.

Entries and pending entries are read side by side, in the order of ids, and written together. For a pending entry that
was deleted there is a stand-in (:mod:`migrator.pieces.stream_commands`). Before the first entry it is removed by XTRIM,
which leaves no trace, elsewhere by XDEL. The final XSETID corrects the counters of XDEL, like all others.

One value starts again, because no command sets it: when a consumer was last seen. Delivery times are those of the
source's clock, to the millisecond.
"""

from __future__ import annotations

from migrator.connection import pack
from migrator.errors import CopyLost
from migrator.pieces.abilities import counts_entries
from migrator.pieces.piece import Key, Piece, Pieces, bytes_of
from migrator.pieces.stream_commands import (
    CLAIM_ELEMENTS,
    STAND_IN,
    Claim,
    claim_commands,
    estimate_read,
    make_empty,
    set_last_id,
)
from migrator.pieces.stream_groups import Group, read_groups, read_pending
from migrator.pieces.stream_ids import LAST, StreamId, id_after, parse_id, write_id

Entry = tuple[StreamId, list[bytes]]

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
    if not groups:
        return make_empty(key.temporary)
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
        merged = sorted([*entries, *((entry, [*STAND_IN]) for entry in deleted)])
    commands = [pack("XADD", key.temporary, write_id(entry), *fields) for entry, fields in merged]
    commands += claim_commands(key.temporary, claims)
    if deleted:
        commands.append(pack("XDEL", key.temporary, *map(write_id, deleted)))
    return commands


async def _counters(key: Key, state: dict[bytes, object], groups: list[Group]) -> list[bytes]:
    """Commands that set the stream's last id, and the counters of servers from Redis 7.0 on."""
    last = _id(state, b"last-generated-id")
    assert last is not None
    if not await counts_entries(key.target):
        return [set_last_id(key.temporary, last, None, None)]
    added = state.get(b"entries-added")
    counted = isinstance(added, int)
    commands = [
        set_last_id(
            key.temporary, last, added if isinstance(added, int) else key.length, _id(state, b"max-deleted-entry-id")
        )
    ]
    first = await _entries(key, (0, 0), 1) if not counted else []
    for group in groups:
        at = parse_id(group.last_id)
        read = group.entries_read if counted else estimate_read(at, first[0][0] if first else None, last, key.length)
        commands.append(pack("XGROUP", "SETID", key.temporary, group.name, group.last_id, "ENTRIESREAD", read))
    return commands


def _id(state: dict[bytes, object], what: bytes) -> StreamId | None:
    text = state.get(what)
    return parse_id(text) if isinstance(text, bytes) else None
