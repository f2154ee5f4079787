"""How fast a digest check goes: keys a second on the whole, milliseconds of a server's time a step."""

import asyncio
import time

LEAST_STEP = 8
MOST_STEP = 256
"""Keys in one call of a script."""


class Throttle:
    """Spreads steps evenly over time, and chooses how many keys a step has.

    Args:
        keys_per_second: looked at, on the average; 0 for as fast as the steps go.
        step_seconds: what a step is to take at the most. Steps get smaller when they take longer; one of
            :data:`LEAST_STEP` keys may still take longer than that.
    """

    def __init__(self, keys_per_second: int, step_seconds: float) -> None:
        self._rate = keys_per_second
        self._step_seconds = step_seconds
        self._free_at = 0.0
        self.step_keys = LEAST_STEP
        """Keys of the next step."""

    async def ready(self, keys: int) -> None:
        """Return when so many keys may be looked at."""
        now = time.monotonic()
        wait = self._free_at - now
        if self._rate:
            self._free_at = max(self._free_at, now) + keys / self._rate
        # At least one turn for whatever else this process does.
        await asyncio.sleep(max(0.0, wait))

    def took(self, seconds: float) -> None:
        """Told how long a step took."""
        if seconds > self._step_seconds:
            self.step_keys = max(LEAST_STEP, self.step_keys // 2)
        elif seconds < self._step_seconds / 2:
            self.step_keys = min(MOST_STEP, self.step_keys * 2)
