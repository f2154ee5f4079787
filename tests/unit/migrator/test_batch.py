"""Batches find the size that takes the time wanted."""

import random

from hypothesis import given
from hypothesis import strategies as st

from migrator.batch import BYTES_PER_KEY, LEAST_COST, BatchCutter


@given(
    learned=st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10_000_000), st.floats(1e-6, 10)), max_size=50),
    most=st.integers(1, 500),
    seconds=st.floats(0.0001, 0.1),
)
def test_batches_stay_within_bounds_whatever_was_learned(
    learned: list[tuple[int, int, float]], most: int, seconds: float
) -> None:
    cutter = BatchCutter()
    for keys, size, took in learned:
        cutter.learn(keys, size, took)
    count = cutter.count(seconds, most)
    assert 1 <= count <= most
    if count > 1:
        cost = count * (1 + cutter.bytes_per_key / BYTES_PER_KEY)
        assert cost <= max(LEAST_COST, seconds / cutter.seconds_per_key)


def test_the_cutter_finds_the_size_that_takes_the_time_wanted() -> None:
    cutter, random_numbers = BatchCutter(), random.Random(1)
    for _ in range(100):
        count = cutter.count(0.002, 500)
        cutter.learn(count, 100 * count, (0.0002 + count * 9e-6) * random_numbers.uniform(0.9, 1.3))
    assert 130 <= count <= 230


def test_one_slow_call_changes_little() -> None:
    cutter = BatchCutter()
    before = cutter.seconds_per_key
    cutter.learn(100, 0, 100 * before * 1000)
    assert cutter.seconds_per_key <= before * 1.21


def test_a_machine_on_which_every_call_is_slow_does_not_get_ever_smaller_batches() -> None:
    cutter = BatchCutter()
    for _ in range(100):
        count = cutter.count(0.002, 500)
        cutter.learn(count, 100 * count, 0.050)
    assert count >= LEAST_COST * 0.9

    # The bound of keys still holds.
    assert cutter.count(0.002, 10) == 10


def test_bytes_count_as_keys() -> None:
    small, large = BatchCutter(), BatchCutter()
    for _ in range(100):
        small.learn(1000, 0, 0.010)
        large.learn(1000, 1000 * BYTES_PER_KEY, 0.020)
    # The cost is the same; a key of so many bytes costs twice as much.
    assert abs(small.seconds_per_key / large.seconds_per_key - 1) < 0.01
    assert abs(small.count(0.005, 10_000) - 2 * large.count(0.005, 10_000)) <= 2
