"""The sources of the sessions' requests: the load, the mixed traffic, the comparison at the end."""

from collections.abc import Iterator
from time import monotonic
from typing import Protocol

from slotferry.traffic.content import Kind, Text
from slotferry.traffic.keys import Keys
from slotferry.traffic.requests import CountMany, Read, ReadMany, ReadOwnWrite, Request, Resolve, Write, WriteMany

BATCH = 64
"""Requests in a pipeline of the load and of the comparison."""


class Source(Protocol):
    """Gives a session its next pipeline."""

    def next_batch(self, database: int) -> list[Request] | None:
        """Requests to send together; None when there are none left."""


class Load:
    """Writes the first version of every key."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._left: dict[int, Iterator[int]] = {database: keys.indices(database) for database in keys.databases}
        self.given = 0
        """The number of keys handed out so far."""

    def next_batch(self, database: int) -> list[Request] | None:
        batch: list[Request] = []
        for index in self._left[database]:
            if self._keys.at_rest(index):
                batch.append(Write(self._keys, index))
            if len(batch) == BATCH:
                break
        self.given += len(batch)
        return batch or None


class Compare:
    """Reads every key as a whole, and checks whether strings have their TTL."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._left: dict[int, Iterator[int]] = {database: keys.indices(database) for database in keys.databases}
        self.given = 0
        """The number of keys handed out so far."""

    def next_batch(self, database: int) -> list[Request] | None:
        batch: list[Request] = []
        for index in self._left[database]:
            kind = self._keys.kind_of(index)
            batch.append(Read(self._keys, index, kind.whole(index)))
            if isinstance(kind, Text):
                batch.append(Read(self._keys, index, kind.ttl(index)))
            self.given += 1
            if len(batch) >= BATCH:
                break
        return batch or None


class Mixed:
    """Reads and writes of every sort, single and in pipelines, over one key and over several."""

    def __init__(self, keys: Keys, writes: float = 0.3, pipeline: int = 8) -> None:
        """
        Args:
            writes: share of requests that write, 0 to 1.
            pipeline: the longest pipeline; 1 sends every request by itself.
        """
        self._keys = keys
        self._writes = writes
        self._pipeline = pipeline
        self._random = keys.random.random

    def next_batch(self, database: int) -> list[Request] | None:
        doubt = self._doubt(database) if self._keys.doubtful else None
        if doubt is not None:
            return [doubt]
        if self._pipeline > 1 and self._random() < 0.15:
            return self._many(database, 2 + int(self._random() * (self._pipeline - 1)))
        draw = self._random()
        if draw < 0.06:
            several = self._several(database, draw)
            if several is not None:
                return [several]
        return [self._one(database)]

    def _one(self, database: int) -> Request:
        keys = self._keys
        index = keys.pick(database)
        if self._random() < self._writes and keys.at_rest(index):
            return Write(keys, index)
        return self._read(index, keys.kind_of(index))

    def _read(self, index: int, kind: Kind) -> Read:
        draw = self._random()
        call = kind.whole(index) if draw < 0.4 else kind.part(index, int(draw * 1_000_003))
        return Read(self._keys, index, call)

    def _many(self, database: int, count: int) -> list[Request]:
        batch: list[Request] = []
        while len(batch) < count:
            request = self._one(database)
            batch.append(request)
            if isinstance(request, Write) and self._random() < 0.5:
                kind = self._keys.kind_of(request.index)
                batch.append(ReadOwnWrite(self._keys, request, kind.whole(request.index)))
        return batch

    def _several(self, database: int, draw: float) -> Request | None:
        """A command over several strings; None if too few may be written in this way."""
        keys = self._keys
        picked = {keys.pick(database) for _ in range(12)}
        if draw < 0.01:
            return CountMany(keys, sorted(picked))
        texts = {index: kind for index in picked if isinstance(kind := keys.kind_of(index), Text)}
        if draw < 0.03 + 0.03 * (1 - self._writes):
            return ReadMany(keys, sorted(texts)) if texts else None
        free = [index for index in texts if keys.at_rest(index)]
        removed = [index for index in free if not texts[index].present(keys.window(index)[0] + 1)]
        if removed and draw < 0.05:
            return WriteMany(keys, b"DEL", removed)
        plain = [
            index
            for index in free
            if texts[index].present(keys.window(index)[0] + 1) and not texts[index].has_ttl(keys.window(index)[0] + 1)
        ]
        return WriteMany(keys, b"MSET", plain) if plain else None

    def _doubt(self, database: int) -> Request | None:
        keys = self._keys
        now = monotonic()
        for index, due in keys.doubtful.items():
            if due <= now and keys.database_of(index) == database:
                # It is not requested again while a request for it is under way.
                keys.doubt(index, now + 60)
                return Resolve(keys, index, keys.kind_of(index).whole(index))
        return None
