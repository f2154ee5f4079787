"""Which topoms there are. The leader keeps this in memory to show it to operators; nothing depends on it.

Followers tell the leader of themselves, again and again.
"""

import asyncio
import time
from dataclasses import dataclass

MOST = 100
"""How many topoms are shown at most; those heard longest ago are dropped first."""
SILENT_SECONDS = 5.0
"""After so long without a word a follower counts as silent."""
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Follower:
    """A topom that follows: its id, the URL of its API, its program's version, the epoch of the table it has read."""

    instance: str
    url: str
    version: str
    epoch: int


class Roster:
    """Followers by the URL of their API, and when each was last heard of."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, float, Follower]] = {}
        """When, by the loop's clock and in seconds since 1970, and of whom."""

    def hear(self, follower: Follower) -> None:
        """Note that a follower is there."""
        now = asyncio.get_running_loop().time()
        self._heard.pop(follower.url, None)
        self._heard[follower.url] = now, time.time(), follower
        while len(self._heard) > MOST:
            del self._heard[next(iter(self._heard))]

    def followers(self) -> list[tuple[Follower, float | None]]:
        """Each follower, by URL, and since when it is silent, in seconds since 1970; None if it was heard of lately."""
        now = asyncio.get_running_loop().time()
        self._heard = {url: entry for url, entry in self._heard.items() if now - entry[0] < FORGOTTEN_SECONDS}
        return [
            (follower, None if now - at < SILENT_SECONDS else since)
            for _, (at, since, follower) in sorted(self._heard.items())
        ]
