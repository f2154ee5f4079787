"""Counts wrong bearer tokens by the address that they come from, so that guessing shows, and is told to stop.

A right token is looked for first, and gets in at any time, whatever else came from its address. So nobody locks out
those who share an address, as behind a proxy or NAT.

**bounded**: :data:`MOST_ADDRESSES`. An IPv6 host has a whole /64 to itself, so that counts as one address.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

import structlog

log = structlog.get_logger(__name__)

MOST_WRONG = 100
"""Wrong tokens that an address may show within :data:`PERIOD_SECONDS`."""
PERIOD_SECONDS = 60.0
MOST_ADDRESSES = 1024
"""How many addresses are counted; of more, those that began to guess last."""


@dataclass(slots=True)
class _Count:
    began: float
    wrong: int = 0


class Guesses:
    """The wrong tokens of one topom. ``clock`` gives seconds from any beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    def another(self, address: str) -> bool:
        """Count one more from this address; gives whether it is one too many."""
        place = _place(address)
        now = self._clock()
        count = self._counts.get(place)
        if count is None or now - count.began >= PERIOD_SECONDS:
            self._counts.pop(place, None)
            if len(self._counts) >= MOST_ADDRESSES:
                del self._counts[next(iter(self._counts))]
            count = self._counts[place] = _Count(now)
        count.wrong += 1
        if count.wrong == MOST_WRONG + 1:
            log.warning("tokens_guessed", address=place, wrong=count.wrong, seconds=PERIOD_SECONDS)
        return count.wrong > MOST_WRONG


def _place(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address  # there is none, as over a socket of another kind
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or ip_network((int(found) >> 64 << 64, 64)))
    return str(found)
