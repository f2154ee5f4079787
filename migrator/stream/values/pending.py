"""Pending entries of a stream, held while the snapshot has not told all of them.

**bounded**: at most :data:`MOST_PENDING` of one stream, with 16 bytes each in :class:`PendingIds`, and 32 in
:class:`GroupPending`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge

from migrator.errors import CannotBeCut
from migrator.pieces.stream_ids import StreamId
from rdb.elements import Element, Group, Owned, Pending

MOST_PENDING = 1 << 20
"""Of all groups of one stream."""


class Ids:
    """Ids of entries in ascending order, 16 bytes each."""

    def __init__(self) -> None:
        self._numbers = array("Q")

    def append(self, entry: StreamId) -> None:
        """Add one."""
        self._numbers.extend(entry)

    def __len__(self) -> int:
        return len(self._numbers) // 2

    def __getitem__(self, index: int) -> StreamId:
        # Only from 0 on: so iteration ends.
        return self._numbers[2 * index], self._numbers[2 * index + 1]

    def __iter__(self) -> Iterator[StreamId]:
        numbers = iter(self._numbers)
        return zip(numbers, numbers, strict=True)


def pending_ids(elements: Iterable[Element], name: bytes) -> Iterator[StreamId]:
    """The ids of all pending entries in ascending order, each once.

    Raises:
        CannotBeCut: there are too many.
    """
    groups: list[Ids] = []
    number = 0
    for element in elements:
        if isinstance(element, Group):
            groups.append(Ids())
        elif isinstance(element, Pending):
            number += 1
            if number > MOST_PENDING:
                raise CannotBeCut(
                    f"the groups of stream {name!r} have more than {MOST_PENDING} pending entries together",
                    "acknowledge what is done with, or move its slot in another way",
                )
            groups[-1].append(element.id)
    return _unlike(merge(*groups))


def _unlike(ids: Iterable[StreamId]) -> Iterator[StreamId]:
    before = None
    for each in ids:
        if each != before:
            yield each
            before = each


class GroupPending:
    """The pending entries of one group, of which the snapshot tells the owners later."""

    def __init__(self) -> None:
        self._ids = Ids()
        self._delivered = array("q")
        self._deliveries = array("Q")
        self._owned = 0

    def add(self, pending: Pending) -> None:
        """The next one."""
        self._ids.append(pending.id)
        self._delivered.append(pending.delivered_ms)
        self._deliveries.append(pending.deliveries)

    def find(self, owned: Owned) -> tuple[int, int]:
        """When one was delivered, and how often. Raises KeyError."""
        index = bisect_left(self._ids, owned.id)
        if index == len(self._ids) or self._ids[index] != owned.id:
            raise KeyError(owned.id)
        self._owned += 1
        return self._delivered[index], self._deliveries[index]

    @property
    def left(self) -> int:
        """How many were not found yet."""
        return len(self._ids) - self._owned
