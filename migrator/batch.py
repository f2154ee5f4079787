"""How many keys go in one step: as many as a server can deal with in a given time.

A server does nothing else while it runs a step, and the time it takes differs by machine, by load and by
what the keys hold. So the cost is learned from each call and the next batch is cut by it. The bytes of a batch
have a bound of their own at the source, for the moment in which small keys give way to large ones.
"""

from __future__ import annotations

BYTES_PER_KEY = 4096
"""So many bytes cost about as much as a key does by itself (what RESTORE, its reply and the delete take)."""

START_SECONDS = 40e-6
"""Assumed cost of a key before the first was moved: high, so that it begins with small batches."""

START_BYTES = 256.0
"""Assumed bytes of a key before the first was moved."""

GAIN = 0.2
"""Weight of the newest call in the learned cost, a geometric mean: it stays near the median of a long tail."""

MOST_CHANGE = 2.0
"""How many times the learned cost a single call may count at most, and the inverse at least."""

LEAST_COST = 64.0
"""Cost, in keys, below which a batch is not made for the sake of time: some 0.7 ms on an idle machine.

On a machine with too few processors a call takes long because source and target wait for their turn, however
few keys it has. Ever smaller batches would make a migration crawl and clients wait no less.
"""


class BatchCutter:
    """Says how many keys make a batch, and learns from how long each took and what the keys were like."""

    def __init__(self) -> None:
        self.seconds_per_key = START_SECONDS
        """What a key of few bytes takes."""
        self.bytes_per_key = START_BYTES
        """What a key takes at the source, on average of late."""

    def count(self, seconds: float, most_keys: int) -> int:
        """How many keys the source can part with in so many seconds; at least one."""
        budget = max(LEAST_COST, seconds / self.seconds_per_key)
        return max(1, min(most_keys, int(budget / (1 + self.bytes_per_key / BYTES_PER_KEY))))

    def learn(self, keys: int, size: int, seconds: float) -> None:
        """So many keys (at least one) of so many bytes together took so long."""
        ratio = seconds / (keys + size / BYTES_PER_KEY) / self.seconds_per_key
        ratio = min(MOST_CHANGE, max(1 / MOST_CHANGE, ratio))
        self.seconds_per_key *= ratio**GAIN
        self.bytes_per_key += GAIN * (size / keys - self.bytes_per_key)
