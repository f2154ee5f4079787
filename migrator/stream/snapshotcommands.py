"""Makes of a snapshot what targets take that do not read its payloads: commands, those of many small values in a batch.

It stands before a :class:`~migrator.stream.snapshotfilter.SnapshotFilter` that gives all values of such copies as their
elements. A value of one piece goes into the open batch of its copy, under its own name and with its deadline; so it is
there as a whole or not at all. A larger one stays a :class:`~migrator.stream.snapshotfilter.BigKey`.

As of RESTORE, a key that stands at the target shows that something is wrong: its first command is an error.

**bounded**: the elements of one value are held up to a piece's limits, and one more. A batch keeps to the filter's
limits of keys and of work, and to ``most_bytes``, unless it has only one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from migrator.connection import pack
from migrator.pieces.piece import Piece
from migrator.stream.batches import Batch
from migrator.stream.snapshotfilter import BigKey, SnapshotFilter
from migrator.stream.values.atonce import one_piece, require_type
from migrator.stream.values.cutting import BESIDE, Limits
from migrator.stream.words import Words
from rdb.elements import Element, Entry, Field

COMMAND_WORK, ELEMENT_WORK = 12, 5
"""Work of a command and of an element that it adds, as the filter counts work."""
WORK_BYTES = 128
"""Bytes that are one work."""


@dataclass(slots=True)
class _Open:
    """An open batch."""

    commands: list[bytes] = field(default_factory=list)
    size: int = 0
    keys: int = 0
    work: int = 0
    deadlines: list[tuple[int, bytes]] = field(default_factory=list)
    withheld: list[bytes] = field(default_factory=list)


class SnapshotCommands:
    """Iterates over what the filter gives, in which small values of some copies are commands in batches.

    Args:
        found: the filter, made with ``apart`` for the copies of ``words``. Its limits may be changed meanwhile.
        words: of the targets of these copies, by the copies' numbers.
        most_bytes: of the commands in a batch.
        placeholder_ms: the deadline of keys whose own is withheld.

    Raises:
        CannotBeCut: no commands can make a value, or not at its target.
        RdbError: as the filter does.
    """

    def __init__(
        self, found: SnapshotFilter, words: Mapping[int, Words], *, most_bytes: int, placeholder_ms: int
    ) -> None:
        self._found = found
        self._words = words
        self._most_bytes = most_bytes
        self._placeholder_ms = placeholder_ms
        self._limits = Limits()
        self._database = 0
        self._open = {number: _Open() for number in words}
        self._ready: list[Batch | BigKey] = []
        self._held: list[Element] = []
        self._rest: Iterator[Element] | None = None
        self._ended = False

    def __iter__(self) -> Iterator[Batch | BigKey]:
        return self

    def __next__(self) -> Batch | BigKey:
        while not self._ready and not self._ended:
            one = next(self._found, None)
            if one is None:
                self._ended = True
                self._close_all()
            elif isinstance(one, BigKey) and one.copy in self._words:
                self._take(one)
            else:
                self._rest = None
                self._ready.append(one)
        if not self._ready:
            raise StopIteration
        return self._ready.pop(0)

    def elements(self) -> Iterator[Element]:
        """The elements of the last big key, once; see :meth:`SnapshotFilter.elements`."""
        return self._found.elements() if self._rest is None else chain(self._held, self._rest)

    def _take(self, key: BigKey) -> None:
        words = self._words[key.copy]
        require_type(key.type, key.database, key.name, words.target)
        # Where fields have no deadlines, the first one is an error; so none is left out.
        key = key._replace(fields_expire=key.fields_expire and words.abilities.field_deadlines)
        if key.database != self._database:
            self._close_all()
            self._database = key.database
        self._rest = None
        piece = None if key.fields_expire else self._whole(key, words)
        if piece is None:
            self._close(key.copy)
            self._ready.append(key)
        else:
            self._add(key, piece)

    def _whole(self, key: BigKey, words: Words) -> Piece | None:
        """The piece that makes a value; None if there are several."""
        self._held, self._rest = [], self._found.elements()
        size = 0
        for element in self._rest:
            self._held.append(element)
            size += _size(element)
            if size > self._limits.most_bytes or len(self._held) > self._limits.most_elements:
                return None
        return one_piece(key.type, self._held, key.name, self._limits, words.target, words.abilities)

    def _add(self, key: BigKey, piece: Piece) -> None:
        commands = list(piece.commands)
        deadline = key.deadline_ms
        withheld = deadline is not None and (deadline <= self._found.withheld_until_ms or deadline <= 0)
        if deadline is not None:
            commands.append(pack("PEXPIREAT", key.name, self._placeholder_ms if withheld else deadline))
        size = sum(map(len, commands))
        work = COMMAND_WORK * len(commands) + ELEMENT_WORK * piece.elements + size // WORK_BYTES
        batch = self._open[key.copy]
        if batch.keys and (batch.size + size > self._most_bytes or batch.work + work > self._found.most_work):
            self._close(key.copy)
            batch = self._open[key.copy]
        batch.commands += commands
        batch.size += size
        batch.keys += 1
        batch.work += work
        if withheld:
            batch.withheld.append(key.name)
        elif deadline is not None and deadline <= self._found.noted_until_ms:
            batch.deadlines.append((deadline, key.name))
        if batch.keys >= self._found.most_keys:
            self._close(key.copy)

    def _close_all(self) -> None:
        for number in self._open:
            self._close(number)

    def _close(self, number: int) -> None:
        batch = self._open[number]
        if batch.keys:
            self._open[number] = _Open()
            self._ready.append(
                Batch(
                    number,
                    self._database,
                    b"".join(batch.commands),
                    len(batch.commands),
                    batch.keys,
                    batch.deadlines,
                    batch.withheld,
                )
            )


def _size(element: Element) -> int:
    """About its bytes in a command."""
    if isinstance(element, bytes):
        return len(element) + BESIDE
    if isinstance(element, Field):
        return len(element.name) + len(element.value) + 2 * BESIDE
    if isinstance(element, Entry):
        return sum(map(len, element.fields)) + BESIDE * (1 + len(element.fields))
    return sum(len(part) if isinstance(part, bytes) else 0 for part in element) + 2 * BESIDE
