"""The histogram of latencies against a sorted list."""

import math

from hypothesis import given
from hypothesis import strategies as st

from slotferry.traffic.latency import Histogram, bucket_of, highest_in

microseconds = st.integers(min_value=0, max_value=200_000_000)


@given(microseconds)
def test_a_bucket_ends_within_one_in_sixty_four_above_its_members(value: int) -> None:
    highest = highest_in(bucket_of(value))
    assert value <= highest <= value + value / 64


@given(microseconds, microseconds)
def test_buckets_keep_the_order(one: int, other: int) -> None:
    assert (bucket_of(one) <= bucket_of(other)) if one <= other else (bucket_of(one) >= bucket_of(other))


@given(st.lists(microseconds, min_size=1, max_size=300), st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_percentiles_are_those_of_the_sorted_list(values: list[int], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add((value + 0.25) / 1e6)
    exact = sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
    assert exact / 1000 <= histogram.percentile(percent) <= exact / 1000 * (1 + 1 / 64) + 1e-9


@given(st.lists(microseconds), st.lists(microseconds))
def test_a_sum_counts_both(some: list[int], others: list[int]) -> None:
    parts = [Histogram(), Histogram()]
    together = Histogram()
    for part, values in zip(parts, (some, others), strict=True):
        for value in values:
            part.add(value / 1e6)
            together.add(value / 1e6)
    parts[0].merge(parts[1])
    assert parts[0].counts == together.counts
    assert parts[0].total == len(some) + len(others)


def test_nothing_counted() -> None:
    assert Histogram().summary() == {"p50_ms": 0.0, "p99_ms": 0.0, "p999_ms": 0.0, "max_ms": 0.0}
