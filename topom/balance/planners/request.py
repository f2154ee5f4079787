"""What a planner takes into account besides groups and slots, and what it gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slots import ranges
from topom.cluster.topology import Move
from topom.errors import Invalid

DEFAULT_TOLERANCE = 0.05
MOST = 2**63 - 1
"""The largest allowed number of bytes or keys, and the largest allowed capacity."""

REQUEST_BYTES = 8192
"""So many bytes of requests and replies cost a server about what one request costs: 8 microseconds, at 1 GB/s."""


class InvalidPlanRequest(Invalid):
    """No plan could fulfil this request."""


class SlotLoad(NamedTuple):
    """What clients ask of a slot, each a second: requests, and the bytes of requests and of replies."""

    requests: float
    bytes_in: float = 0.0
    bytes_out: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is known of the slots, and what the operator wants.

    Attributes:
        loads: the load of each slot, by slot; a missing slot has none.
        hot_keys: the key that is asked for most, by slot, as text, and its requests a second; for sentences only.
        bytes: memory of each slot's keys, by slot; a missing slot counts as empty.
        keys: number of each slot's keys, by slot; for the forecast only.
        capacity: weight of each group, by group; a missing group has the mean of those given, or 1. A group's share of
            all bytes, and of all load, is its weight's part of all weights.
        tolerance: which part of its share a group's bytes may differ from it. A group's load may be above its share by
            that part.
        most_slots: a plan has at most so many moves; None for no limit.
        most_bytes: a plan moves at most so many bytes; None for no limit. An offline slot moves no bytes.
        drain: groups that should have nothing left.
        even_memory: whether a plan by load also has groups with too much memory give slots away.
        keep: slots that stay where they are if they are in a group that is not drained; for plans by load only.
        closed: groups that get no slot, though they may give some; for plans by load only.
        barred: slots that a group does not get from another one that is not drained, by group; for plans by load only.
    """

    loads: Mapping[int, SlotLoad] = field(default_factory=dict)
    hot_keys: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    bytes: Mapping[int, int] = field(default_factory=dict)
    keys: Mapping[int, int] = field(default_factory=dict)
    capacity: Mapping[int, float] = field(default_factory=dict)
    tolerance: float = DEFAULT_TOLERANCE
    most_slots: int | None = None
    most_bytes: int | None = None
    drain: frozenset[int] = frozenset()
    even_memory: bool = True
    keep: frozenset[int] = frozenset()
    closed: frozenset[int] = frozenset()
    barred: Mapping[int, Collection[int]] = field(default_factory=dict)

    def check(self, known: Collection[int]) -> None:
        """Raise :class:`InvalidPlanRequest` for what makes no sense; ``known`` are the ids of all groups."""
        if not 0 <= self.tolerance <= 1:
            raise InvalidPlanRequest(
                f"the tolerance is {self.tolerance}; it is a part of a group's share, from 0 to 1: 0.05 is 5%"
            )
        for name, limit in (("slots", self.most_slots), ("bytes", self.most_bytes)):
            if limit is not None and limit < 0:
                raise InvalidPlanRequest(f"the limit of {name} is {limit}; it has to be 0 or more")
        for group_id, weight in sorted(self.capacity.items()):
            if not 0 < weight <= MOST:
                raise InvalidPlanRequest(
                    f"the capacity of group {group_id} is {weight}; it has to be a number above 0 and below 2^63. "
                    "A group that is to have nothing is drained"
                )
        for what, counts in (("bytes", self.bytes), ("keys", self.keys)):
            wrong = min((slot for slot, count in counts.items() if not 0 <= count <= MOST), default=None)
            if wrong is not None:
                raise InvalidPlanRequest(f"slot {wrong} has {counts[wrong]} {what}; that has to be from 0 to 2^63-1")
        for slot, load in sorted(self.loads.items()):
            if not all(0 <= part <= MOST for part in load):
                raise InvalidPlanRequest(
                    f"slot {slot} has a load of {tuple(load)}; each part has to be from 0 to 2^63-1"
                )
        for what, named in (("be drained", self.drain), ("have a capacity", self.capacity)):
            unknown = sorted(set(named) - set(known))
            if unknown:
                raise InvalidPlanRequest(
                    f"group {unknown[0]} is to {what}, but there is no such group; there are {ranges.show(known)}"
                )


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, and sentences that say why they do not do more.

    Attributes:
        moves: by ascending slot.
        reasons: the sentences; empty if the request is fulfilled.
    """

    moves: tuple[Move, ...]
    reasons: tuple[str, ...] = ()


def load_of(load: SlotLoad | None) -> int:
    """The load of a slot as one number, in bytes a second; a request counts as :data:`REQUEST_BYTES`."""
    if load is None:
        return 0
    return round(load.requests * REQUEST_BYTES + load.bytes_in + load.bytes_out)


def loads_of(request: PlanRequest) -> dict[int, int]:
    """The load of each slot that has one."""
    return {slot: number for slot, load in request.loads.items() if (number := load_of(load))}
