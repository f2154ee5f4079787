"""Keeps a copy from expiring by itself: at the target a deadline is far ahead until the slot has switched.

A key may lose its deadline, or get another one, right before the deadline comes. If the copy expired at its own time,
that word would come too late: the key would be gone. So a deadline that is near is *withheld*: the copy has the
placeholder :data:`PLACEHOLDER_MS` instead, and the source's DEL decides. Within the lock, when nothing writes the keys,
the true deadlines are read from the source.

Which keys have near deadlines need not be known exactly. A key that is withheld without need costs two commands within
the lock. So a note stays when its key gets another deadline, or none.

**bounded**: notes take :data:`MOST_NOTED` bytes at most, and :data:`MOST_WITHHELD` keys are withheld. A copy with more
is given up.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import MigrationError
from slots.kinds import Kind

MARGIN_MS = 3_000
"""A deadline is withheld so long before it comes. The clocks of this process and the target, and pauses of both, may
take a part of it."""
PLACEHOLDER_MS = 4_102_444_800_000
"""The deadline of a copy whose own one is withheld: the year 2100."""
MOST_NOTED = 64 << 20
"""Bytes."""
MOST_WITHHELD = 20_000
"""Their true deadlines are set within the lock, which takes tens of milliseconds."""
BUCKET_MS = 500
OVERHEAD = 64
"""Bytes of memory that a note takes besides its key."""


class TooManyDeadlines(MigrationError):
    """More keys expire soon than can be seen to within a lock."""

    kind = Kind.DATA
    passing = False


class DeadlineMissed(MigrationError):
    """A deadline at the target came before it was withheld: the copy may have lost a key that the source still has."""


class Deadlines:
    """The deadlines of one copy.

    Args:
        noted_until_ms: keys whose deadline is later are not noted. The copy has to be over by then.
    """

    def __init__(self, noted_until_ms: int) -> None:
        self.noted_until_ms = noted_until_ms
        self._buckets: dict[int, list[tuple[int, int, bytes]]] = {}
        self._size = 0
        self._withheld: dict[tuple[int, bytes], None] = {}
        self._earliest_due_ms: int | None = None

    def written(self, database: int, key: bytes, deadline_ms: int, now_ms: int) -> int:
        """Note the deadline that a key of the copy is to have; give the one that is written, in ms since 1970.

        Raises:
            TooManyDeadlines: there is no room for it.
        """
        if deadline_ms <= now_ms + MARGIN_MS:
            self.withhold(database, key)
            return PLACEHOLDER_MS
        if deadline_ms <= self.noted_until_ms:
            self._size += len(key) + OVERHEAD
            if self._size > MOST_NOTED:
                raise TooManyDeadlines(
                    f"too many keys of these slots expire while they are copied: their names take {MOST_NOTED} bytes",
                    "these slots move in another way",
                )
            self._buckets.setdefault(deadline_ms // BUCKET_MS, []).append((deadline_ms, database, key))
        return deadline_ms

    def withhold(self, database: int, key: bytes) -> None:
        """The copy of this key has the placeholder, or is about to get it. Raises TooManyDeadlines."""
        self._withheld[database, key] = None
        if len(self._withheld) > MOST_WITHHELD:
            raise TooManyDeadlines(
                f"more than {MOST_WITHHELD} keys of these slots are about to expire, and the source has not deleted "
                "them yet",
                "these slots move in another way",
            )

    def gone(self, database: int, key: bytes) -> None:
        """The source has deleted the key."""
        self._withheld.pop((database, key), None)

    def due(self, now_ms: int) -> list[tuple[int, bytes]]:
        """The keys that have to get the placeholder now; they count as withheld from here on.

        Raises:
            DeadlineMissed: it is too late for one.
            TooManyDeadlines: as :meth:`withhold`.
        """
        if now_ms + MARGIN_MS > self.noted_until_ms:
            raise DeadlineMissed("the copy takes longer than deadlines are noted for", "move fewer slots at a time")
        found = []
        self._earliest_due_ms = None
        for bucket in sorted(one for one in self._buckets if one * BUCKET_MS <= now_ms + MARGIN_MS):
            for deadline_ms, database, key in self._buckets.pop(bucket):
                self._size -= len(key) + OVERHEAD
                self._earliest_due_ms = min(deadline_ms, self._earliest_due_ms or deadline_ms)
                self.withhold(database, key)
                found.append((database, key))
        self.require_in_time(now_ms)
        return found

    def require_in_time(self, now_ms: int) -> None:
        """What was last due has the placeholder by now. Raises DeadlineMissed if one of its deadlines has come."""
        if self._earliest_due_ms is not None and self._earliest_due_ms <= now_ms:
            raise DeadlineMissed(
                f"this process, or the target, stood still for more than {MARGIN_MS / 1000:g} s, and a key of the copy "
                "may have expired meanwhile"
            )

    def withheld(self) -> Iterator[tuple[int, bytes]]:
        """The keys, with their databases, whose true deadlines have to be set within the lock."""
        return iter(self._withheld)
