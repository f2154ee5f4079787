"""How much of a server's time reading may take: calls are kept short, and keys a second limited.

A server does one thing at a time, so another client waits while a call of ours runs. The time of a call at the server
is the time from the request to the answer, less the shortest time of any answer, which is the round trip.
"""

from __future__ import annotations

import time

FEWEST = 10
"""The least keys in a call, so that the reading goes on."""
STEP = 0.05
"""The share by which a call becomes smaller or larger. Then as many calls take too long as take less. So the median is
held, and a few calls that had to wait for something else do not change it."""
CALLS_PER_SECOND = 10
"""Under a limit of keys a second, a call has at most the keys of this many seconds."""


class Pace:
    """The pace of one partition.

    Args:
        most: the most keys in a call.
        seconds: the time that a call may take at the server.
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
        """Note how long an answer took that costs the server nothing, in seconds."""
        self._way = min(self._way, elapsed)

    def took(self, elapsed: float) -> None:
        """Note how long a call took, in seconds, and choose the size of the next."""
        spent = max(0.0, elapsed - min(self._way, elapsed))
        step = max(1, int(self._count * STEP))
        self._count = max(FEWEST, self._count - step) if spent > self._seconds else min(self._most, self._count + step)

    def wait(self, keys: int) -> None:
        """Wait until as many keys may be read as the last call gave, but no longer than they take at the rate."""
        if not self._rate:
            return
        now = time.monotonic()
        # The time of the call itself counts. Long lost time, for example while no batch was taken, is not made up for.
        self._next = max(self._next, now - 1 / CALLS_PER_SECOND) + keys / self._rate
        time.sleep(max(0.0, self._next - now))
