"""How much of a server's time reading may take: calls are kept short, and keys a second limited.

A server does one thing at a time, so another client waits for as long as a call of ours takes. How long one takes at
the server is what passes between asking and the answer, less the shortest time that any answer took: the way there and
back.
"""

from __future__ import annotations

import time

FEWEST = 10
"""Keys in a call at least, so that something goes on."""
STEP = 0.05
"""By which share a call is made smaller or larger. As many calls then take longer than they should as take less: the
median is held, which a few that had to wait for something else do not change."""
CALLS_PER_SECOND = 10
"""Under a limit of keys a second, a call has no more than that second's keys by this."""


class Pace:
    """Of one partition.

    Args:
        most: keys in a call, at most.
        seconds: what a call may take at the server.
        rate: keys a second; 0 for no limit.
    """

    def __init__(self, most: int, seconds: float, rate: float = 0.0) -> None:
        self._most = max(FEWEST, min(most, int(rate / CALLS_PER_SECOND))) if rate else most
        self._seconds = seconds
        self._rate = rate
        self._count = min(FEWEST * 2, self._most)
        self._way = float("inf")
        self._next = time.monotonic()

    @property
    def count(self) -> int:
        """How many keys to ask for in the next call."""
        return self._count

    def knows_way(self, elapsed: float) -> None:
        """Take note of how long an answer that costs nothing took, in seconds."""
        self._way = min(self._way, elapsed)

    def took(self, elapsed: float) -> None:
        """Take note of how long a call took, in seconds, and choose the size of the next."""
        spent = max(0.0, elapsed - min(self._way, elapsed))
        step = max(1, int(self._count * STEP))
        self._count = max(FEWEST, self._count - step) if spent > self._seconds else min(self._most, self._count + step)

    def wait(self, keys: int) -> None:
        """Wait until as many keys may be asked for as the last call gave. No longer than they take at the rate."""
        if not self._rate:
            return
        now = time.monotonic()
        # What the call itself took counts; what was lost for long, as while nobody took a batch, is not made up for.
        self._next = max(self._next, now - 1 / CALLS_PER_SECOND) + keys / self._rate
        time.sleep(max(0.0, self._next - now))
