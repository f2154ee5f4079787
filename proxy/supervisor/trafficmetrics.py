"""The traffic of servers and of users, as Prometheus metrics.

**bounded**: at :data:`MOST_SERVERS` servers and :data:`MOST_USERS` users, all others are shown together as ``other``.
A server that has left the slot table, and was not asked for an hour, is shown no more.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily

from slots.messages.load import ServerTraffic, Traffic, UserDemand

MOST_SERVERS = 1000
MOST_USERS = 100
GONE_SECONDS = 3600.0
OTHER = "other"

SERVER_FIGURES = (
    ("server_requests", "Requests that a server has answered, or that failed because it did not."),
    ("server_errors", "Error replies of a server, and requests that it did not answer."),
    ("server_sent_bytes", "Bytes of requests to a server."),
    ("server_received_bytes", "Bytes of replies of a server."),
)
"""What counters are called and say, in the order of :class:`~slots.messages.load.ServerTraffic`."""
SERVER_TIME = (
    "server_reply_seconds",
    "How long requests took, from when they were queued for a server to its reply. Those that wait there, such as "
    "BLPOP, are left out.",
)
USER_FIGURES = (
    ("user_requests", "Requests of a user's clients."),
    ("user_errors", "Error replies to a user's clients."),
    ("user_received_bytes", "Bytes of requests of a user's clients."),
    ("user_sent_bytes", "Bytes of replies to a user's clients."),
)
LIMIT_FIGURES = (
    ("user_delayed", "Requests of a user's clients that had to wait, because the user asked for more than its limits."),
    ("user_refused", "Requests of a user's clients that were refused for that; they are among the others, too."),
    ("user_worker_seconds", "Time that workers worked for a user's clients, where that has a limit."),
)
NOBODY: Mapping[str, UserDemand] = {}


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
        self._limited = Sums(MOST_USERS, clock)

    def add(
        self,
        servers: Mapping[str, ServerTraffic],
        users: Mapping[str, Traffic],
        limited: Mapping[str, UserDemand] = NOBODY,
    ) -> None:
        """Add what a worker has counted since it told before."""
        for address, server in servers.items():
            self._servers.add(address, server)
        for name, user in users.items():
            self._users.add(name, user)
        for name, demand in limited.items():
            self._limited.add(name, (demand.delayed, demand.refused, demand.worked / 1e6))

    def metrics(self, groups: Mapping[str, int]) -> Iterator[Metric]:
        """A counter for each figure, and a summary of the time. ``groups``: which group each server of the table is
        of."""
        self._servers.forget(groups)
        servers = [([address, str(groups.get(address, ""))], counts) for address, counts in self._servers.each()]
        for place, (figure, text) in enumerate(SERVER_FIGURES):
            family = CounterMetricFamily(f"slotferry_proxy_{figure}", text, labels=["server", "group"])
            for labels, counts in servers:
                family.add_metric(labels, counts[place])
            yield family
        figure, text = SERVER_TIME
        summary = SummaryMetricFamily(f"slotferry_proxy_{figure}", text, labels=["server", "group"])
        for labels, (*_, microseconds, timed) in servers:
            summary.add_metric(labels, int(timed), microseconds / 1e6)
        yield summary
        for figures, sums in ((USER_FIGURES, self._users), (LIMIT_FIGURES, self._limited)):
            for place, (figure, text) in enumerate(figures):
                family = CounterMetricFamily(f"slotferry_proxy_{figure}", text, labels=["user"])
                for name, counts in sums.each():
                    family.add_metric([name], counts[place])
                yield family
