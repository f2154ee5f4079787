"""The histogram's buckets, and what Prometheus is shown of them."""

import itertools

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from proxy.commandmetrics import CommandCounters
from proxy.engine.statistics import TICK_MICROSECONDS, Statistics, bucket_limits


def test_limits_of_the_buckets_grow_and_err_by_no_more_than_a_quarter() -> None:
    limits = bucket_limits()
    assert limits == sorted(set(limits))
    assert limits[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert limits[-1] == 2**32
    assert all(above <= below * 1.25 for below, above in itertools.pairwise(limits[3:]))


def test_a_command_keeps_its_number() -> None:
    statistics = Statistics()
    numbers = {name: statistics.number(name) for name in (f"command{index}" for index in range(2000))}
    assert len(set(numbers.values())) == 2000
    assert all(statistics.number(name) == number for name, number in numbers.items())
    assert statistics.read() == {}


def test_prometheus_is_shown_the_sum_over_workers_living_and_dead() -> None:
    counters = CommandCounters()
    limits = bucket_limits()
    one = [0] * len(limits)
    one[limits.index(16)] = 3  # three just under 16 ticks
    one[limits.index(2**20)] = 1
    counters.update(0, {"get": [4, 1, 5e6, one, 100, 20]})
    counters.update(1, {"get": [4, 0, 1e6, one, 50, 0]})
    counters.ended(1)

    class Shown(Collector):
        def collect(self):  # type: ignore[no-untyped-def]
            return counters.metrics()

    registry = CollectorRegistry()
    registry.register(Shown())
    text = generate_latest(registry).decode()
    assert (
        f'slotferry_proxy_command_seconds_bucket{{command="get",le="{16 * TICK_MICROSECONDS / 1e6:.9g}"}} 6.0' in text
    )
    assert 'slotferry_proxy_command_seconds_bucket{command="get",le="+Inf"} 8.0' in text
    assert 'slotferry_proxy_command_seconds_count{command="get"} 8.0' in text
    assert 'slotferry_proxy_command_seconds_sum{command="get"} 6.0' in text
    assert 'slotferry_proxy_command_errors_total{command="get"} 1.0' in text
    assert 'slotferry_proxy_command_received_bytes_total{command="get"} 150.0' in text
    assert 'slotferry_proxy_command_sent_bytes_total{command="get"} 20.0' in text
