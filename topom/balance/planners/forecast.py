"""What a plan costs, and what the groups are before and after it. Pure functions.

Unknown counts are None: bytes (or keys) if the request has none at all, seconds if no rate is known. If some slots have
sizes, a slot without one counts as empty. The way of each pair, and its forecast, come from
:mod:`topom.migration.ways`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slots.group import Group
from slots.slot import OFFLINE, Slot
from topom.balance.planners.request import PlanRequest, loads_of
from topom.balance.planners.shares import shares
from topom.cluster.topology import Move
from topom.migration.batches import Pair
from topom.migration.ways import Choice, Way


@dataclass(frozen=True, slots=True)
class Amount:
    """Slots, and what is in them."""

    slots: int
    bytes: int | None
    keys: int | None


@dataclass(frozen=True, slots=True)
class PairCost:
    """What goes from one group to another. An offline slot (``source`` is 0) carries no bytes and keys.

    ``choice`` is the way of these slots, and what it costs; None if it was not looked at.
    """

    source: int
    target: int
    moved: Amount
    choice: Choice | None = None

    def to_wire(self) -> dict[str, Any]:
        """``{"from", "to", "slots", "bytes", "keys", "way"}``; ``way`` as :meth:`topom.migration.ways.Choice.to_wire`
        has it, or None."""
        way = None if self.choice is None else self.choice.to_wire()
        return {"from": self.source, "to": self.target, **asdict(self.moved), "way": way}


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """A group before and after a plan. Slots in an action count for the group in which they come to rest.

    Attributes:
        share: bytes that the group should have; None if it is to be drained or has no servers, or if bytes are not
            known.
        load_off: how far from its share of all load it is before and after, as a part of the share; None if there is no
            share, or if loads are not known.
    """

    id: int
    share: int | None
    before: Amount
    after: Amount
    load_off: tuple[float, float] | None = None

    def to_wire(self) -> dict[str, Any]:
        """``{"id", "share_bytes", "before": {"slots", "bytes", "keys", "percent_off"}, "after": {...}}``.

        ``percent_off`` is above 0 for a group with more than its share; None if there is no share. If loads are known,
        ``load_percent_off`` says that of the load.
        """
        held = {
            name: {**asdict(amount), "percent_off": self._percent_off(amount)}
            for name, amount in (("before", self.before), ("after", self.after))
        }
        if self.load_off is not None:
            for part, off in zip(held.values(), self.load_off, strict=True):
                part["load_percent_off"] = round(off * 100, 2)
        return {"id": self.id, "share_bytes": self.share, **held}

    def _percent_off(self, amount: Amount) -> float | None:
        if not self.share or amount.bytes is None:
            return None
        return round((amount.bytes - self.share) / self.share * 100, 2)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a plan costs.

    Attributes:
        pairs: the costs by source and target.
        groups: the groups by id.
        total: the bytes and keys that go from server to server, and all slots that move, also those that were offline.
        seconds: how long that takes: by the ways of the pairs, or else at the given rates; None if neither is known.
    """

    pairs: tuple[PairCost, ...]
    groups: tuple[GroupOutlook, ...]
    total: Amount
    seconds: float | None

    def to_wire(self) -> dict[str, Any]:
        """``{"pairs": [...], "groups": [...], "total": {"slots", "bytes", "keys"}, "seconds"}``."""
        return {
            "pairs": [pair.to_wire() for pair in self.pairs],
            "groups": [group.to_wire() for group in self.groups],
            "total": asdict(self.total),
            "seconds": None if self.seconds is None else round(self.seconds, 1),
        }


def forecast(
    groups: Iterable[Group],
    slots: Iterable[Slot],
    moves: Sequence[Move],
    request: PlanRequest,
    *,
    keys_per_second: float | None = None,
    bytes_per_second: float | None = None,
    ways: Mapping[Pair, Choice] | None = None,
    limits: tuple[float, float] = (0, 0),
) -> Forecast:
    """What ``moves`` cost.

    Args:
        groups: all groups; a group without servers is listed only if it has slots.
        slots: all slots.
        moves: as a planner gave them.
        request: what the planner was given.
        keys_per_second: the rate of all moves together, as measured, or the configured limit; None or 0 if not known.
        bytes_per_second: likewise. With both rates, the slower one gives the time.
        ways: how the slots of each pair of groups move.
        limits: keys and bytes a second of all moves together, as an operator set them; 0 for none.
    """
    listed = sorted(groups, key=lambda group: group.id)
    resting = sorted(slots, key=lambda slot: slot.id)
    counted = _Counted(request)
    share = shares(listed, resting, request) if request.bytes else {}
    load = loads_of(request)
    load_share = shares(listed, resting, request, load) if load else {}
    target = {move.slot: move.target for move in moves}
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for slot in resting:
        before.setdefault(slot.destination_id, []).append(slot.id)
        after.setdefault(target.get(slot.id, slot.destination_id), []).append(slot.id)
    outlooks = tuple(
        GroupOutlook(
            group.id,
            round(share[group.id]) if group.id in share else None,
            counted.amount(before.get(group.id, ())),
            counted.amount(after.get(group.id, ())),
            _load_off(load, load_share.get(group.id), before.get(group.id, ()), after.get(group.id, ())),
        )
        for group in listed
        if group.servers or group.id in before
    )
    by_pair: dict[tuple[int, int], list[int]] = {}
    for move in moves:
        by_pair.setdefault((move.source, move.target), []).append(move.slot)
    pairs = tuple(
        PairCost(*pair, counted.moved(pair[0], ids), (ways or {}).get(pair)) for pair, ids in sorted(by_pair.items())
    )
    total = Amount(
        len(moves),
        sum(pair.moved.bytes or 0 for pair in pairs) if request.bytes else None,
        sum(pair.moved.keys or 0 for pair in pairs) if request.keys else None,
    )
    seconds = _seconds_by_ways(pairs, limits)
    if seconds is None:
        seconds = _seconds(total, keys_per_second, bytes_per_second)
    return Forecast(pairs, outlooks, total, seconds)


def _load_off(
    load: Mapping[int, int], share: float | None, before: Iterable[int], after: Iterable[int]
) -> tuple[float, float] | None:
    if not share:
        return None
    has, gets = (sum(load.get(slot, 0) for slot in slots) for slots in (before, after))
    return has / share - 1, gets / share - 1


def _seconds_by_ways(pairs: Iterable[PairCost], limits: tuple[float, float]) -> float | None:
    """A group takes part in one batch at a time, but what is copied from a group is copied together. So the busiest
    group sets the time; the limits hold for all together. None unless all pairs have a forecast."""
    busy: dict[int, float] = {}
    copied: dict[int, float] = {}
    keys = size = 0
    for pair in pairs:
        if pair.source == OFFLINE:
            continue
        if pair.choice is None or (costs := pair.choice.forecast) is None:
            return None
        keys += costs.keys
        size += costs.bytes
        together = pair.choice.way is Way.STREAM
        if together:
            copied[pair.source] = max(copied.get(pair.source, 0.0), costs.seconds)
        for group_id in (pair.target,) if together else (pair.source, pair.target):
            busy[group_id] = busy.get(group_id, 0.0) + costs.seconds
    for group_id, seconds in copied.items():
        busy[group_id] = busy.get(group_id, 0.0) + seconds
    if not busy:
        return None
    return max(
        *busy.values(), *(amount / limit for amount, limit in zip((keys, size), limits, strict=True) if limit > 0)
    )


def _seconds(total: Amount, keys_per_second: float | None, bytes_per_second: float | None) -> float | None:
    known = [
        amount / rate
        for amount, rate in ((total.keys, keys_per_second), (total.bytes, bytes_per_second))
        if amount is not None and rate
    ]
    return max(known, default=None)


class _Counted:
    def __init__(self, request: PlanRequest) -> None:
        self.bytes, self.keys = request.bytes, request.keys

    def amount(self, slots: Collection[int]) -> Amount:
        """What is in some slots."""
        return Amount(
            len(slots),
            sum(self.bytes.get(slot, 0) for slot in slots) if self.bytes else None,
            sum(self.keys.get(slot, 0) for slot in slots) if self.keys else None,
        )

    def moved(self, source: int, slots: Collection[int]) -> Amount:
        """What some slots carry away from a source."""
        amount = self.amount(slots)
        if source != OFFLINE:
            return amount
        return Amount(amount.slots, None if amount.bytes is None else 0, None if amount.keys is None else 0)
