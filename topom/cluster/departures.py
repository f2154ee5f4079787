"""Which groups each slot has left within a day, so that nothing that moves slots by itself sends one back.

**bounded**: at most :data:`KEPT_MOST`, of which the oldest are forgotten first.
"""

from collections.abc import Collection, Mapping

from slots.slot import MAXIMUM_SLOTS

KEPT_SECONDS = 86_400.0
"""How long it is known that a slot has left a group."""
KEPT_MOST = MAXIMUM_SLOTS
"""How many departures are known at most."""

Departures = Mapping[int, Mapping[int, float]]
"""By group, the slots that have left it, and when they came to rest elsewhere, in seconds since 1970."""


def added(known: Departures, group_id: int, slots: Collection[int], now: float) -> dict[int, dict[int, float]]:
    """What is known once these slots have left a group, too, without what is older than :data:`KEPT_SECONDS`."""
    kept = {one: found for one, left in known.items() if (found := recent(left, now))}
    kept[group_id] = {**kept.get(group_id, {}), **dict.fromkeys(slots, now)}
    if sum(map(len, kept.values())) > KEPT_MOST:
        oldest = sorted(at for left in kept.values() for at in left.values())[-KEPT_MOST - 1]
        kept = {one: {slot: at for slot, at in left.items() if at > oldest} for one, left in kept.items()}
    return kept


def recent(left: Mapping[int, float], now: float) -> dict[int, float]:
    """Those slots that have left a group within :data:`KEPT_SECONDS`. A clock may have been set, ahead or back."""
    return {slot: at for slot, at in left.items() if abs(now - at) < KEPT_SECONDS}
