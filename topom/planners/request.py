"""What a planner may take into account besides groups and slots, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topom.topology import Move

DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is known of the slots, and what is wished.

    Attributes:
        bytes: memory of each slot's keys, by slot; a slot that is missing counts as empty.
        keys: number of each slot's keys, by slot; for the forecast only.
        capacity: weight of each group, by group; a group that is missing has the mean of those given, or 1. A group's
            share of all bytes is its weight's share of all weights.
        tolerance: by how much of its share a group's bytes may differ from it.
        most_slots: a plan has so many moves at most; None for no limit.
        most_bytes: a plan moves so many bytes at most; None for no limit.
        drain: groups that are to have nothing left.
    """

    bytes: Mapping[int, int] = field(default_factory=dict)
    keys: Mapping[int, int] = field(default_factory=dict)
    capacity: Mapping[int, float] = field(default_factory=dict)
    tolerance: float = DEFAULT_TOLERANCE
    most_slots: int | None = None
    most_bytes: int | None = None
    drain: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, and in words why they do not do more.

    Attributes:
        moves: by ascending slot.
        reasons: sentences; empty when every wish is fulfilled.
    """

    moves: tuple[Move, ...]
    reasons: tuple[str, ...] = ()
