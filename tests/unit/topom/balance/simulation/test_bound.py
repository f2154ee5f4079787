"""The fewest bytes that have to move."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.group import Group
from slots.slot import Slot
from slots.table import SlotTable
from topom.balance.simulation import bound as bounds
from topom.balance.simulation.bound import Bound, Moment, least

TABLE = SlotTable(
    1, tuple(Slot(slot, 1 if slot < 2 else 2) for slot in range(4)), {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",))}
)


def test_the_cheapest_whole_slots_of_what_is_too_much() -> None:
    # Given: group 1 has 30 of 40, may have 20, and slot 1 has the most load for its bytes.
    bound = Bound(TABLE, {0: 100, 1: 40, 2: 1, 3: 2}, 1.0)
    bound.look([10.0, 20.0, 5.0, 5.0], 2)
    assert bound.bytes == 40
    # When group 2 has too much later, that comes on top; a lesser excess of group 1 does not.
    bound.look([10.0, 12.0, 9.0, 9.0], 2)
    assert bound.bytes == 40
    bound.look([5.0, 5.0, 20.0, 10.0], 2)
    assert bound.bytes == 41
    # When each slot of group 1 is too much at some time, both leave.
    bound.look([30.0, 1.0, 5.0, 4.0], 2)
    bound.look([5.0, 30.0, 3.0, 2.0], 2)
    assert bound.bytes == 141


def test_where_nothing_is_too_much_nothing_moves() -> None:
    bound = Bound(TABLE, dict.fromkeys(range(4), 1), 1.15)
    bound.look([10.0, 10.0, 11.0, 11.0], 2)
    bound.look([0.0, 0.0, 0.0, 0.0], 2)
    assert bound.bytes == 0


def exactly(moments: list[Moment], sizes: list[int]) -> float:
    """By trying all choices."""
    costs = [
        sum(size for size, leaves in zip(sizes, choice, strict=True) if leaves)
        for choice in product((False, True), repeat=len(sizes))
        if all(
            math.fsum(rate for rate, leaves in zip(one.rates, choice, strict=True) if leaves) >= one.above * (1 - 1e-9)
            for one in moments
        )
    ]
    return min(costs)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Moment], list[int]]:
    number = draw(st.integers(1, 7))
    sizes = draw(st.lists(st.integers(1, 100), min_size=number, max_size=number))
    moments = []
    for _ in range(draw(st.integers(1, 4))):
        rates = draw(st.lists(st.integers(0, 50), min_size=number, max_size=number).filter(any))
        moments.append(Moment(sum(rates) * draw(st.sampled_from([0.1, 0.3, 0.5, 0.9])), rates))
    return moments, sizes


@given(groups())
def test_it_is_what_trying_all_choices_finds(group: tuple[list[Moment], list[int]]) -> None:
    assert least(*group) == exactly(*group)


@given(groups(), st.integers(1, 4))
def test_a_search_that_is_cut_off_proves_less_and_never_more(group: tuple[list[Moment], list[int]], nodes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "MOST_NODES", nodes)
        assert 0 < least(*group) <= exactly(*group) * (1 + 1e-9)


def test_the_worst_moments_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_MOMENTS", 2)
    bound = Bound(TABLE, {0: 100, 1: 40, 2: 1, 3: 2}, 1.0)
    for first in (21.0, 40.0, 30.0, 22.0):
        bound.look([first, 1.0, 9.0, 9.0], 2)
    assert bound.bytes == 100
    assert [round(one.above, 1) for one in sorted(bound._moments[1])] == [6.5, 11.5]
