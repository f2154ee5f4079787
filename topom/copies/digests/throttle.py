"""How fast a digest check goes: keys a second on the whole, milliseconds of a server's time a step."""

import asyncio
import time

LEAST_STEP = 8
MOST_STEP = 256
"""Keys in one call of a script."""


class Throttle:
    """Spreads steps evenly over time, and chooses how many keys a step has.

    Args:
        keys_per_second: how many keys are looked at, on average; 0 for as fast as the steps go.
        step_seconds: how long a step should take at most. Steps get smaller when they take longer; a step of
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
        # Let the rest of this process have at least one turn.
        await asyncio.sleep(max(0.0, wait))

    def took(self, seconds: float) -> None:
        """Note how long a step took."""
        if seconds > self._step_seconds:
            self.step_keys = max(LEAST_STEP, self.step_keys // 2)
        elif seconds < self._step_seconds / 2:
            self.step_keys = min(MOST_STEP, self.step_keys * 2)
