"""The counts of all workers for each command, as Prometheus metrics."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from proxy.engine.statistics import TICK_MICROSECONDS, bucket_limits

POWERS = range(4, 25)
"""Upper limits of the buckets that are shown, as powers of two of a clock tick: 65 microseconds to 69 seconds."""

Statistic = tuple[int, int, float, list[int], int, int]
"""Calls, errors, the sum of the latencies in microseconds, the engine's buckets, bytes of requests and of replies."""


def added(one: Statistic, other: Sequence[Any]) -> Statistic:
    """The sum of two counts."""
    calls, errors, microseconds, buckets, bytes_in, bytes_out = other
    return (
        one[0] + calls,
        one[1] + errors,
        one[2] + microseconds,
        [mine + theirs for mine, theirs in zip(one[3], buckets, strict=True)],
        one[4] + bytes_in,
        one[5] + bytes_out,
    )


NOTHING: Statistic = (0, 0, 0.0, [0] * len(bucket_limits()), 0, 0)


class CommandCounters:
    """The newest statistics of each worker, and the sum of ended workers."""

    def __init__(self) -> None:
        self._by_worker: dict[int, Mapping[str, Statistic]] = {}
        self._of_the_dead: dict[str, Statistic] = {}

    def update(self, index: int, commands: Mapping[str, Statistic]) -> None:
        """Take the newest statistics of a worker."""
        self._by_worker[index] = commands

    def ended(self, index: int) -> None:
        """The worker has ended; its counts stay in the sum."""
        for name, statistic in self._by_worker.pop(index, {}).items():
            self._of_the_dead[name] = added(self._of_the_dead.get(name, NOTHING), statistic)

    def total(self) -> dict[str, Statistic]:
        """Sums over all workers, by command."""
        total = dict(self._of_the_dead)
        for commands in self._by_worker.values():
            for name, statistic in commands.items():
                total[name] = added(total.get(name, NOTHING), statistic)
        return total

    def metrics(self) -> Iterator[Metric]:
        """A histogram of latencies, and counters of errors and bytes, by command."""
        latencies = HistogramMetricFamily(
            "slotferry_proxy_command_seconds",
            "Time from reading a request to reading its reply.",
            labels=["command"],
        )
        errors = CounterMetricFamily(
            "slotferry_proxy_command_errors", "Error replies to a command.", labels=["command"]
        )
        received = CounterMetricFamily(
            "slotferry_proxy_command_received_bytes",
            "Bytes of requests of a command, from clients.",
            labels=["command"],
        )
        sent = CounterMetricFamily(
            "slotferry_proxy_command_sent_bytes", "Bytes of replies, to clients.", labels=["command"]
        )
        places = {limit: place for place, limit in enumerate(bucket_limits())}
        for name, (calls, failed, microseconds, buckets, bytes_in, bytes_out) in sorted(self.total().items()):
            below = list(accumulate(buckets))
            shown = [(f"{2**power * TICK_MICROSECONDS / 1e6:.9g}", float(below[places[2**power]])) for power in POWERS]
            latencies.add_metric([name], [*shown, ("+Inf", float(calls))], microseconds / 1e6)
            errors.add_metric([name], failed)
            received.add_metric([name], bytes_in)
            sent.add_metric([name], bytes_out)
        yield from (latencies, errors, received, sent)
