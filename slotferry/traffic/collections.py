"""Keys of several elements: hashes, lists, sets, sorted sets, streams.

Each key goes through rounds of ``period`` versions. First it is absent, then one command makes it whole, then small
writes follow. The reply to each follows from the version before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slotferry.traffic.content import (
    Argument,
    ReadCall,
    WriteCall,
    as_mapping,
    as_members,
    as_score,
    as_scores,
    chunks,
    mixed_size,
    name_of,
)

_ELEMENT_BYTES = 32
_LIMIT = 512
"""The number of elements of the biggest key; a bigger size makes the elements longer."""


@dataclass(frozen=True, slots=True)
class Collection:
    """The common part of this module's kinds: rounds, and the elements at the start of a round."""

    period: int = 12
    size: Callable[[int], int] = mixed_size

    def present(self, version: int) -> bool:
        """Whether the key exists at this version."""
        return version % self.period != 0

    def count(self, index: int) -> int:
        """The number of elements at the start of a round, at least 2."""
        return min(_LIMIT, max(2, self.size(index) // _ELEMENT_BYTES))

    def element(self, index: int, version: int, place: int) -> bytes:
        """An element of the round of ``version``; ``place`` counts the first elements, negative places are new ones."""
        return self._chunks(index, version, (place,))[0]

    def elements(self, index: int, version: int) -> list[bytes]:
        """The elements at the start of the round."""
        return self._chunks(index, version, range(self.count(index)))

    def _chunks(self, index: int, version: int, places: Sequence[int]) -> list[bytes]:
        size = max(_ELEMENT_BYTES, self.size(index) // _LIMIT)
        # New elements have negative places, down to minus the period; the sum counts from 0.
        moved = places if not places or places[0] >= 0 else [_LIMIT - place for place in places]
        return chunks((index << 16) + version // self.period, moved, size)

    def step(self, version: int) -> int:
        """The place in its round of the write that made this version: 0 removed the key, 1 made it."""
        return version % self.period


class Hash(Collection):
    """Hashes: fields added, overwritten and deleted."""

    def content(self, index: int, version: int) -> dict[bytes, bytes]:
        """Fields and values; empty when absent."""
        if not self.present(version):
            return {}
        fields = {b"f%d" % place: value for place, value in enumerate(self.elements(index, version))}
        for step in range(2, self.step(version) + 1):
            if step % 3 == 2:
                fields[b"new%d" % step] = self.element(index, version, -step)
            elif step % 3 == 0:
                fields[b"f0"] = self.element(index, version, -step)
            else:
                fields.pop(b"f%d" % step, None)
        return fields

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self.step(version)
        if step == 0:
            return WriteCall((b"DEL", name), 1)
        if step == 1:
            flat: list[Argument] = [part for pair in self.content(index, version).items() for part in pair]
            return WriteCall((b"HSET", name, *flat), len(flat) // 2)
        value = self.element(index, version, -step)
        if step % 3 == 2:
            return WriteCall((b"HSET", name, b"new%d" % step, value), 1)
        if step % 3 == 0:
            return WriteCall((b"HSET", name, b"f0", value), 0)
        return WriteCall((b"HDEL", name, b"f%d" % step), int(step < self.count(index)))

    def whole(self, index: int) -> ReadCall:
        return ReadCall((b"HGETALL", name_of(index)), lambda version: self.content(index, version), as_mapping)

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        match choice % 3:
            case 0:
                return ReadCall((b"HLEN", name), lambda version: len(self.content(index, version)))
            case 1:
                field = b"f%d" % (choice // 3 % self.count(index))
                return ReadCall((b"HGET", name, field), lambda version: self.content(index, version).get(field))
            case _:
                return ReadCall(
                    (b"HMGET", name, b"f0", b"new2", b"f1"),
                    lambda version: [self.content(index, version).get(field) for field in (b"f0", b"new2", b"f1")],
                )


class List(Collection):
    """Lists: elements pushed and popped at both ends. A lost, doubled or misplaced element shows."""

    def content(self, index: int, version: int) -> list[bytes]:
        """Elements in their order; empty when absent."""
        if not self.present(version):
            return []
        elements = self.elements(index, version)
        for step in range(2, self.step(version) + 1):
            match step % 4:
                case 2:
                    elements.append(self.element(index, version, -step))
                case 3:
                    elements.insert(0, self.element(index, version, -step))
                case 0:
                    elements.pop(0)
                case _:
                    elements.pop()
        return elements

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self.step(version)
        if step == 0:
            return WriteCall((b"UNLINK", name), 1)
        if step == 1:
            return WriteCall((b"RPUSH", name, *self.elements(index, version)), self.count(index))
        match step % 4:
            case 2:
                return WriteCall((b"RPUSH", name, self.element(index, version, -step)), self._length(index, version))
            case 3:
                return WriteCall((b"LPUSH", name, self.element(index, version, -step)), self._length(index, version))
            case 0:
                return WriteCall((b"LPOP", name), self.content(index, version - 1)[0])
            case _:
                return WriteCall((b"RPOP", name), self.content(index, version - 1)[-1])

    def _length(self, index: int, version: int) -> int:
        return len(self.content(index, version))

    def whole(self, index: int) -> ReadCall:
        return ReadCall((b"LRANGE", name_of(index), 0, -1), lambda version: self.content(index, version))

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        match choice % 3:
            case 0:
                return ReadCall((b"LLEN", name), lambda version: self._length(index, version))
            case 1:
                return ReadCall(
                    (b"LINDEX", name, -1), lambda version: next(reversed(self.content(index, version)), None)
                )
            case _:
                return ReadCall((b"LRANGE", name, 0, 1), lambda version: self.content(index, version)[:2])


class Set(Collection):
    """Sets: members added and removed."""

    def content(self, index: int, version: int) -> list[bytes]:
        """Members, sorted as bytes; empty when absent."""
        if not self.present(version):
            return []
        members = set(self.elements(index, version))
        for step in range(2, self.step(version) + 1):
            if step % 2 == 0:
                members.add(self.element(index, version, -step))
            else:
                members.discard(self.element(index, version, 1 - step))
        return sorted(members)

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self.step(version)
        if step == 0:
            return WriteCall((b"DEL", name), 1)
        if step == 1:
            return WriteCall((b"SADD", name, *self.elements(index, version)), self.count(index))
        if step % 2 == 0:
            return WriteCall((b"SADD", name, self.element(index, version, -step)), 1)
        return WriteCall((b"SREM", name, self.element(index, version, 1 - step)), 1)

    def whole(self, index: int) -> ReadCall:
        return ReadCall((b"SMEMBERS", name_of(index)), lambda version: self.content(index, version), as_members)

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        if choice % 2:
            return ReadCall((b"SCARD", name), lambda version: len(self.content(index, version)))
        # Members of later rounds and steps are asked for as often as present ones.
        asked = self.element(index, 1, choice // 2 % self.count(index))
        return ReadCall((b"SISMEMBER", name, asked), lambda version: int(asked in self.content(index, version)))


class SortedSet(Collection):
    """Sorted sets: members added, removed, and their scores raised."""

    def content(self, index: int, version: int) -> list[tuple[bytes, float]]:
        """Members with scores in ZRANGE's order; empty when absent."""
        if not self.present(version):
            return []
        scores = {member: place / 2 for place, member in enumerate(self.elements(index, version))}
        first = self.element(index, version, 0)
        for step in range(2, self.step(version) + 1):
            if step % 3 == 2:
                scores[self.element(index, version, -step)] = step + 0.25
            elif step % 3 == 0:
                scores[first] += 1.5
            else:
                scores.pop(self.element(index, version, 2 - step), None)
        return sorted(scores.items(), key=lambda item: (item[1], item[0]))

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self.step(version)
        if step == 0:
            return WriteCall((b"DEL", name), 1)
        if step == 1:
            flat: list[Argument] = []
            for member, score in self.content(index, version):
                flat += [b"%g" % score, member]
            return WriteCall((b"ZADD", name, *flat), self.count(index))
        if step % 3 == 2:
            return WriteCall((b"ZADD", name, b"%g" % (step + 0.25), self.element(index, version, -step)), 1)
        if step % 3 == 0:
            first = self.element(index, version, 0)
            return WriteCall((b"ZINCRBY", name, b"1.5", first), dict(self.content(index, version))[first], as_score)
        return WriteCall((b"ZREM", name, self.element(index, version, 2 - step)), 1)

    def whole(self, index: int) -> ReadCall:
        return ReadCall(
            (b"ZRANGE", name_of(index), 0, -1, b"WITHSCORES"), lambda version: self.content(index, version), as_scores
        )

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        if choice % 2:
            return ReadCall((b"ZCARD", name), lambda version: len(self.content(index, version)))
        asked = self.element(index, 1, choice // 2 % self.count(index))
        return ReadCall(
            (b"ZSCORE", name, asked), lambda version: dict(self.content(index, version)).get(asked), as_score
        )


class Stream(Collection):
    """Streams: entries with our own ids, added and deleted."""

    def content(self, index: int, version: int) -> list[list[Any]]:
        """Entries in XRANGE's form: ``[[id, [field, value, ...]], ...]``; empty when absent."""
        if not self.present(version):
            return []
        steps = {1: self._first(index, version)}
        for step in range(2, self.step(version) + 1):
            if step % 4 == 0:
                del steps[step - 1]
            else:
                steps[step] = [b"n", b"%d" % step, b"v", self.element(index, version, -step)]
        return [[self._id(version, step), fields] for step, fields in steps.items()]

    def _first(self, index: int, version: int) -> list[bytes]:
        return [part for place, e in enumerate(self.elements(index, version)) for part in (b"f%d" % place, e)]

    def _id(self, version: int, step: int) -> bytes:
        return b"%d-%d" % (version // self.period + 1, step)

    def write(self, index: int, version: int) -> WriteCall:
        name, step = name_of(index), self.step(version)
        if step == 0:
            return WriteCall((b"DEL", name), 1)
        if step % 4 == 0:
            return WriteCall((b"XDEL", name, self._id(version, step - 1)), 1)
        fields = (
            self._first(index, version)
            if step == 1
            else [b"n", b"%d" % step, b"v", self.element(index, version, -step)]
        )
        return WriteCall((b"XADD", name, self._id(version, step), *fields), self._id(version, step))

    def whole(self, index: int) -> ReadCall:
        return ReadCall((b"XRANGE", name_of(index), b"-", b"+"), lambda version: self.content(index, version))

    def part(self, index: int, choice: int) -> ReadCall:
        name = name_of(index)
        if choice % 2:
            return ReadCall((b"XLEN", name), lambda version: len(self.content(index, version)))
        return ReadCall(
            (b"XREVRANGE", name, b"+", b"-", b"COUNT", 1), lambda version: self.content(index, version)[-1:]
        )
