"""One copy: some slots of a source, as the target has them while clients are at the source.

What the snapshot and the stream say comes in here in their order, and goes to the target in batches
(:mod:`migrator.stream.applying`). Within the lock, when nothing writes the keys any more, :meth:`Copy.settle` reads
from the source what the stream could not tell: the values of late keys (:mod:`migrator.stream.changes`) and the
deadlines that were withheld (:mod:`migrator.stream.deadlines`). Then the target has all that the source has.

**hidden**: the keys are of slots that the target does not own yet, so no proxy shows them.

**bounded**: a batch has at most :data:`BATCH_COMMANDS` commands and :data:`BATCH_BYTES`, and one command more. At most
:data:`MOST_LATE` keys are late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import hiredis

from migrator.connection import Connection, checked, pack
from migrator.errors import SourceUnavailable, unknown_command
from migrator.pace import Throttle
from migrator.pieces.abilities import Abilities
from migrator.pieces.deadlines import milliseconds
from migrator.progress import Progress
from migrator.stream.applying import Applier, CopyVoid, temporary_name
from migrator.stream.batches import Batch
from migrator.stream.changes import change_of, passes
from migrator.stream.deadlines import PLACEHOLDER_MS, Deadlines
from migrator.stream.errors import TooManyLate
from migrator.stream.snapshotfilter import BigKey
from migrator.stream.streamfile import now_ms
from migrator.stream.values.atonce import Room, replacing
from migrator.stream.values.cutting import Limits, LongCommand, cut
from migrator.stream.values.finishing import finish_commands
from migrator.stream.values.hashes import FieldDeadlines
from migrator.stream.values.making import pieces_of
from migrator.stream.words import GONE, Words, key_in_doubt
from rdb.elements import Element
from slots.keyslots import KeySlots
from slots.replies import integer
from slots.requests.reading import Requests
from slots.reserved import RESERVED

BATCH_COMMANDS, BATCH_BYTES = 200, 256 * 1024
HEAVY = frozenset(
    {
        *(b"BITOP", b"COPY", b"PFMERGE", b"SDIFFSTORE", b"SINTERSTORE", b"SUNIONSTORE"),
        *(b"GEORADIUS", b"GEORADIUSBYMEMBER", b"GEOSEARCHSTORE"),
        *(b"ZDIFFSTORE", b"ZINTERSTORE", b"ZRANGESTORE", b"ZUNIONSTORE"),
    }
)
"""Commands that may read whole collections. A target does nothing else while it runs a batch, so few are in one."""
TO_ANOTHER = frozenset({b"COPY", b"RENAME", b"RENAMENX"})
"""Commands that give a stream to another key."""
HEAVY_COMMANDS = 20
"""As many commands of a batch as one of these counts for."""
MOST_LATE = 1_000
"""Their values are read and written within the lock."""
LATE_BYTES = 4 << 20
"""Bytes of memory of all late keys together, as the source counts."""
LATE_STEP_BYTES = 1 << 20
"""Of a late key, and of those that are written at once: neither server is to be at them for more than 5 ms."""
LATE_ELEMENTS = 100_000
"""Elements of all late keys together, where their values go as commands: a list of small numbers has 400,000 in a
megabyte."""
SETTLING_KEYS = 500
"""Keys whose values or deadlines are read at once."""


class Copy:
    """One copy.

    Args:
        number: as in ``wanted``.
        wanted: the number of the copy of each slot; 0 for those of none. Others may change it.
        key_slots: of the product.
        applier: writes to the target.
        deadlines: of this copy.
        progress: counts the keys of the snapshot.
        abilities: of the target.
        connect: opens a connection to the source's master.
        clock: milliseconds since 1970.
        words: the target's; None if it is told everything as it comes.
    """

    def __init__(
        self,
        number: int,
        wanted: bytearray,
        key_slots: KeySlots,
        applier: Applier,
        deadlines: Deadlines,
        progress: Progress,
        abilities: Abilities,
        connect: Callable[[], Awaitable[Connection]],
        clock: Callable[[], int] = now_ms,
        words: Words | None = None,
    ) -> None:
        self.number = number
        self.words = words
        self.applier = applier
        self.deadlines = deadlines
        self._wanted = wanted
        self._key_slots = key_slots
        self._progress = progress
        self._abilities = abilities
        self._clock = clock
        self._connect = connect
        self._source: Connection | None = None
        self._late: set[tuple[int, bytes]] = set()
        self._late_bytes = 0
        self._late_room = Room(LATE_ELEMENTS)
        self._inexact: set[tuple[int, bytes]] = set()
        self._database = 0
        self._commands: list[bytes] = []
        self._in_doubt: list[tuple[int, bytes]] = []
        self._count = 0
        self._size = 0

    def moves(self, database: int, key: bytes) -> bool:
        """Whether the key is of a slot of this copy."""
        return not key.startswith(RESERVED) and self._wanted[self._key_slots.slot_of(database, key)] == self.number

    @property
    def temporary(self) -> bytes:
        """The name of a value that is not whole yet."""
        return temporary_name(self.applier.copy)

    @property
    def full(self) -> bool:
        """Whether the open batch has to be written before anything else comes in."""
        return self._count >= BATCH_COMMANDS or self._size >= BATCH_BYTES

    def ends_batch(self, database: int, name: bytes) -> bool:
        """Whether the open batch has to be written before a command of this name comes in, in this database. What its
        replies say of a key has to be known before that is copied to another one."""
        return bool(self._commands) and (database != self._database or (bool(self._in_doubt) and name in TO_ANOTHER))

    def follow(self, database: int, argv: list[bytes], arrived_ms: Callable[[], int], *, whole: bool = False) -> None:
        """Take in one command of the stream; :meth:`ends_batch` was asked before.

        Args:
            arrived_ms: gives when it came, in milliseconds since 1970.
            whole: whether all its keys are known to be of this copy.

        Raises:
            CannotFollow, CannotBeCut, TooManyLate, TooManyDeadlines: the copy has to be given up.
        """
        self._database = database
        if whole and passes(argv) and (database, argv[1]) not in self._late:
            said = argv if self.words is None else self.words.said(argv)
            if said is None:
                self._become_late((database, argv[1]))
            else:
                self._run(said)
            return
        change = change_of(
            argv,
            database,
            arrived_ms(),
            self.moves,
            lambda database, key: (database, key) in self._late,
        )
        if self.words is not None:
            change = self.words.change(change, argv, database)
        for late in change.late:
            self._become_late(late)
        for command in change.commands:
            self._run(command)
        if change.deadline is not None:
            key, deadline_ms = change.deadline
            if change.inexact:
                self._inexact.add((database, key))
            written = self.deadlines.written(database, key, deadline_ms, self._clock())
            self._add([b"PEXPIREAT", key, b"%d" % written])
        if change.carried is not None:
            # The deadline of the first key may be that of the second one now: it is withheld, whatever it is.
            for key in change.carried:
                self.deadlines.withhold(database, key)
                self._add([b"PEXPIREAT", key, b"%d" % PLACEHOLDER_MS])

    def _run(self, argv: Sequence[bytes]) -> None:
        name = argv[0].upper()
        if name in (b"DEL", b"UNLINK"):
            for key in argv[1:]:
                self.deadlines.gone(self._database, key)
            # What a large value held is freed beside other work.
            argv = [b"UNLINK", *argv[1:]]
        elif name in HEAVY:
            self._count += HEAVY_COMMANDS - 1
        elif name == b"EVAL" and (doubted := key_in_doubt(argv)) is not None:
            self._in_doubt.append((len(self._commands), doubted))
        self._add(argv)

    def _become_late(self, late: tuple[int, bytes]) -> None:
        self._late.add(late)
        if len(self._late) > MOST_LATE:
            raise TooManyLate(
                f"more than {MOST_LATE} keys of these slots are written in ways that the copy cannot follow",
                "these slots move in another way",
            )

    def _add(self, command: Sequence[bytes]) -> None:
        packed = pack(*command)
        self._commands.append(packed)
        self._count += 1
        self._size += len(packed)

    async def write(self, at: str) -> None:
        """Write the open batch. Raises TooManyLate, and as :meth:`Applier.apply`."""
        if self._commands:
            commands, self._commands, self._count, self._size = self._commands, [], 0, 0
            in_doubt, self._in_doubt = self._in_doubt, []
            replies = await self._apply(self._database, b"".join(commands), len(commands), at)
            for place, key in in_doubt:
                # level: there are no replies if the batch's outcome had to be asked for.
                if not replies or replies[place] == GONE:
                    self._become_late((self._database, key))

    async def correct(self, at: str) -> None:
        """Write the true deadlines of keys whose deadlines the stream does not tell exactly, if there are many.

        The source is asked, which may be ahead of the copy. What has changed a deadline since comes in the stream, and
        is written after this. So the caller lets nothing else of the stream be written meanwhile.

        Raises:
            TooManyDeadlines: the copy has to be given up.
            SourceUnavailable, SourceRefused: see there.
            MigrationError: as :meth:`Applier.apply`.
        """
        if len(self._inexact) < SETTLING_KEYS:
            return
        await self.write(at)
        keys, self._inexact = self._inexact.difference(self._late), set()
        for database, names in _by_database(keys).items():
            for start in range(0, len(names), SETTLING_KEYS):
                part = names[start : start + SETTLING_KEYS]
                commands = []
                for key, deadline_ms in zip(part, await self._ask_deadlines(database, part), strict=True):
                    if deadline_ms is not None and deadline_ms >= 0:
                        written = self.deadlines.written(database, key, deadline_ms, self._clock())
                        commands.append(pack("PEXPIREAT", key, written))
                await self._apply(database, b"".join(commands), len(commands), at)

    async def _ask_deadlines(self, database: int, keys: Sequence[bytes]) -> list[int | None]:
        if self._source is not None:
            try:
                await self._source.select(database)
                return await deadlines_of(self._source, keys)
            except SourceUnavailable:
                self._source.close()  # it was idle, perhaps, and the source closed it
        self._source = await self._connect()
        await self._source.select(database)
        return await deadlines_of(self._source, keys)

    async def restore(self, batch: Batch, at: str) -> None:
        """Write a batch of the snapshot.

        Raises:
            TooManyDeadlines: the copy has to be given up.
            CopyVoid: the target has one of the keys.
            MigrationError: as :meth:`Applier.apply`.
        """
        for key in batch.withheld:
            self.deadlines.withhold(batch.database, key)
        now = self._clock()
        # The batch may have waited for long, in a pause perhaps.
        overtaken = {
            key
            for deadline_ms, key in batch.deadlines
            if self.deadlines.written(batch.database, key, deadline_ms, now) != deadline_ms
        }
        commands = _withheld(batch.commands, overtaken) if overtaken else batch.commands
        replies = await self._apply(batch.database, commands, batch.count, at)
        if batch.looks and replies and replies[0] != 0:
            raise CopyVoid(
                f"{replies[0]!r:.20} of the {batch.keys} keys of a batch were at the target already: somebody else "
                "writes there"
            )
        self._progress.moved(batch.keys, len(batch.commands))

    async def make(self, big: BigKey, opened: Callable[[], Iterator[Element]], at: str, pace: Throttle) -> None:
        """Write a value of the snapshot in pieces. They are made in a thread, because the snapshot is read for them.

        Args:
            opened: gives the elements of the value.
            pace: how fast the pieces go.

        Raises:
            TooManyDeadlines: the copy has to be given up.
            CannotBeCut, CopyLost, RdbError: as :func:`migrator.stream.values.making.pieces_of`.
            MigrationError: as :meth:`Applier.apply`.
        """
        # A hash with deadlines of fields is late, so none is withheld here.
        none = FieldDeadlines(0, 0, PLACEHOLDER_MS)
        abilities = self._abilities
        target = f"the target of copy {self.applier.copy}"
        pieces = pieces_of(big.type, opened, self.temporary, Limits(), none, target=target, abilities=abilities)
        size = 0
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            size += piece.size
            await pace.admit(0, piece.size)
            if isinstance(piece, LongCommand):
                await self.applier.send(big.database, _in_thread(piece.parts))
            else:
                await self._apply(big.database, b"".join(piece.commands), len(piece.commands), at)
        deadline_ms = big.deadline_ms
        if deadline_ms is not None:
            deadline_ms = self.deadlines.written(big.database, big.name, deadline_ms, self._clock())
        commands = finish_commands(self.temporary, big.name, deadline_ms)
        await self._apply(big.database, b"".join(commands), len(commands), at)
        self._progress.moved(1, size)

    def become_late(self, database: int, key: bytes) -> None:
        """Read the key's value from the source within the lock. Raises :class:`TooManyLate`."""
        self._become_late((database, key))

    async def withhold_due(self, at: str) -> None:
        """Withhold the deadlines that are near. Once a second at least.

        Raises:
            DeadlineMissed, TooManyDeadlines: the copy has to be given up.
            MigrationError: as :meth:`Applier.apply`.
        """
        await self.write(at)
        due: dict[int, list[bytes]] = {}
        for database, key in self.deadlines.due(self._clock()):
            if not self.moves(database, key):
                continue  # its slot has switched: the key's deadline is its own
            due.setdefault(database, []).append(pack("PEXPIREAT", key, PLACEHOLDER_MS))
        for database, commands in due.items():
            for start in range(0, len(commands), BATCH_COMMANDS):
                part = commands[start : start + BATCH_COMMANDS]
                await self._apply(database, b"".join(part), len(part), at)
        self.deadlines.require_in_time(self._clock())

    async def _apply(self, database: int, commands: bytes, count: int, at: str) -> list[Any]:
        return await self.applier.apply(database, commands, count, at)

    async def settle(self, source: Connection, slots: Iterable[int], at: str) -> None:
        """Give the target what only the source knows of the keys of these slots. Nothing writes them meanwhile, and all
        of the stream that is about them was written.

        Raises:
            TooManyLate: late keys are larger than may be read within a lock.
            SourceUnavailable, SourceRefused: see there.
            MigrationError: as :meth:`Applier.apply`.
        """
        leaving = frozenset(slots)
        self._late_bytes = 0
        self._late_room = Room(LATE_ELEMENTS)
        await self.write(at)
        late = self._of(self._late, leaving)
        for database, keys in late.items():
            await source.select(database)
            for start in range(0, len(keys), SETTLING_KEYS):
                await self._settle_values(source, database, keys[start : start + SETTLING_KEYS], at)
        for database, keys in self._of(self._inexact.union(self.deadlines.withheld()), leaving).items():
            rest = sorted(set(keys).difference(late.get(database, ())))
            await source.select(database)
            for start in range(0, len(rest), SETTLING_KEYS):
                part = rest[start : start + SETTLING_KEYS]
                found = await deadlines_of(source, part)
                commands = [_with_deadline(key, at_ms) for key, at_ms in zip(part, found, strict=True)]
                await self._apply(database, b"".join(commands), len(commands), at)
        for database, key in [one for one in self._late if self._slot(*one) in leaving]:
            self._late.discard((database, key))
        self._inexact = {one for one in self._inexact if self._slot(*one) not in leaving}
        for database, key in [one for one in self.deadlines.withheld() if self._slot(*one) in leaving]:
            self.deadlines.gone(database, key)

    def _of(self, keys: Iterable[tuple[int, bytes]], slots: frozenset[int]) -> dict[int, list[bytes]]:
        """Those of these slots, by database."""
        return _by_database(one for one in keys if self._slot(*one) in slots)

    def _slot(self, database: int, key: bytes) -> int:
        return self._key_slots.slot_of(database, key)

    async def _settle_values(self, source: Connection, database: int, keys: list[bytes], at: str) -> None:
        """Write these late keys, a part at a time."""
        part: list[bytes] = []
        held = 0
        for key, size in zip(keys, await self._sizes_of(source, keys), strict=True):
            if part and held + size > LATE_STEP_BYTES:
                await self._settle_some(source, database, part, at)
                part, held = [], 0
            part.append(key)
            held += size
        await self._settle_some(source, database, part, at)

    async def _sizes_of(self, source: Connection, keys: list[bytes]) -> list[int]:
        replies = await source.send(b"".join(pack("MEMORY", "USAGE", key) for key in keys), len(keys))
        sizes = [one if isinstance(one, int) else 0 for one in checked(source, replies)]
        self._late_bytes += sum(sizes)
        for what, size, most in (
            ("keys that the copy could not follow have", self._late_bytes, LATE_BYTES),
            ("a key that the copy could not follow has", max(sizes), LATE_STEP_BYTES),
        ):
            if size > most:
                raise TooManyLate(
                    f"{what} {size} bytes at the source; within a lock no more than {most} are read",
                    "these slots move in another way",
                )
        return sizes

    async def _settle_some(self, source: Connection, database: int, keys: list[bytes], at: str) -> None:
        deadlines = await deadlines_of(source, keys)
        values = checked(source, await source.send(b"".join(pack("DUMP", key) for key in keys), len(keys)))
        if self.words is not None and not self.words.payloads:
            # Nobody sees the target's keys yet, so a value needs no other name while it is made.
            late = zip(keys, values, deadlines, strict=True)
            pieces = replacing(late, database, Limits(), self.words.target, self.words.abilities, self._late_room)
            parts = cut(pieces, Limits(), lambda piece: (piece.elements, piece.size))
            # The event loop has other copies and the connection to topom.
            while (part := await asyncio.to_thread(next, parts, None)) is not None:
                some, _, _ = part
                commands = [command for piece in some for command in piece.commands]
                await self._apply(database, b"".join(commands), len(commands), at)
            return
        commands = []
        for key, value, deadline_ms in zip(keys, values, deadlines, strict=True):
            if value is None or deadline_ms is None:
                commands.append(pack("UNLINK", key))
            elif deadline_ms < 0:
                commands.append(pack("RESTORE", key, 0, value, "REPLACE"))
            else:
                commands.append(pack("RESTORE", key, max(1, deadline_ms), value, "REPLACE", "ABSTTL"))
        await self._apply(database, b"".join(commands), len(commands), at)


def _by_database(keys: Iterable[tuple[int, bytes]]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for database, key in keys:
        found.setdefault(database, []).append(key)
    return found


async def _in_thread(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


def _withheld(commands: bytes, keys: Collection[bytes]) -> bytes:
    """Packed commands of the snapshot, in which these keys have the placeholder in place of their deadlines."""
    requests = Requests()
    requests.feed(commands)
    packed = []
    for argv, _ in requests:
        if argv[1] in keys and (argv[0] == b"PEXPIREAT" or (argv[0] == b"RESTORE" and argv[4:5] == [b"ABSTTL"])):
            argv[2] = b"%d" % PLACEHOLDER_MS
        packed.append(pack(*argv))
    return b"".join(packed)


def _with_deadline(key: bytes, deadline_ms: int | None) -> bytes:
    if deadline_ms is None:
        return pack("UNLINK", key)
    return pack("PERSIST", key) if deadline_ms < 0 else pack("PEXPIREAT", key, deadline_ms)


async def deadlines_of(server: Connection, keys: Sequence[bytes]) -> list[int | None]:
    """When keys expire, in milliseconds since 1970; -1 for never, None if there is no such key.

    Servers before Redis 7.0 have no PEXPIRETIME. There the remaining time counts from the clock right before, so the
    deadline may be early by as long as the server takes for these keys.
    """
    replies = await server.send(b"".join(pack("PEXPIRETIME", key) for key in keys), len(keys))
    if any(isinstance(reply, hiredis.ReplyError) and unknown_command(str(reply)) for reply in replies):
        clock, *left = checked(
            server, await server.send(pack("TIME") + b"".join(pack("PTTL", key) for key in keys), len(keys) + 1)
        )
        with server.understood("TIME"):
            now = milliseconds(clock)
        replies = [now + one if isinstance(one, int) and one >= 0 else one for one in left]
    with server.understood("PEXPIRETIME"):
        found = [integer(reply, least=-2) for reply in checked(server, replies)]
    return [None if one == -2 else one for one in found]
