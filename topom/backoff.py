"""How long to wait before the next try."""

import random


class Backoff:
    """Waits that double from ``first`` to ``limit`` seconds, each with jitter so that tries do not meet again.

    A wait is at least the share ``least`` of its step; 0 is full jitter, which suits many who try the same.
    """

    def __init__(self, first: float, limit: float, least: float = 0.5) -> None:
        self._first = first
        self._limit = limit
        self._least = least
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now: between ``least`` of the current step and all of it."""
        step = min(self._limit, self._first * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return step * random.uniform(self._least, 1.0)

    def reset(self) -> None:
        """Begin with ``first`` again: something worked."""
        self._tries = 0
