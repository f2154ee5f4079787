"""How many leaders and followers a node may have at rest.

The marks are a part (``watermark``, by default 10%) below and above the even share. They are rounded outwards, as
SOFARegistry does: low is rounded down from the share rounded down, high is rounded up from the share rounded up. They
are at least one off the share (but never below 0), so that a table within them always exists.

*Strict* marks are rounded inwards, for small shares where one more or less is much: low is rounded up from the share
rounded down, high is rounded down from the share rounded up. The share itself, rounded down or up, is always within.
Only with three copies and more may followers be further off by one: if a node with an even share of copies follows so
many when it leads its part of them, for instance a third.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Band:
    """From ``low`` to ``high``, both included."""

    low: int
    high: int

    def holds(self, count: int) -> bool:
        """Whether ``count`` is within."""
        return self.low <= count <= self.high


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a node may have at rest.

    Attributes:
        leaders: slots led.
        followers: slots followed.
        copies: copies held. If all nodes of a table are within, promotions alone can bring leaders and followers into
            their bands: every node can lead ``1 / copies of a slot`` of what it holds, rounded up or down, because that
            is a flow whose fractions can be made whole.
    """

    leaders: Band
    followers: Band
    copies: Band

    @property
    def widest(self) -> Band:
        """How many copies a node may hold at all; whether leaders and followers then fit must be tried."""
        return Band(self.leaders.low + self.followers.low, self.leaders.high + self.followers.high)


def floor(total: int, nodes: int, percent: int) -> int:
    """SOFARegistry's low watermark around the even share of ``total`` among ``nodes``."""
    return total // nodes * (100 - percent) // 100


def ceiling(total: int, nodes: int, percent: int) -> int:
    """SOFARegistry's high watermark."""
    return -(-(-(-total // nodes) * (100 + percent)) // 100)


def band(total: int, nodes: int, percent: int, strict: bool = False) -> Band:
    """The band around the even share of ``total`` among ``nodes``, ``percent`` wide on both sides."""
    if strict:
        below, above = total // nodes, -(-total // nodes)
        return Band(-(-below * (100 - percent) // 100), above * (100 + percent) // 100)
    low = min(floor(total, nodes, percent), total // nodes - 1)
    high = max(ceiling(total, nodes, percent), -(-total // nodes) + 1)
    return Band(max(low, 0), high)


def watermarks(slots: int, copies: int, nodes: int, percent: int, strict: bool = False) -> Watermarks:
    """The marks of a table with ``copies`` copies of each slot, its leader's among them, on ``nodes`` nodes."""
    leaders = band(slots, nodes, percent, strict)
    followers = band(slots * (copies - 1), nodes, percent, strict) if copies > 1 else Band(0, 0)
    lowest, highest = slots * copies // nodes, -(-slots * copies // nodes)
    if copies > 1:
        # Strict marks may leave no room for the slots that a node with its share of copies follows when it leads its
        # part.
        followers = Band(
            min(followers.low, *(held - -(-held // copies) for held in (lowest, highest))),
            max(followers.high, *(held - held // copies for held in (lowest, highest))),
        )

    def safe(held: int) -> bool:
        led, rest = held // copies, held % copies
        most = led + (rest > 0)
        return (
            leaders.holds(led) and leaders.holds(most) and followers.holds(held - led) and followers.holds(held - most)
        )

    while lowest > 0 and safe(lowest - 1):
        lowest -= 1
    while safe(highest + 1):
        highest += 1
    return Watermarks(leaders, followers, Band(lowest, highest))
