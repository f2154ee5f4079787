"""The fewest bytes that anybody has to move who knows all that comes, and keeps every group under a limit.

Of the slots that a group had at first, so many have to leave it at some time that the others, if they alone were there,
are under the limit at every moment that counts. Which are the cheapest that do, in whole slots, is searched for each
group (:func:`least`). A slot that stays away costs the least if it leaves once, at the beginning, so this is a true
lower bound. What is really needed is more: the bound knows neither that slots need room where they come, nor that one
that left may have to leave again.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from slots.table import SlotTable

MOST_NODES = 500
"""Choices that are looked at of one group, each time. After that many, what is proven by then counts."""
MOST_MOMENTS = 700
"""Of a group that has too much, the worst that are kept."""
NEGLIGIBLE = 1e-9
"""A part of the load that is too much, below which nothing has to leave."""


class Moment(NamedTuple):
    """A moment in which a group would have too much with the slots of its beginning.

    Attributes:
        above: how much has to leave.
        rates: the load of each slot.
    """

    above: float
    rates: Sequence[float]

    def missing(self, gone: int) -> float:
        """How much more has to leave, besides the slots whose bits are set."""
        return self.above - math.fsum(rate for slot, rate in enumerate(self.rates) if gone >> slot & 1)


class Bound:
    """The bound over a run; tell it the loads of each moment that counts."""

    def __init__(self, table: SlotTable, sizes: Mapping[int, int], limit: float) -> None:
        self._limit = limit
        self._sizes = sizes
        self._slots: dict[int, list[int]] = {}
        for slot in table.slots:
            self._slots.setdefault(slot.group_id, []).append(slot.id)
        self._moments: dict[int, list[Moment]] = {group_id: [] for group_id in self._slots}

    def look(self, rates: Sequence[float], groups: int) -> None:
        """The loads of slots at a moment, over so many groups."""
        most = self._limit * math.fsum(rates) / groups
        for group_id, slots in self._slots.items():
            own = array("d", (rates[slot] for slot in slots))
            above = math.fsum(own) - most
            if above > NEGLIGIBLE * most:
                moments = self._moments[group_id]
                heappush(moments, Moment(above, own))
                if len(moments) > MOST_MOMENTS:
                    heappop(moments)

    @property
    def bytes(self) -> int:
        """The bound so far."""
        found = (
            least(moments, [self._sizes[slot] for slot in self._slots[group_id]])
            for group_id, moments in self._moments.items()
            if moments
        )
        return math.floor(math.fsum(found))


def least(moments: Sequence[Moment], sizes: Sequence[int]) -> float:
    """The fewest bytes of whole slots with which enough leaves at every moment, or less if that is not found soon.

    Only the worst moments are searched: those in which the best choice for the others leaves too much.
    """
    searched = [max(moments, key=lambda one: one.above)]
    while True:
        cost, gone = _search(searched, sizes)
        if gone is None:
            return cost
        worst = max(moments, key=lambda one: one.missing(gone))
        if worst.missing(gone) <= NEGLIGIBLE * worst.above:
            return cost
        searched.append(worst)


def _search(moments: Sequence[Moment], sizes: Sequence[int]) -> tuple[float, int | None]:
    """The fewest bytes for these moments, and the slots that leave, as bits; None for them if the search is cut off.

    It goes on where the least can come of: at the choice with the lowest bound, whose costliest moment names the slot
    that either leaves or stays. So the first choice that is enough is the best one.
    """
    orders = [
        sorted(
            (slot for slot, rate in enumerate(one.rates) if rate > 0), key=lambda slot: sizes[slot] / one.rates[slot]
        )
        for one in moments
    ]
    open_: list[tuple[float, int, int, int | None]] = []

    def add(gone: int, stays: int) -> None:
        spent = cost = math.fsum(size for slot, size in enumerate(sizes) if gone >> slot & 1)
        splits = None
        for one, order in zip(moments, orders, strict=True):
            missing = one.missing(gone)
            if missing <= NEGLIGIBLE * one.above:
                continue
            filled, last = _fill(missing, one.rates, order, sizes, gone | stays)
            if splits is None or spent + filled > cost:
                cost, splits = spent + filled, last
        if cost < math.inf:
            heappush(open_, (cost, gone, stays, splits))

    add(0, 0)
    for _ in range(MOST_NODES):
        cost, gone, stays, splits = heappop(open_)
        if splits is None:
            return cost, gone
        add(gone | 1 << splits, stays)
        add(gone, stays | 1 << splits)
    return open_[0][0], None


def _fill(
    missing: float, rates: Sequence[float], order: Sequence[int], sizes: Sequence[int], decided: int
) -> tuple[float, int | None]:
    """What it costs at least that so much leaves, if a part of the last slot could; and that slot."""
    cost, last = 0.0, None
    for slot in order:
        if decided >> slot & 1:
            continue
        last = slot
        if rates[slot] >= missing:
            return cost + sizes[slot] * missing / rates[slot], last
        cost += sizes[slot]
        missing -= rates[slot]
    return math.inf, last
