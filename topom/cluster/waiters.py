"""Requests that wait until something changes: each for a limited time, and only so many at once (**bounded**)."""

import asyncio
from collections.abc import Callable

from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.errors import Unavailable
from topom.reasons import Kind

LONGEST_SECONDS = 60.0
"""Most seconds that a request may wait."""


class TooManyWaiters(Unavailable):
    """As many requests wait as are allowed."""

    kind = Kind.BUSY


class Waiters:
    """The requests that wait until something holds of the state.

    Args:
        limit: how many may wait at a time; one more is refused. It may change.
    """

    def __init__(self, ledger: Ledger, limit: int) -> None:
        self._ledger = ledger
        self.limit = limit
        self._waiting: set[asyncio.Event] = set()
        self._released = False
        ledger.listen(self._changed)

    @property
    def waiting(self) -> int:
        """How many requests wait now."""
        return len(self._waiting)

    @property
    def released(self) -> bool:
        """Whether all requests have been let go."""
        return self._released

    async def until(self, holds: Callable[[ClusterState], bool], seconds: float) -> bool:
        """Wait until ``holds`` is true for the stored state; False if it is not within these seconds.

        A call with 0 seconds or less does not wait, and is never refused.

        Raises:
            TooManyWaiters: too many wait already.
        """
        if holds(self._ledger.state) or seconds <= 0:
            return holds(self._ledger.state)
        if len(self._waiting) >= self.limit:
            raise TooManyWaiters(
                f"{self.limit} requests wait for news already; ask without waiting, or try again in a while. "
                "The setting waiters allows more"
            )
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(min(seconds, LONGEST_SECONDS)):
                while not self._released and not holds(self._ledger.state):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(changed)
        return holds(self._ledger.state)

    def release(self) -> None:
        """Let all requests go, and have none wait from now on: topom is about to stop."""
        self._released = True
        self._wake()

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        self._wake()

    def _wake(self) -> None:
        for changed in self._waiting:
            changed.set()
