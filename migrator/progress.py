"""Counts what a migration has done, how fast it goes, and estimates how much is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

ENOUGH_SCANNED = 1000
"""The least number of keys seen before their share of wanted ones is used as an estimate."""


class Rate:
    """Events per second over the last few seconds. Holds one number for each tick of the window."""

    def __init__(self, window: float = 5.0, tick: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = window
        self._tick = tick
        self._clock = clock
        self._began: float | None = None
        self._counts: deque[tuple[int, int]] = deque()  # (tick number, events in it), oldest first

    def add(self, count: int) -> None:
        """Count events that happened now."""
        now = self._clock()
        if self._began is None:
            self._began = now
        number = int(now / self._tick)
        if self._counts and self._counts[-1][0] == number:
            self._counts[-1] = (number, self._counts[-1][1] + count)
        else:
            self._counts.append((number, count))
        self._forget(now)

    def per_second(self) -> float:
        """Events per second in the window, or since the first one if that is more recent."""
        now = self._clock()
        self._forget(now)
        if self._began is None or not self._counts:
            return 0.0
        elapsed = min(self._window, now - self._began)
        return sum(count for _, count in self._counts) / max(elapsed, self._tick)

    def _forget(self, now: float) -> None:
        oldest = int((now - self._window) / self._tick)
        while self._counts and self._counts[0][0] <= oldest:
            self._counts.popleft()
        if not self._counts:
            self._began = None


@dataclass(frozen=True, slots=True)
class ServerLatency:
    """How long a server takes to answer 99 of 100 requests, in milliseconds; None while that is unknown.

    Attributes:
        address: ``host:port``.
        p99: over the last few seconds.
        quiet: while nothing is moved.
        allowed: the limit that is held: the goal, or more if ``quiet`` is already above it.
    """

    address: str
    p99: float | None
    quiet: float | None
    allowed: float


@dataclass(frozen=True, slots=True)
class Pacing:
    """How a migration is slowed down to protect its servers' clients.

    Attributes:
        speed: the share of the time in which keys move, greater than 0 and up to 1; they rest in between.
        held_back: how far it is held back, and by which server, as a sentence for the operator; empty when it is not.
        since: when that began, in seconds since 1970, UTC; 0.0 when it has not.
    """

    speed: float
    source: ServerLatency
    target: ServerLatency
    held_back: str
    since: float


class Progress:
    """Progress of one (source, target) pair; keep the object when the call is made again after an error.

    Attributes:
        keys_moved: keys that went to the target, over all calls. A key that a proxy moved at the same
            moment, for a client that waited for it, may be counted too; the batch under way when a call is
            cancelled is not.
        bytes_moved: the memory those keys took at the source.
        passes: completed passes over the source.
        complete: whether a call has returned.
        followed: ``host:port`` of the server whose stream a copy follows; "" while it follows none.
        tell_servers: is called with the run ids of the processes that give and take keys, when a call has reached both.
        pacing: gives how the migration is slowed down; None while there is no latency goal, or no call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.keys_moved = 0
        self.bytes_moved = 0
        self.passes = 0
        self.complete = False
        self.followed = ""
        self.tell_servers: Callable[[str, str], None] = lambda source, target: None
        self.pacing: Callable[[], Pacing | None] = lambda: None
        self._rate = Rate(clock=clock)
        self._at_source: int | None = None  # keys in all databases of the source when the pass began
        self._scanned = 0
        self._wanted = 0
        self._done_wanted = 0  # wanted keys that have moved or gone by themselves
        self._left_over: int | None = None  # keys that the pass before could not move

    @property
    def keys_per_second(self) -> float:
        """The speed over the last few seconds."""
        return self._rate.per_second()

    @property
    def remaining_keys(self) -> int | None:
        """Estimate of the keys still to move; None while there is nothing to base it on.

        In the first pass: the keys that the scan has not reached yet, times the share of wanted keys so far. After it:
        the keys that could not be moved.
        """
        if self.complete:
            return 0
        if self._left_over is not None:
            return max(self._left_over, self._wanted) - self._done_wanted
        if self._at_source is None:
            return None
        unseen = max(0, self._at_source - self._scanned)
        if unseen and self._scanned < ENOUGH_SCANNED:
            return None
        share = self._wanted / self._scanned if self._scanned else 0.0
        return round(unseen * share) + self._wanted - self._done_wanted

    def call_began(self) -> None:
        """A call starts from the beginning."""
        self.complete = False
        self._left_over = None
        self._at_source = None

    def pass_began(self, keys_at_source: int) -> None:
        """A pass starts over a source that holds this many keys."""
        self._at_source = keys_at_source
        self._scanned = self._wanted = self._done_wanted = 0

    def scanned(self, keys: int, wanted: int) -> None:
        """The scan has seen this many more keys, and so many of them have to move."""
        self._scanned += keys
        self._wanted += wanted

    def moved(self, keys: int, size: int) -> None:
        """Keys have gone to the target."""
        self.keys_moved += keys
        self.bytes_moved += size
        self._done_wanted += keys
        self._rate.add(keys)

    def vanished(self, keys: int) -> None:
        """Keys that the scan had found were gone when their turn came."""
        self._done_wanted += keys

    def pass_ended(self) -> None:
        """A pass has ended."""
        self.passes += 1
        self._left_over = self._wanted - self._done_wanted

    def completed(self) -> None:
        """**complete** holds."""
        self.complete = True


@dataclass(frozen=True, slots=True)
class Totals:
    """The sum of several migrations. ``remaining_keys`` is None while it is unknown for one of them."""

    keys_moved: int
    bytes_moved: int
    keys_per_second: float
    remaining_keys: int | None


def summed(progresses: Iterable[Progress]) -> Totals:
    """Add up migrations."""
    each = list(progresses)
    remaining = [progress.remaining_keys for progress in each]
    return Totals(
        sum(progress.keys_moved for progress in each),
        sum(progress.bytes_moved for progress in each),
        sum(progress.keys_per_second for progress in each),
        None if None in remaining else sum(count for count in remaining if count is not None),
    )
