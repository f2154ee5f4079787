"""The last day by minute, of groups, servers, proxies, users and slots.

Each topom of several has one, for as long as its process lives: the one that leads adds what it measures, and the
others ask it for that (:mod:`topom.load.minutes`). So the next one that leads does not begin with an empty day. A
minute that nobody measured is not there.

**bounded**: :data:`~topom.load.measured.DAY_MINUTES` minutes. None is shown that is older than a day before the newest
one; they stay here, for the newest may be of a clock that is soon set back.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from topom.load.measured import DAY_MINUTES, MINUTE, Kept, Minute

Kind = Literal["groups", "servers", "proxies", "users", "slots"]
KINDS: Final[tuple[Kind, ...]] = ("groups", "servers", "proxies", "users", "slots")


class DayMinute(NamedTuple):
    """A minute that has ended.

    Attributes:
        began_at: seconds since 1970, UTC.
        kept: what is kept of each kind.
    """

    began_at: float
    kept: Mapping[Kind, Kept[Any]]


class Day:
    """The minutes, the oldest first."""

    def __init__(self) -> None:
        self._minutes: deque[DayMinute] = deque(maxlen=DAY_MINUTES)

    @property
    def latest(self) -> DayMinute | None:
        """The newest minute."""
        return self._minutes[-1] if self._minutes else None

    @property
    def newest_at(self) -> float:
        """When the newest minute began; 0 if there is none."""
        return self._minutes[-1].began_at if self._minutes else 0.0

    def newest(self, kind: Kind, most: int) -> list[Minute[Any]]:
        """Of a kind, those of the last so many minutes, the oldest first. One that nobody measured is not there."""
        least = self.newest_at - most * MINUTE
        return [Minute(minute.began_at, *minute.kept[kind]) for minute in self.after(least)]

    def after(self, began_at: float) -> list[DayMinute]:
        """The minutes of the day that began later."""
        # An answer is written on a thread, while minutes come.
        minutes = list(self._minutes)
        least = max(began_at, minutes[-1].began_at - DAY_MINUTES * MINUTE) if minutes else 0.0
        return [minute for minute in minutes if minute.began_at > least]

    def add(self, minute: DayMinute) -> None:
        """Add a minute that was measured here. If the clock was set back, later ones go: their times were wrong. Of one
        that is there, another topom measured the beginning, and it stays."""
        while self.newest_at > minute.began_at:
            self._minutes.pop()
        self.take((minute,))

    def take(self, minutes: Iterable[DayMinute]) -> None:
        """Add those that are newer than all that are here. They come in order."""
        for minute in minutes:
            if not self._minutes or minute.began_at > self.newest_at:
                self._minutes.append(minute)
