"""Pairs of groups whose target cannot take slots yet: why, and when it is checked again.

A batch that fails its check has touched nothing. It ends, so that its groups are free for other batches. Its pair is
noted here, and tried again with growing waits, until a check passes.
"""

import asyncio
from collections.abc import Callable, Collection

from slots.backoff import Backoff
from topom.errors import TopomError
from topom.migration.batches import Pair
from topom.reasons import Reason, Reasons

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


class Deferral:
    """The deferred pairs. ``wake`` is called, from the event loop, whenever a pair may be tried again."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._reasons = Reasons[Pair]("check_failed")
        self._backoffs: dict[Pair, Backoff] = {}
        self._timers: dict[Pair, asyncio.TimerHandle] = {}

    @property
    def waiting(self) -> Collection[Pair]:
        """The pairs that must not be tried now."""
        return self._timers.keys()

    def reason(self, pair: Pair) -> Reason | None:
        """Why the last check of the pair failed; None if it did not."""
        return self._reasons.get(pair)

    def pairs(self) -> list[Pair]:
        """All pairs whose last check failed."""
        return sorted(self._reasons)

    def defer(self, pair: Pair, error: TopomError, **said: object) -> float:
        """A check failed; gives the seconds until the next one. ``said`` is for the log."""
        seconds = self._backoffs.setdefault(pair, Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)).next()
        self._reasons.waits(pair, error, retry_seconds=round(seconds, 1), **said)
        self._stop(pair)
        self._timers[pair] = asyncio.get_running_loop().call_later(seconds, self._due, pair)
        return seconds

    def passed(self, pair: Pair) -> None:
        """A check passed, or no slot waits to go this way."""
        self._stop(pair)
        self._reasons.over(pair)
        self._backoffs.pop(pair, None)

    def retry(self) -> None:
        """Let all pairs be tried at once, with short waits again. Their reasons stay until a check passes."""
        for pair in list(self._timers):
            self._stop(pair)
        self._backoffs.clear()
        self._wake()

    def close(self) -> None:
        """Forget all pairs."""
        for pair in self.pairs():
            self.passed(pair)

    def _due(self, pair: Pair) -> None:
        del self._timers[pair]
        self._wake()

    def _stop(self, pair: Pair) -> None:
        timer = self._timers.pop(pair, None)
        if timer is not None:
            timer.cancel()
