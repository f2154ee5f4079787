"""What is measured of all things of one kind (slots, groups, servers, proxies, users), by name.

**bounded**: a kind has at most so many names; what is counted of more is left out, and their number is said.
"""

import math
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from slots.slotrates import Rates

MINUTE = 60.0
DAY_MINUTES = 1440
KEPT_COLUMNS = 3
"""Of each row and minute that is kept, 4 bytes each: requests, bytes of requests and of replies, a second."""

Name = TypeVar("Name", int, str)


class Counts(NamedTuple):
    """Of some time, or a second.

    Attributes:
        requests: that were answered.
        errors: of those, that were answered with an error.
        bytes_in: of requests.
        bytes_out: of replies.
        microseconds: that servers took for the timed requests, from when one was queued until its reply was there; 0
            where that is not measured.
        timed: requests that the time is of; those that wait at their server are not among them.
    """

    requests: float
    errors: float
    bytes_in: float
    bytes_out: float
    microseconds: float
    timed: float


NOTHING = Counts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Row(NamedTuple, Generic[Name]):
    """One thing.

    Attributes:
        rates: of late, a second: what is older by :data:`slots.slotrates.HALF_LIFE_SECONDS` weighs half.
        minute: counts of the minute that ended last.
    """

    name: Name
    rates: Counts
    minute: Counts


class Kept(NamedTuple, Generic[Name]):
    """What is kept of a minute.

    Attributes:
        names: whose values are known.
        values: :data:`KEPT_COLUMNS` for each name, one after the other.
    """

    names: Sequence[Name]
    values: "array[float]"


class Minute(NamedTuple, Generic[Name]):
    """A minute that has ended, which began then, in seconds since 1970, UTC, and what is kept of it."""

    began_at: float
    names: Sequence[Name]
    values: "array[float]"


class Measured(Generic[Name]):
    """The things of one kind.

    Args:
        most: names at a time.
        most_kept: of how many, the busiest, each minute is kept; None for all.
        names: that are there from the start, whose rows are in this order.
    """

    def __init__(self, most: int, most_kept: int | None = None, names: Iterable[Name] = ()) -> None:
        self._most = most
        self._most_kept = most_kept
        self._row_of: dict[Name, int] = {name: row for row, name in enumerate(names)}
        self._free: list[int] = []
        self._kept: tuple[Name, ...] = ()
        self.table = Rates(max(16, len(self._row_of)))
        """By row."""
        self.left_out = 0
        """Names that had no room since the book began, each as often as it came."""

    def __len__(self) -> int:
        return len(self._row_of)

    def row(self, name: Name) -> int | None:
        """The row of a name, which gets one if it has none; None if there is no room."""
        row = self._row_of.get(name)
        if row is not None:
            return row
        if len(self._row_of) >= self._most:
            self.left_out += 1
            return None
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._row_of)
            if row == len(self.table):
                self.table.grow(2 * row)
        self.table.clear(row)
        self._row_of[name] = row
        return row

    def add(self, name: Name, counts: Counts) -> None:
        """Count something for a name."""
        row = self.row(name)
        if row is not None:
            self.table.add(row, *counts)

    def end(self, name: Name) -> None:
        """Forget a name."""
        row = self._row_of.pop(name, None)
        if row is not None:
            self._free.append(row)

    def keep(self, names: Container[Name]) -> None:
        """Forget all other names."""
        for name in [name for name in self._row_of if name not in names]:
            self.end(name)

    def keep_busy(self, least: float) -> None:
        """Forget names with fewer requests a second, and none in the minute that ended last."""
        rates, minute = self.table.rates, self.table.minute
        for name in [name for name, row in self._row_of.items() if rates(row)[0] < least and not minute(row)[0]]:
            self.end(name)

    def clear(self) -> None:
        """Let every name begin anew."""
        for row in self._row_of.values():
            self.table.clear(row)

    def turn(self, seconds: float) -> Kept[Name]:
        """End the minute, of which so many seconds were measured; gives what is to be kept of it."""
        self.table.turn()
        names: Sequence[Name]
        if self._most_kept is None:
            if self._kept != (names := tuple(self._row_of)):
                self._kept = names
            names = self._kept
        else:
            names = [name for name, _ in self._ranked(self._most_kept, self.table.minute)]
        counted = (self.table.minute(self._row_of[name]) for name in names)
        kept = chain.from_iterable((counts[0], counts[2], counts[3]) for counts in counted)
        return Kept(names, array("f", (value / seconds for value in kept)))

    def get(self, name: Name) -> Row[Name] | None:
        """What is measured of one; None if nothing is."""
        row = self._row_of.get(name)
        return None if row is None else self._shown(name, row)

    def __iter__(self) -> Iterator[Row[Name]]:
        # Pages are written on threads, while names come and go.
        return (self._shown(name, row) for name, row in list(self._row_of.items()))

    def busiest(self, most: int) -> list[Row[Name]]:
        """Those with the most requests a second, the busiest first; none that have had no request."""
        return [self._shown(name, row) for name, row in self._ranked(most, self.table.rates)]

    def total(self) -> Counts:
        """A second, of all names together."""
        rates = [self.table.rates(row) for row in list(self._row_of.values())]
        return Counts(*(math.fsum(column) for column in zip(*rates, strict=True))) if rates else NOTHING

    def _ranked(self, most: int, counts: Callable[[int], tuple[float, ...]]) -> list[tuple[Name, int]]:
        """Names and rows with the most requests, by the counts of a row."""
        requests = ((counts(row)[0], name, row) for name, row in list(self._row_of.items()))
        found = nlargest(most, (one for one in requests if one[0] > 0), key=itemgetter(0))
        return [(name, row) for _, name, row in found]

    def _shown(self, name: Name, row: int) -> Row[Name]:
        return Row(name, Counts(*self.table.rates(row)), Counts(*self.table.minute(row)))
