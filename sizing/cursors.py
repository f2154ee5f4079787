"""Ranges of SCAN's cursors: why they partition a table's keys, and how rehashing affects that.

**Positions.** A server keeps a database in a hash table with a power of two of buckets. A key's bucket is the low bits
of its hash. SCAN's cursor is a bucket's number, and counts with its bits reversed (P. Noordhuis). Each step adds one to
the *position*, which is the cursor's 64 bits in reverse, at the highest bits that the table has. In a table of 2^k
buckets, a bucket is the interval of 2^(64-k) positions that begins at its reversed number. So a key has one position,
its reversed hash, for any size of the table: it is in the bucket whose interval contains the position. A scan from
cursor to cursor goes through the intervals from the first position to the last, and leaves none out.

**Ranges.** 2^n ranges of equal width cut the positions where the low n bits of the hash change. While the table has 2^n
buckets or more, each bucket is in one range, and a key is in the range of its position. So the ranges partition the
table.

**Rehashing.** To grow or shrink, a table becomes two tables, and keys move from one to the other. SCAN then visits a
bucket of the smaller one together with all buckets of the larger one that it splits into, and the cursor counts at the
smaller one's bits. A key keeps its position through all of that. Take a range that begins at its first position, and
goes on until the cursor has reached or passed its end. For each position in it, the range has at some moment visited a
bucket that contained the position. So it gives every key that was there from its beginning to its end. None is missed,
however the tables change. But a key may be given more than once:

- within a range, when the table shrinks between two calls: the new bucket is wider than the rest of the old one;
- by two ranges, when a table has fewer than 2^n buckets: the bucket on the border belongs to both. A database of so few
  keys is not split, but a split one may lose keys meanwhile.

**Ends.** A call of SCAN takes several buckets, so the last call of a range goes over its end. SCAN does not say which
of its keys are beyond the end. A second look tells: a key that a scan from the end on finds is beyond it, *if* no
bucket reached over the end at that moment. The place where this look's first call stopped decides that: the cursor is a
multiple of the width of the smaller table's buckets. If it is not a multiple of a range's width, buckets are narrower
than ranges, so none reaches over a border. Only then are keys dropped (:meth:`CursorRange.shows_narrow_buckets`).
Otherwise all are given, and some are given twice. A dropped key has its position in a later range, which gives it.

So if no key changes meanwhile, each key is given once.

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
    """The position before which all has been scanned when SCAN gives this cursor; 0 means the table's end."""
    return reverse(cursor) if cursor else POSITIONS


@dataclass(frozen=True, slots=True)
class CursorRange:
    """One of ``of`` ranges of equal width; ``of`` is a power of two. ``index`` counts from 0 in the order of
    positions."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if self.of < 1 or self.of & (self.of - 1) or not 0 <= self.index < self.of:
            raise ValueError(f"{self.index} of {self.of} is no range: there is a power of two of them, counted from 0")

    @property
    def width(self) -> int:
        """The number of positions in it."""
        return POSITIONS // self.of

    @property
    def first(self) -> int:
        """The cursor to begin with."""
        return reverse(self.index * self.width)

    @property
    def is_last(self) -> bool:
        """Whether it ends at the table's end."""
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
