"""Counts by slot: added, told within a bound, and nothing lost or told twice."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.messages.load import ROW_BYTES
from slots.slotload import SlotLoad

SLOTS = 16
SMALL, LARGE = 2**32 - 1, 2**64 - 1
Row = tuple[int, int, int, int, int]

ROWS = st.lists(
    st.tuples(
        st.integers(0, SLOTS - 1),
        st.sampled_from([0, 1, 5, SMALL]),
        st.sampled_from([0, 1, SMALL]),
        st.integers(0, 2**40),
        st.integers(0, 2**40),
    ),
    max_size=2 * SLOTS,
)
STEPS = st.lists(st.one_of(ROWS, st.integers(0, SLOTS + 1)), max_size=30)


def packed(*rows: Row) -> bytes:
    return b"".join(struct.pack("<HIIQQ", *row) for row in rows)


def unpacked(rows: bytes) -> list[Row]:
    return [struct.unpack_from("<HIIQQ", rows, place) for place in range(0, len(rows), ROW_BYTES)]


def test_what_is_added_is_told_once() -> None:
    load = SlotLoad(1024)
    load.add(packed((1023, 2, 1, 30, 40), (7, 1, 0, 5, 6), (1023, 1, 0, 3, 4)))

    assert len(load) == 2
    assert load[1023] == (3, 1, 33, 44)
    assert load[0] == (0, 0, 0, 0)
    assert load.each() == [(1023, 3, 1, 33, 44), (7, 1, 0, 5, 6)]
    assert unpacked(load.take(10)) == [(1023, 3, 1, 33, 44), (7, 1, 0, 5, 6)]
    assert (len(load), load.each(), load.take(10)) == (0, [], b"")


@given(STEPS)
def test_it_counts_as_a_dictionary_does(steps: list[list[Row] | int]) -> None:
    load = SlotLoad(SLOTS)
    counts: dict[int, list[int]] = {}  # in the order in which they are told
    for step in steps:
        if isinstance(step, list):
            load.add(packed(*step))
            for slot, *figures in step:
                if any(figures):
                    had = counts.setdefault(slot, [0, 0, 0, 0])
                    counts[slot] = [one + other for one, other in zip(had, figures, strict=True)]
        else:
            expected = []
            for slot in list(counts)[:step]:
                requests, errors, bytes_in, bytes_out = counts.pop(slot)
                row = (slot, min(requests, SMALL), min(errors, SMALL), bytes_in, bytes_out)
                expected.append(row)
                left = [requests - row[1], errors - row[2], 0, 0]
                if any(left):
                    counts[slot] = left
            assert unpacked(load.take(step)) == expected
        assert load.each() == [(slot, *figures) for slot, figures in counts.items()]
        assert len(load) == len(counts)


def test_slots_that_were_not_told_come_first() -> None:
    load = SlotLoad(8)
    busy = packed(*((slot, 1, 0, 1, 1) for slot in range(8)))
    load.add(busy)
    told = []
    for _ in range(4):
        told += [slot for slot, *_ in unpacked(load.take(2))]
        load.add(busy)
    assert sorted(told) == list(range(8))


def test_a_sum_ends_at_the_largest_number() -> None:
    load = SlotLoad(1)
    for _ in range(2):
        load.add(packed((0, 1, 0, LARGE, LARGE - 1)))
    assert load[0] == (2, 0, LARGE, LARGE)


def test_nothing_is_added_of_what_is_wrong() -> None:
    load = SlotLoad(8)
    good = packed((3, 1, 1, 1, 1))
    for wrong in (good + b"x", good[:-1], packed((3, 1, 1, 1, 1), (8, 1, 1, 1, 1))):
        with pytest.raises(ValueError, match=r"not a whole number of rows of 26 bytes|slot 8; there are 8 slots"):
            load.add(wrong)
    assert (len(load), load.each()) == (0, [])
    load.add(b"")
    assert load.take(-1) == b""
    with pytest.raises(IndexError, match="no slot 8"):
        load[8]
    for number in (0, 3, 32768):
        with pytest.raises(ValueError, match="power of two"):
            SlotLoad(number)
