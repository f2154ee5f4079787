"""How long to wait before the next try: the wait grows exponentially, with full jitter, up to a limit."""

import random


class Backoff:
    """Steps that double from ``first`` to ``limit`` seconds; a wait is any part of the current step.

    Full jitter: where something failed for many processes at once, they do not all try again at once.
    """

    def __init__(self, first: float, limit: float) -> None:
        self._first = first
        self._limit = limit
        self._tries = 0

    def next(self) -> float:
        """Seconds to wait now: between none and all of the current step."""
        step = min(self._limit, self._first * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return random.uniform(0.0, step)

    def reset(self) -> None:
        """Begin with ``first`` again: something worked."""
        self._tries = 0
