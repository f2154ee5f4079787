"""What planning needs of the measured load, which another room keeps."""

from collections.abc import Sequence
from typing import Protocol

from slots.keynames import readable
from topom.balance.planners.request import SlotLoad
from topom.errors import Conflict

LEAST_MEASURED_SECONDS = 60.0
"""How long load has to be measured until an operator's plan by load is made."""
MOST_KEY = 64
"""Characters of a key's name in a sentence."""


class NotMeasured(Conflict):
    """An operator wants a plan by load, and the load was not measured for long enough."""


class AskedKey(Protocol):
    """A key that clients ask for much: its slot, its first bytes, and requests a second."""

    @property
    def slot(self) -> int: ...

    @property
    def key(self) -> bytes: ...

    @property
    def rate(self) -> float: ...


class MeasuredLoads(Protocol):
    """The load of each slot, as all proxies have counted it."""

    @property
    def measured_seconds(self) -> float:
        """How long it was measured without a gap; 0 if it is not."""

    @property
    def whole_seconds(self) -> float:
        """For how long every proxy has told, without a gap, what it counted."""

    def slots(self) -> Sequence[tuple[float, float, float]]:
        """By slot: requests, bytes of requests and bytes of replies, a second of late."""

    def hot_keys(self) -> Sequence[AskedKey]:
        """The keys that are asked for most, the hottest first."""


def require(loads: MeasuredLoads) -> None:
    """Raise :class:`NotMeasured` if load was not measured for :data:`LEAST_MEASURED_SECONDS`."""
    measured, least_seconds = loads.measured_seconds, LEAST_MEASURED_SECONDS
    if not measured:
        raise NotMeasured(
            "the load of slots is not measured: no proxy has told any yet. A plan by load needs proxies that are "
            f"registered, and {least_seconds:g} s"
        )
    if measured < least_seconds:
        raise NotMeasured(
            f"the load of slots has been measured for {measured:.0f} s, and a plan by load needs {least_seconds:g} s; "
            f"try again in {least_seconds - measured:.0f} s"
        )


def doubts(loads: MeasuredLoads) -> list[str]:
    """Sentences that say how far measured load can be trusted."""
    if loads.whole_seconds >= LEAST_MEASURED_SECONDS:
        return []
    return [
        f"not every proxy has told its load for {LEAST_MEASURED_SECONDS:g} s without a gap, so the load may be of some "
        "clients only; `slotferry proxy list` shows whether a proxy is lost"
    ]


def slot_loads(loads: MeasuredLoads) -> dict[int, SlotLoad]:
    """The load of each slot that has any."""
    return {slot: SlotLoad(*parts) for slot, parts in enumerate(loads.slots()) if any(parts)}


def hottest(loads: MeasuredLoads) -> dict[int, tuple[str, float]]:
    """The key that is asked for most, by slot, as text, and its requests a second."""
    found: dict[int, tuple[str, float]] = {}
    for one in loads.hot_keys():
        found.setdefault(one.slot, (readable(one.key, MOST_KEY), one.rate))
    return found
