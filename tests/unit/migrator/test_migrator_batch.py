"""Batches stay within their bounds, and find the size that takes the time wanted."""

import random

from hypothesis import given
from hypothesis import strategies as st

from migrator.batch import BYTES_PER_KEY, LEAST_COST, BatchCutter, Page


def page_of(sizes: list[int]) -> Page:
    return Page.of([b"%d" % number for number in range(len(sizes))], sizes)


@given(
    sizes=st.lists(st.integers(0, 10_000_000), min_size=1, max_size=200),
    keys=st.integers(1, 500),
    size=st.integers(1, 1_000_000),
    seconds=st.floats(0.0001, 0.1),
)
def test_batches_cover_a_page_and_stay_within_bounds(sizes: list[int], keys: int, size: int, seconds: float) -> None:
    page, cutter = page_of(sizes), BatchCutter()
    start = 0
    while start < len(sizes):
        end = cutter.end(page, start, keys=keys, size=size, seconds=seconds)
        assert start < end <= len(sizes)
        assert page.size(start, end) == sum(sizes[start:end])
        if end - start > 1:
            assert end - start <= keys
            assert sum(sizes[start:end]) <= size
            assert page.cost(start, end) <= max(LEAST_COST, seconds / cutter.seconds_per_key)
        start = end


def test_a_key_larger_than_the_bound_goes_alone() -> None:
    page, cutter = page_of([100, 100, 50_000_000, 100]), BatchCutter()
    ends = []
    start = 0
    while start < 4:
        start = cutter.end(page, start, keys=500, size=512 * 1024, seconds=1)
        ends.append(start)
    assert ends == [2, 3, 4]


def test_the_cutter_finds_the_size_that_takes_the_time_wanted() -> None:
    cutter, page, random_numbers = BatchCutter(), page_of([100] * 1000), random.Random(1)

    def server(cost: float) -> float:
        return (0.0002 + cost * 9e-6) * random_numbers.uniform(0.9, 1.3)

    for _ in range(100):
        end = cutter.end(page, 0, keys=500, size=1_000_000, seconds=0.002)
        cutter.learn(page.cost(0, end), server(page.cost(0, end)))

    assert 130 <= end <= 230


def test_one_slow_call_changes_little() -> None:
    cutter = BatchCutter()
    before = cutter.seconds_per_key
    cutter.learn(100, 100 * before * 1000)
    assert cutter.seconds_per_key <= before * 1.21


def test_a_machine_on_which_every_call_is_slow_does_not_get_ever_smaller_batches() -> None:
    cutter, page = BatchCutter(), page_of([100] * 1000)
    for _ in range(100):
        end = cutter.end(page, 0, keys=500, size=1_000_000, seconds=0.002)
        cutter.learn(page.cost(0, end), 0.050)
    assert end >= LEAST_COST * 0.9

    # A bound of keys is a bound all the same.
    assert cutter.end(page, 0, keys=10, size=1_000_000, seconds=0.002) == 10


def test_bytes_count_as_keys() -> None:
    assert page_of([BYTES_PER_KEY]).cost(0, 1) == 2
