"""Pending entries of a stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import CannotBeCut
from migrator.stream.values import pending
from migrator.stream.values.pending import GroupPending, pending_ids
from rdb.elements import Element, Entry, Group, Owned, Pending

IDS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(st.lists(st.lists(IDS | st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True).map(sorted)))
def test_ids_of_all_groups_come_once_and_in_order(groups: list[list[tuple[int, int]]]) -> None:
    elements: list[Element] = [Entry((1, 1), [b"f", b"v"])]
    for ids in groups:
        elements.append(Group(b"g", (0, 0), None))
        for each in ids:
            elements += [Pending(each, 1, 1), Owned(each)]

    assert list(pending_ids(elements, b"s")) == sorted({each for ids in groups for each in ids})


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MOST_PENDING", 4)
    elements: list[Element] = []
    for _ in range(2):
        elements += [Group(b"g", (0, 0), None), Pending((1, 0), 1, 1), Pending((2, 0), 1, 1)]
    assert list(pending_ids(elements, b"s")) == [(1, 0), (2, 0)]

    with pytest.raises(CannotBeCut, match="stream b's' have more than 4 pending"):
        pending_ids([*elements, Pending((3, 0), 1, 1)], b"s")


@given(st.lists(IDS, unique=True).map(sorted), IDS)
def test_times_and_counts_are_found_by_id(ids: list[tuple[int, int]], other: tuple[int, int]) -> None:
    held = GroupPending()
    for number, each in enumerate(ids):
        held.add(Pending(each, number - 5, number))
    assert held.left == len(ids)

    for number, each in reversed(list(enumerate(ids))):
        assert held.find(Owned(each)) == (number - 5, number)
        assert held.left == number
    if other not in ids:
        with pytest.raises(KeyError):
            held.find(Owned(other))
