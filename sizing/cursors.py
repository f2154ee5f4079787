"""Ranges of SCAN's cursors: why they partition a table's keys, and what rehashing does to that.

**Positions.** A server keeps a database in a hash table of a power of two of buckets; a key's bucket is the low bits of
its hash. SCAN's cursor is a bucket's number, and counts with its bits reversed (P. Noordhuis): each step adds one to
the *position*, which is the cursor's 64 bits in reverse, at the highest bits that the table has. In a table of 2^k
buckets, a bucket is the interval of 2^(64-k) positions that begins at its reversed number. So a key has one position,
its hash reversed, whatever the table's size: it is in the bucket whose interval holds it. A scan from cursor to cursor
goes through the intervals from the first position to the last, and leaves none out.

**Ranges.** 2^n ranges of equal width cut the positions where the low n bits of the hash change. As long as the table
has 2^n buckets or more, each bucket lies in one range, and a key in the range of its position: they partition the
table.

**Rehashing.** A table grows or shrinks by having two at once, whose keys wander. SCAN then visits a bucket of the
smaller one together with all that it splits into in the larger one, and the cursor counts at the smaller one's bits. A
key keeps its position through all of that. A range that begins at its first position, and goes on until the cursor has
reached or passed its end, has at some moment visited a bucket that held any given position of it; so it gives every key
that was there from its beginning to its end. None is missed, whatever the tables do. What can happen is that a key is
given more than once:

- within a range, when the table shrinks between two calls: the new bucket is wider than what was left of the old one;
- by two ranges, when a table has fewer than 2^n buckets: the bucket on the border belongs to both. Nobody splits a
  database of so few keys, but it may lose them meanwhile.

**Ends.** A call of SCAN takes several buckets, so the last call of a range goes over its end. Which of its keys lie
beyond it, SCAN does not say. A second look tells: what a scan from the end on finds lies beyond it, *if* no bucket
reached over the end at that moment. That is known from where this look's first call stopped: the cursor is a multiple
of the width of the smaller table's buckets. If it is no multiple of a range's width, buckets are narrower than ranges,
so none reaches over a border. Only then are keys dropped (:meth:`CursorRange.shows_narrow_buckets`); otherwise all are
given, and some are given twice. A key that is dropped has its position in a later range, which gives it.

On a keyspace that stands still each key is thus given once.

Valkey's own hash table (8.1 and newer) counts in the same way, over buckets of several keys. Servers in cluster mode
put the number of the Redis Cluster slot into the cursor: their databases are not split.
"""

from __future__ import annotations

from dataclasses import dataclass

BITS = 64
POSITIONS = 1 << BITS


def reverse(cursor: int) -> int:
    """The 64 bits of a cursor or position in reverse."""
    return int(f"{cursor:064b}"[::-1], 2)


def reached(cursor: int) -> int:
    """The position before which all has been scanned when SCAN gives this cursor; 0 stands for the table's end."""
    return reverse(cursor) if cursor else POSITIONS


@dataclass(frozen=True, slots=True)
class CursorRange:
    """One of ``of`` ranges of equal width, a power of two; ``index`` counts from 0 in the order of positions."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if self.of < 1 or self.of & (self.of - 1) or not 0 <= self.index < self.of:
            raise ValueError(f"{self.index} of {self.of} is no range: there is a power of two of them, counted from 0")

    @property
    def width(self) -> int:
        """Positions in it."""
        return POSITIONS // self.of

    @property
    def first(self) -> int:
        """The cursor to begin with."""
        return reverse(self.index * self.width)

    @property
    def is_last(self) -> bool:
        """Whether it ends where the table does."""
        return self.index == self.of - 1

    @property
    def end(self) -> int:
        """The cursor of the first position after it; 0 for the last range."""
        return 0 if self.is_last else reverse((self.index + 1) * self.width)

    def ends_at(self, cursor: int) -> bool:
        """Whether all of it has been scanned when SCAN gives this cursor."""
        return reached(cursor) >= (self.index + 1) * self.width

    def goes_over(self, cursor: int) -> bool:
        """Whether positions beyond it have been scanned when SCAN gives this cursor."""
        return reached(cursor) > (self.index + 1) * self.width

    def shows_narrow_buckets(self, cursor: int) -> bool:
        """Whether a cursor that SCAN gave proves that no bucket reached over a border of ranges at that moment."""
        return reached(cursor) % self.width != 0
