"""Streams: entries with their ids, then groups with consumers and pending entries, then the counters.

A snapshot tells pending entries after all entries. One that was deleted needs a stand-in
(:mod:`migrator.pieces.stream_commands`), which has to be added at its place among the entries, because ids only grow.
So a stream is read twice: first for the ids of pending entries, then for all of it. Those that have no entry get a
stand-in, which stays until all entries are claimed. Before the first entry stand-ins are removed by XTRIM, which leaves
no trace, elsewhere by XDEL. The final XSETID corrects the counters, which these commands have changed.

Pending entries keep owner, count and time of delivery, by the source's clock. A time that the target's clock has not
reached yet becomes the target's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from migrator.connection import pack
from migrator.errors import CannotBeCut
from migrator.pieces.abilities import Abilities
from migrator.pieces.piece import Piece
from migrator.pieces.stream_commands import (
    CLAIM_ELEMENTS,
    STAND_IN,
    Claim,
    claim_commands,
    estimate_read,
    make_empty,
    set_last_id,
)
from migrator.pieces.stream_ids import StreamId, write_id
from migrator.stream.values.cutting import Limits, cut
from migrator.stream.values.pending import GroupPending, Ids, pending_ids
from rdb.elements import Consumer, Counters, Element, Entry, Group, Owned, Pending

CLAIMED_AT_ONCE = 16
"""Pending entries that one command claims or deletes."""

Weighed = tuple[bytes, int]
"""A packed command and how many elements it counts for."""


def pieces(
    opened: Callable[[], Iterator[Element]], name: bytes, limits: Limits, abilities: Abilities
) -> Iterator[Piece]:
    """The pieces of a stream.

    Raises:
        CannotBeCut: there are too many pending entries, or some that no consumer has.
    """
    commands = _Stream(name, limits, abilities).commands(opened)
    for some, number, size in cut(commands, limits, lambda command: (command[1], len(command[0]))):
        yield Piece([command for command, _ in some], number, size)


@dataclass(slots=True)
class _Stream:
    """A stream on its way.

    Attributes:
        first: the id of its first entry.
        length: entries so far.
        early: stand-ins before the first entry.
        late: the other stand-ins.
        counters: of the source.
        group: the last one that was told, with its pending entries.
    """

    name: bytes
    limits: Limits
    abilities: Abilities
    first: StreamId | None = None
    length: int = 0
    early: int = 0
    late: Ids = field(default_factory=Ids)
    counters: Counters | None = None
    group: Group | None = None
    pending: GroupPending = field(default_factory=GroupPending)

    def commands(self, opened: Callable[[], Iterator[Element]]) -> Iterator[Weighed]:
        """All commands."""
        missing = pending_ids(opened(), self.name)
        lowest = next(missing, None)  # of the pending entries that are not among the entries so far
        consumer = b""
        claims: list[Claim] = []
        for element in opened():
            if isinstance(element, Owned):
                claims.append(self._claim(consumer, element))
                if len(claims) < self._at_once():
                    continue
            if claims:
                yield from self._claimed(claims)
                claims = []
            if isinstance(element, Entry):
                while lowest is not None and lowest < element.id:
                    yield self._stand_in(lowest)
                    lowest = next(missing, None)
                if lowest == element.id:
                    lowest = next(missing, None)
                if self.first is None:
                    self.first = element.id
                self.length += 1
                yield pack("XADD", self.name, write_id(element.id), *element.fields), 1
            elif isinstance(element, Counters):
                while lowest is not None:
                    yield self._stand_in(lowest)
                    lowest = next(missing, None)
                self.counters = element
                yield from self._counted()
            elif isinstance(element, Group):
                self._group_ended()
                self.group = element
                yield self._group_made(element), 1
            elif isinstance(element, Pending):
                self.pending.add(element)
            elif isinstance(element, Consumer):
                consumer = element.name
                if self.abilities.makes_consumers:
                    yield pack("XGROUP", "CREATECONSUMER", self.name, self._group().name, consumer), 1
        yield from self._claimed(claims)
        self._group_ended()
        yield from self._removed()

    def _stand_in(self, entry: StreamId) -> Weighed:
        if self.first is None:
            self.early += 1
        else:
            self.late.append(entry)
        return pack("XADD", self.name, write_id(entry), *STAND_IN), 1

    def _counted(self) -> Iterator[Weighed]:
        """Commands behind the last entry. They count the stand-ins, if there are any."""
        stand_ins = self.early + len(self.late)
        if not self.length + stand_ins:
            for command in make_empty(self.name):
                yield command, 1
        yield self._last_id(self.length + stand_ins, most_deleted=not stand_ins), 1

    def _removed(self) -> Iterator[Weighed]:
        """Commands that remove the stand-ins."""
        if not self.early and not self.late:
            return
        some: list[bytes] = []
        for entry in self.late:
            some.append(write_id(entry))
            if len(some) >= self._at_once():
                yield pack("XDEL", self.name, *some), len(some) * CLAIM_ELEMENTS
                some = []
        if some:
            yield pack("XDEL", self.name, *some), len(some) * CLAIM_ELEMENTS
        while self.early:
            number = min(self.early, max(1, self.limits.most_elements))
            self.early -= number
            yield pack("XTRIM", self.name, "MAXLEN", self.length + self.early), number
        yield self._last_id(self.length, most_deleted=True), 1

    def _last_id(self, least_added: int, *, most_deleted: bool) -> bytes:
        assert self.counters is not None
        added = None
        if self.abilities.counts_entries:
            # An older source does not count; then Redis takes those that are there.
            added = max(least_added, self.counters.entries_added or 0)
        return set_last_id(
            self.name, self.counters.last_id, added, self.counters.most_deleted_id if most_deleted else None
        )

    def _group_made(self, group: Group) -> bytes:
        options: list[str | int] = []
        if self.abilities.counts_entries:
            assert self.counters is not None
            read = group.entries_read
            if read is None:
                read = estimate_read(group.last_id, self.first, self.counters.last_id, self.length)
            options = ["ENTRIESREAD", read]
        return pack("XGROUP", "CREATE", self.name, group.name, write_id(group.last_id), *options)

    def _group(self) -> Group:
        assert self.group is not None
        return self.group

    def _claim(self, consumer: bytes, owned: Owned) -> Claim:
        group = self._group().name
        try:
            delivered, deliveries = self.pending.find(owned)
        except KeyError:
            raise CannotBeCut(
                f"consumer {consumer!r} of group {group!r} of stream {self.name!r} has an entry that is not pending",
                "look at the source's snapshot: its file is damaged",
            ) from None
        return Claim(owned.id, group, consumer, delivered, deliveries)

    def _claimed(self, claims: list[Claim]) -> Iterator[Weighed]:
        commands = claim_commands(self.name, claims)
        for command in commands:
            yield command, max(1, len(claims) * CLAIM_ELEMENTS // len(commands))

    def _group_ended(self) -> None:
        if self.pending.left:
            raise CannotBeCut(
                f"{self.pending.left} entries of group {self._group().name!r} of stream {self.name!r} are pending for "
                "no consumer, which no command can say"
            )
        self.pending = GroupPending()

    def _at_once(self) -> int:
        return max(1, min(CLAIMED_AT_ONCE, self.limits.most_elements // CLAIM_ELEMENTS))
