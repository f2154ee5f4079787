"""The fewest bytes that anybody has to move who knows all that comes: no plan of any policy moves fewer.

Of the slots that a group had at first, as many have to leave it at some time as bring it under the limit at its worst
moment, if they alone are there. Parts of slots may leave here, and there is room for them everywhere. So what is really
needed is more: a slot that left once may have to leave again.
"""

from collections.abc import Mapping, Sequence

from slots.table import SlotTable


class Bound:
    """The bound over a run; tell it the loads of each moment that counts."""

    def __init__(self, table: SlotTable, sizes: Mapping[int, int], limit: float) -> None:
        self._limit = limit
        self._sizes = sizes
        self._slots: dict[int, list[int]] = {}
        for slot in table.slots:
            self._slots.setdefault(slot.group_id, []).append(slot.id)
        self._worst = dict.fromkeys(self._slots, 0.0)

    def look(self, rates: Sequence[float], groups: int) -> None:
        """The loads of slots at a moment, over so many groups."""
        most = self._limit * sum(rates) / groups
        for group_id, slots in self._slots.items():
            above = sum(rates[slot] for slot in slots) - most
            if above > 0:
                self._worst[group_id] = max(self._worst[group_id], self._cost(above, slots, rates))

    @property
    def bytes(self) -> int:
        """The bound so far."""
        return round(sum(self._worst.values()))

    def _cost(self, above: float, slots: Sequence[int], rates: Sequence[float]) -> float:
        cost = 0.0
        for slot in sorted(
            (slot for slot in slots if rates[slot] > 0), key=lambda slot: self._sizes[slot] / rates[slot]
        ):
            part = min(1.0, above / rates[slot])
            cost += part * self._sizes[slot]
            above -= part * rates[slot]
            if above <= 0:
                break
        return cost
