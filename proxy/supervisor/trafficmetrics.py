"""The traffic of servers and of users, as Prometheus metrics.

**bounded**: at :data:`MOST_SERVERS` servers and :data:`MOST_USERS` users, all others are shown together as ``other``.
A server that has left the slot table, and was not asked for an hour, is shown no more.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from slots.messages.load import ServerTraffic, Traffic

MOST_SERVERS = 1000
MOST_USERS = 100
GONE_SECONDS = 3600.0
OTHER = "other"

SERVER_FIGURES = (
    ("server_requests", "Requests that a server has answered, or that failed because it did not.", 1.0),
    ("server_errors", "Error replies of a server, and requests that it did not answer.", 1.0),
    ("server_sent_bytes", "Bytes of requests to a server.", 1.0),
    ("server_received_bytes", "Bytes of replies of a server.", 1.0),
    (
        "server_reply_seconds",
        "Seconds that requests took from when they were queued for a server to its reply, in sum.",
        1e-6,
    ),
)
"""What counters are called and say, in the order of :class:`~slots.messages.load.ServerTraffic`, and their scale."""
USER_FIGURES = (
    ("user_requests", "Requests of a user's clients."),
    ("user_errors", "Error replies to a user's clients."),
    ("user_received_bytes", "Bytes of requests of a user's clients."),
    ("user_sent_bytes", "Bytes of replies to a user's clients."),
)


class Sums:
    """Sums by name, of a bounded number of names."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._sums: dict[str, tuple[float, ...]] = {}
        self._counted: dict[str, float] = {}

    def add(self, name: str, counts: tuple[float, ...]) -> None:
        """Add to the sums of a name, or to those of ``other``."""
        if name not in self._sums and len(self._sums) >= self._most:
            name = OTHER
        before = self._sums.get(name)
        self._sums[name] = (
            counts if before is None else tuple(one + more for one, more in zip(before, counts, strict=True))
        )
        self._counted[name] = self._clock()

    def forget(self, kept: Mapping[str, int]) -> None:
        """Forget names that are not kept, and had nothing for :data:`GONE_SECONDS`."""
        now = self._clock()
        for name, counted in list(self._counted.items()):
            if name not in kept and name != OTHER and now - counted > GONE_SECONDS:
                del self._sums[name], self._counted[name]

    def each(self) -> list[tuple[str, tuple[float, ...]]]:
        """By name."""
        return sorted(self._sums.items())


class TrafficCounters:
    """What all workers have counted since the proxy began.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = Sums(MOST_SERVERS, clock)
        self._users = Sums(MOST_USERS, clock)

    def add(self, servers: Mapping[str, ServerTraffic], users: Mapping[str, Traffic]) -> None:
        """Add what a worker has counted since it told before."""
        for address, server in servers.items():
            self._servers.add(address, server)
        for name, user in users.items():
            self._users.add(name, user)

    def metrics(self, groups: Mapping[str, int]) -> Iterator[Metric]:
        """A counter for each figure. ``groups``: which group each server of the table is of."""
        self._servers.forget(groups)
        for place, (figure, text, scale) in enumerate(SERVER_FIGURES):
            family = CounterMetricFamily(f"slotferry_proxy_{figure}", text, labels=["server", "group"])
            for address, counts in self._servers.each():
                family.add_metric([address, str(groups.get(address, ""))], counts[place] * scale)
            yield family
        for place, (figure, text) in enumerate(USER_FIGURES):
            family = CounterMetricFamily(f"slotferry_proxy_{figure}", text, labels=["user"])
            for name, counts in self._users.each():
                family.add_metric([name], counts[place])
            yield family
