"""How many keys go in one step: as many as a server can handle in a given time.

A server does nothing else while it runs a step. The time of a step depends on the machine, the load and the content of
the keys. So the cost is learned from each call, and the next batch is sized by it. The bytes of a batch have a bound of
their own at the source, for the moment when large keys follow small ones.
"""

from __future__ import annotations

BYTES_PER_KEY = 4096
"""The number of bytes that cost about as much as a key by itself (RESTORE, its reply and the delete)."""

START_SECONDS = 40e-6
"""Assumed cost of a key before the first was moved. It is high, so that a call begins with small batches."""

START_BYTES = 256.0
"""Assumed bytes of a key before the first was moved."""

GAIN = 0.2
"""Weight of the newest call in the learned cost. The cost is a geometric mean, which stays near the median of a long
tail."""

MOST_CHANGE = 2.0
"""The most that a single call may count, as a multiple of the learned cost; the inverse is the least."""

LEAST_COST = 64.0
"""Cost, in keys, below which a batch does not shrink to save time: some 0.7 ms on an idle machine.

On a machine with too few processors a call takes long even with few keys, because source and target wait for their
turn. Ever smaller batches would slow a migration down, and clients would wait no less.
"""


class BatchCutter:
    """Decides how many keys make a batch. It learns from the time and the content of each batch."""

    def __init__(self) -> None:
        self.seconds_per_key = START_SECONDS
        """Seconds for a key of few bytes."""
        self.bytes_per_key = START_BYTES
        """Bytes of a key at the source, on average lately."""

    def count(self, seconds: float, most_keys: int) -> int:
        """How many keys the source can give away in so many seconds; at least one."""
        budget = max(LEAST_COST, seconds / self.seconds_per_key)
        return max(1, min(most_keys, int(budget / (1 + self.bytes_per_key / BYTES_PER_KEY))))

    def learn(self, keys: int, size: int, seconds: float) -> None:
        """Note that ``keys`` keys (at least one) with ``size`` bytes together took ``seconds``."""
        ratio = seconds / (keys + size / BYTES_PER_KEY) / self.seconds_per_key
        ratio = min(MOST_CHANGE, max(1 / MOST_CHANGE, ratio))
        self.seconds_per_key *= ratio**GAIN
        self.bytes_per_key += GAIN * (size / keys - self.bytes_per_key)
