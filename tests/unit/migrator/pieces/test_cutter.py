"""Pieces stay within their bounds, and find the size that takes the time wanted at the slower server."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.pieces import cutter as cutting
from migrator.pieces.cutter import (
    BYTES_PER_ELEMENT,
    LEAST_COST,
    PIECE_BYTES,
    PIECE_ELEMENTS,
    PieceCutter,
    cost_of,
)

SIZES = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=50)


@given(sizes=SIZES, average=st.floats(0, 1e7), seconds=st.one_of(st.floats(0, 1e-3), st.floats(0, 10)))
def test_pieces_stay_within_bounds(sizes: list[int], average: float, seconds: float) -> None:
    cutter = PieceCutter()
    cutter.begin(average)
    expected = average
    for size in sizes:
        count = cutter.elements()
        assert 1 <= count <= PIECE_ELEMENTS
        assert 1 <= cutter.size() <= PIECE_BYTES
        if count > 1:
            # The size that the elements so far lead to expect.
            assert count * expected <= PIECE_BYTES
        cutter.read(count, count * size, seconds)
        cutter.written(count, count * size, seconds)
        expected = size


def test_a_bound_of_bytes_from_outside() -> None:
    cutter = PieceCutter()
    cutter.begin(100)
    assert cutter.elements(1000) == 10
    assert cutter.size(1000) == 1000
    assert cutter.elements(1) == 1


@pytest.mark.parametrize("slower", ["reading", "writing"])
def test_the_slower_server_decides(slower: str) -> None:
    cutter, random_numbers = PieceCutter(), random.Random(1)
    cutter.begin(10)
    for _ in range(200):
        count = cutter.elements()

        def takes(cost: float, each: float) -> float:
            return cost * each * random_numbers.uniform(0.9, 1.3)

        cost = cost_of(count, count * 10)
        cutter.read(count, count * 10, takes(cost, 4e-6 if slower == "reading" else 1e-6))
        cutter.written(count, count * 10, takes(cost, 4e-6 if slower == "writing" else 1e-6))

    assert 180 <= count <= 260


def test_one_slow_piece_changes_little() -> None:
    cutter = PieceCutter()
    cutter.begin(10)
    before = cutter.elements()
    cutter.read(before, before * 10, 3.0)
    assert cutter.elements() >= before * 0.8


def test_a_machine_on_which_every_piece_is_slow_does_not_get_ever_smaller_ones() -> None:
    cutter = PieceCutter()
    cutter.begin(10)
    for _ in range(200):
        count = cutter.elements()
        cutter.read(count, count * 10, 0.05)
        cutter.written(count, count * 10, 0.05)
    assert count >= LEAST_COST * 0.9


def test_elements_that_grow_are_cut_by_at_once_and_those_that_shrink_gradually(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cutting, "PIECE_MILLISECONDS", 1000.0)
    cutter = PieceCutter()
    cutter.begin(10)
    assert cutter.elements() == 512
    cutter.read(512, 512 * 100_000, 0.001)
    assert cutter.elements() == 1
    cutter.read(1, 10, 0.001)
    assert cutter.elements() == 1
    for _ in range(100):
        count = cutter.elements()
        cutter.read(count, count * 10, 0.001)
    assert count == 512


def test_another_key_begins_without_what_the_last_one_was_like() -> None:
    cutter = PieceCutter()
    cutter.begin(10_000_000)
    assert cutter.elements() == 1
    cutter.read(1, 10_000_000, 0.02)
    assert cutter.reading.longest == 0.02
    cutter.begin(1)
    assert cutter.elements() > 100
    assert cutter.reading.longest == 0


def test_bytes_count_as_elements() -> None:
    assert cost_of(3, 2 * BYTES_PER_ELEMENT) == 5
