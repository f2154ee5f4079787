"""How fast a pair of groups moved keys lately. It is remembered while nothing moves, for forecasts.

It is the mean over the time in which batches moved, and what is long ago counts less and less. Time in which moving was
halted does not count.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from migrator.progress import Progress

HALF_LIFE_SECONDS = 60.0
"""Seconds of moving after which a measurement counts half."""

COPIED_SECONDS = 5.0
"""Copies by the replication stream tell no speed before keys went for so long."""


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """Keys and bytes a second from one group to another."""

    keys: float
    bytes: float


@dataclass(slots=True)
class _Mark:
    at: float
    keys: int
    bytes: int


class Speed:
    """Measures batches as they move.

    Args:
        clock: seconds from any beginning.
        least_seconds: of moving, before which nothing counts as measured.
        waits_count: whether time counts in which no key moved.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, least_seconds: float = 0.0, waits_count: bool = True
    ) -> None:
        self._clock = clock
        self._least_seconds = least_seconds
        self._waits_count = waits_count
        self._marks: dict[Progress, _Mark] = {}
        self._keys = self._bytes = self._seconds = 0.0

    @property
    def latest(self) -> PairSpeed | None:
        """What was measured last; None before any key moved."""
        if self._seconds <= 0 or self._keys <= 0 or self._seconds < self._least_seconds:
            return None
        return PairSpeed(self._keys / self._seconds, self._bytes / self._seconds)

    @contextmanager
    def following(self, progress: Progress) -> Iterator[None]:
        """Measure a batch while the block runs, in which it moves."""
        self._marks[progress] = self._mark(progress)
        try:
            yield
        finally:
            self._account(progress)
            del self._marks[progress]

    def look(self, halted: bool) -> None:
        """Count what has moved since the last look. If moving was halted, only skip the time that has passed."""
        for progress in self._marks:
            if halted:
                self._marks[progress] = self._mark(progress)
            else:
                self._account(progress)

    def _mark(self, progress: Progress) -> _Mark:
        return _Mark(self._clock(), progress.keys_moved, progress.bytes_moved)

    def _account(self, progress: Progress) -> None:
        before = self._marks[progress]
        now = self._marks[progress] = self._mark(progress)
        if now.keys == before.keys and not self._waits_count:
            return
        elapsed = now.at - before.at
        kept = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
        self._seconds = self._seconds * kept + elapsed
        self._keys = self._keys * kept + now.keys - before.keys
        self._bytes = self._bytes * kept + now.bytes - before.bytes


class Speeds:
    """How fast pairs of groups moved keys lately, by each way. A copy by the stream waits for its snapshot, and to be
    level; that is no part of its speed."""

    def __init__(self) -> None:
        self.by_keys = Speed()
        self.by_stream = Speed(least_seconds=COPIED_SECONDS, waits_count=False)

    def look(self, halted: bool) -> None:
        """As :meth:`Speed.look`, for both."""
        self.by_keys.look(halted)
        self.by_stream.look(halted)
