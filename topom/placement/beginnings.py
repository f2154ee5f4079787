"""From which tables placements have begun, so that they do not go round in circles.

If a placement began from a table before, another one from that table is made ever more rarely. **bounded**: only the
newest :data:`KEPT` tables are remembered, and only for the present nodes.
"""

from dataclasses import dataclass

from topom.placement.planner import Copies

LONGEST_WAIT_SECONDS = 3600.0
KEPT = 64

Beginning = tuple[tuple[str, ...], tuple[tuple[int, Copies], ...]]
"""The nodes, and the table over groups, from which a placement began."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """When a placement last began from a table, and for how many seconds none may do so again."""

    at: float
    seconds: float


class Beginnings:
    """The tables from which one topom's placements began by themselves.

    Args:
        settle_seconds: how long the wait is after the first time; each later wait is twice the one before, plus these
            seconds.
    """

    def __init__(self, settle_seconds: float) -> None:
        self._settle_seconds = settle_seconds
        self._begun: dict[Beginning, _Begun] = {}

    def allow(self, beginning: Beginning, now: float) -> bool:
        """Whether a placement may begin from there at ``now``, in the loop's seconds."""
        last = self._begun.get(beginning)
        return last is None or now >= last.at + last.seconds

    def note(self, beginning: Beginning, now: float) -> None:
        """Note that a placement begins from there; tables with other nodes are forgotten."""
        last = self._begun.pop(beginning, None)
        kept = [(one, begun) for one, begun in self._begun.items() if one[0] == beginning[0]]
        seconds = self._settle_seconds + (2 * last.seconds if last is not None else 0.0)
        self._begun = dict(kept[-(KEPT - 1) :])
        self._begun[beginning] = _Begun(now, min(LONGEST_WAIT_SECONDS, seconds))
