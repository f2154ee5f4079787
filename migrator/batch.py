"""How many keys go in one MIGRATE: as many as the source can part with in a given time.

A server does nothing else while it runs a MIGRATE, and the time it takes differs by machine, by load and by
what the keys hold. So the cost is learned from each call and the next batch is cut by it. Keys and bytes
have bounds of their own, for the moment in which small keys give way to large ones.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

BYTES_PER_KEY = 4096
"""So many bytes cost about as much as a key does by itself (what RESTORE, its reply and the delete take)."""

START_SECONDS = 40e-6
"""Assumed cost of a key before the first was moved: high, so that it begins with small batches."""

GAIN = 0.2
"""Weight of the newest call in the learned cost, a geometric mean: it stays near the median of a long tail."""

MOST_CHANGE = 2.0
"""How many times the learned cost a single call may count at most, and the inverse at least."""

LEAST_COST = 64.0
"""Cost, in keys, below which a batch is not made for the sake of time: some 0.7 ms on an idle machine.

On a machine with too few processors a call takes long because source and target wait for their turn, however
few keys it has. Ever smaller batches would make a migration crawl and clients wait no less.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """Keys that a scan found, in order, with the running sum of their bytes."""

    keys: list[bytes]
    bytes_up_to: list[int]

    @classmethod
    def of(cls, keys: list[bytes], sizes: list[int]) -> Page:
        """A page of keys and the bytes each takes."""
        return cls(keys, list(accumulate(sizes)))

    def size(self, start: int, end: int) -> int:
        """Bytes of the keys from ``start`` up to and without ``end``."""
        if end <= start:
            return 0
        return self.bytes_up_to[end - 1] - (self.bytes_up_to[start - 1] if start else 0)

    def cost(self, start: int, end: int) -> float:
        """What moving those keys costs, in keys."""
        return (end - start) + self.size(start, end) / BYTES_PER_KEY


class BatchCutter:
    """Cuts pages into batches, and learns from how long each took."""

    def __init__(self) -> None:
        self.seconds_per_key = START_SECONDS
        """What a key of few bytes takes."""

    def end(self, page: Page, start: int, *, keys: int, size: int, seconds: float) -> int:
        """Where the batch that begins at ``start`` ends: within all three bounds, but at least one key later."""
        budget = max(LEAST_COST, seconds / self.seconds_per_key)
        most = min(len(page.keys), start + keys)
        before = page.bytes_up_to[start - 1] if start else 0
        places = range(start + 1, most + 1)
        by_bytes = bisect_right(places, before + size, key=lambda end: page.bytes_up_to[end - 1])
        by_cost = bisect_right(places, budget, key=lambda end: page.cost(start, end))
        return start + max(1, min(by_bytes, by_cost))

    def learn(self, cost: float, seconds: float) -> None:
        """Keys of this :meth:`Page.cost` took so long."""
        ratio = seconds / cost / self.seconds_per_key
        ratio = min(MOST_CHANGE, max(1 / MOST_CHANGE, ratio))
        self.seconds_per_key *= ratio**GAIN
