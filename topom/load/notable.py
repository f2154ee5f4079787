"""Requests that took long, or that carried or showed much: what proxies told of them, merged over all proxies.

What is alike is one entry: requests of the same reason, command, database and key, or hash of a key.

**bounded**: :data:`MOST_KEPT` entries are kept, of two kilobytes at most. If there are more, the one that was seen
longest ago goes; so does one that was not seen for :data:`KEPT_SECONDS`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush, heapreplace, nlargest
from operator import attrgetter
from typing import NamedTuple

from slots.messages.load import Notable, Why

MOST_KEPT = 512
KEPT_SECONDS = 86_400.0


class Alike(NamedTuple):
    """What requests of one entry have in common.

    Attributes:
        slot: -1 for no slot, or several.
        key: its first bytes (:data:`slots.messages.load.KEY_BYTES`), or a hash of it; empty if it is not known.
        length: of the whole key, in bytes.
        hashed: whether ``key`` is a hash.
    """

    why: Why
    command: str
    database: int
    slot: int
    key: bytes
    length: int
    hashed: bool


class Seen(NamedTuple):
    """Requests that are alike.

    Attributes:
        times: how many.
        first_at, last_at: when the first and the last were answered.
        microseconds, bytes_in, bytes_out, elements: the most of each, of all these requests.
        user, client, server, proxy_id: of the worst one, by the figure that its ``why`` is about.
    """

    alike: Alike
    times: int
    first_at: float
    last_at: float
    microseconds: float
    bytes_in: int
    bytes_out: int
    elements: int
    user: str
    client: str
    server: str
    proxy_id: int


FIGURES: Mapping[Why, Callable[[Seen], float]] = {
    "big_request": attrgetter("bytes_in"),
    "big_reply": attrgetter("bytes_out"),
    "big_collection": attrgetter("elements"),
    "slow": attrgetter("microseconds"),
}
"""What each reason is about."""


class NotableRequests:
    """The entries. One task writes them.

    Args:
        clock: seconds, growing.
        wall_clock: seconds since 1970, UTC. If somebody sets it, nothing is forgotten for that.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._kept: dict[Alike, Seen] = {}
        self._order: list[tuple[float, Alike]] = []
        """A heap with each entry once, and when it was last seen or a time before."""
        self.version = 0
        """Another number after each change."""

    def take(self, proxy_id: int, said: Iterable[tuple[Notable, bytes]], hashed: bool) -> None:
        """Add what a proxy says. Each request comes with the bytes of its key."""
        now = self._clock()
        for one, key in said:
            if one.seconds >= KEPT_SECONDS:
                continue
            alike = Alike(one.why, one.command, one.database, one.slot, key, one.length, hashed)
            at = now - one.seconds
            figures = one.microseconds, one.bytes_in, one.bytes_out, one.elements
            self._add(Seen(alike, 1, at, at, *figures, one.user, one.client, one.server, proxy_id))

    def end_old(self) -> None:
        """Forget what was not seen for a day."""
        least = self._clock() - KEPT_SECONDS
        while self._kept and self._oldest().last_at < least:
            self._forget_oldest()

    def newest(self, most: int = MOST_KEPT, why: Why | None = None) -> list[Seen]:
        """The entries, or those of one reason, the one that was seen last first. Times are in seconds since 1970,
        UTC."""
        since = self._wall_clock() - self._clock()
        found = [seen for seen in list(self._kept.values()) if why is None or seen.alike.why == why]
        return [
            seen._replace(first_at=since + seen.first_at, last_at=since + seen.last_at)
            for seen in nlargest(most, found, key=attrgetter("last_at"))
        ]

    def _add(self, seen: Seen) -> None:
        self.version += 1
        before = self._kept.get(seen.alike)
        if before is not None:
            self._kept[seen.alike] = merged(before, seen)
            return
        self._kept[seen.alike] = seen
        heappush(self._order, (seen.last_at, seen.alike))
        if len(self._kept) > MOST_KEPT:
            self._oldest()
            self._forget_oldest()

    def _oldest(self) -> Seen:
        """The entry that was seen longest ago, which then is the first of the heap."""
        while True:
            at, alike = self._order[0]
            seen = self._kept[alike]
            if at == seen.last_at:
                return seen
            heapreplace(self._order, (seen.last_at, alike))

    def _forget_oldest(self) -> None:
        del self._kept[heappop(self._order)[1]]
        self.version += 1


def merged(one: Seen, other: Seen) -> Seen:
    """Both together."""
    figure = FIGURES[one.alike.why]
    worst = other if figure(other) > figure(one) else one
    return worst._replace(
        times=one.times + other.times,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
        microseconds=max(one.microseconds, other.microseconds),
        bytes_in=max(one.bytes_in, other.bytes_in),
        bytes_out=max(one.bytes_out, other.bytes_out),
        elements=max(one.elements, other.elements),
    )
