"""The hours of the day in which keys may move, such as ``22:00-06:00``.

They are hours of the clock on the wall in one time zone. Only what the clock shows at a moment decides. That holds
through a change to or from summer time, when an hour comes twice or not at all, and when the computer's clock is set.
So nothing is planned ahead; callers ask often.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from topom.errors import InvalidHours
from topom.reasons import Kind

DAY_MINUTES = 24 * 60
MOST_SPANS = 24
LONGEST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Hours:
    """Spans of the day: from one minute up to another one, which is outside. A span that ends before it begins ends
    tomorrow.

    Attributes:
        spans: minutes since midnight; no spans mean always.
        zone: None for the local time of this computer.
    """

    spans: tuple[tuple[int, int], ...] = ()
    zone: ZoneInfo | None = None

    @classmethod
    def parse(cls, text: str, zone: str = "") -> "Hours":
        """``22:00-06:00``, or several with commas; "" is always. ``zone`` as ``Europe/Paris``; "" is local time.

        Raises:
            InvalidHours: the text or the zone cannot be read.
        """
        if len(text) > LONGEST_TEXT:
            raise InvalidHours(f"hours of more than {LONGEST_TEXT} characters")
        spans = tuple(_span(part.strip()) for part in text.split(",")) if text.strip() else ()
        if len(spans) > MOST_SPANS:
            raise InvalidHours(f"there are {len(spans)} spans of hours; {MOST_SPANS} may be given")
        return cls(spans, _zone(zone))

    def include(self, moment: float) -> bool:
        """Whether a moment, in seconds since 1970, is within the hours."""
        if not self.spans:
            return True
        shown = datetime.fromtimestamp(moment, self.zone)
        minute = shown.hour * 60 + shown.minute
        return any(
            begin <= minute < end if begin < end else minute >= begin or minute < end for begin, end in self.spans
        )

    def next_beginning(self, moment: float) -> float | None:
        """When the hours next begin after a moment outside them, in seconds since 1970. None if the moment is within.

        It holds as long as nobody sets the clock.
        """
        if self.include(moment):
            return None
        today = datetime.fromtimestamp(moment, self.zone).date()
        closed = moment
        for candidate in self._beginnings(today, moment):
            if self.include(candidate):
                return self._first_within(closed, candidate)
            closed = candidate
        return None

    def _beginnings(self, today: date, after: float) -> Sequence[float]:
        """The moments at which the clock may show a beginning in the next days. One that comes twice is given twice."""
        found = set()
        for days in range(3):
            day = today + timedelta(days=days)
            for begin, _ in self.spans:
                for fold in (0, 1):
                    shown = datetime(day.year, day.month, day.day, begin // 60, begin % 60, tzinfo=self.zone, fold=fold)
                    found.add(shown.timestamp())
        return sorted(moment for moment in found if moment > after)

    def _first_within(self, closed: float, within: float) -> float:
        """The second at which the hours begin, between a moment outside and one within.

        That is ``within`` itself, unless the clock leaps over the beginning. Then the hours begin with the leap.
        """
        if not self.include(within - 1):
            return within
        while within - closed > 1:
            middle = (closed + within) // 2
            if self.include(middle):
                within = middle
            else:
                closed = middle
        return within


@dataclass(frozen=True, slots=True)
class Halt:
    """Why no keys move except those that clients ask for.

    Attributes:
        kind: an operator has paused migration, or it is outside the hours, or the hours cannot be read.
        what, to_do: as :class:`topom.reasons.Reason` has them.
        until: when the halt ends by itself, in ISO 8601 with the distance from UTC; None if it does not.
        since: when it began, in seconds since 1970, UTC; 0.0 where that is not kept.
    """

    kind: Kind
    what: str
    to_do: str = ""
    until: str | None = None
    since: float = 0.0


def halt(paused: bool, hours: str, zone: str, now: float | None = None) -> Halt | None:
    """What keeps keys from moving at a moment, by default now; None if nothing does."""
    if paused:
        return Halt(Kind.PAUSED, "migration is paused", "slotferry migration resume")
    try:
        allowed = Hours.parse(hours, zone)
    except InvalidHours as error:  # they were set on another computer, which could read them
        return Halt(Kind.OPERATOR, f"the hours of migration cannot be read ({error})", "set them anew")
    moment = time.time() if now is None else now
    if allowed.include(moment):
        return None
    beginning = allowed.next_beginning(moment)
    if beginning is None:  # the clock leaps over these hours; all others begin within three days
        return Halt(Kind.HOURS, f"migration is outside its hours, {hours}")
    until = datetime.fromtimestamp(beginning, allowed.zone).astimezone(allowed.zone)
    return Halt(
        Kind.HOURS,
        f"migration is outside its hours, {hours}; it goes on at {until.isoformat(sep=' ', timespec='minutes')}",
        until=until.isoformat(timespec="seconds"),
    )


def _span(text: str) -> tuple[int, int]:
    begin, dash, end = text.partition("-")
    if not dash:
        raise InvalidHours(f"{text!r} is not a span of hours such as 22:00-06:00")
    span = _minute(begin.strip()), _minute(end.strip())
    if span[0] == DAY_MINUTES or span[0] == span[1]:
        raise InvalidHours(f"the span {text!r} has no minute in it; leave the hours empty for always")
    return span


def _minute(text: str) -> int:
    hour, colon, minute = text.partition(":")
    if colon and len(hour) in (1, 2) and len(minute) == 2 and (hour + minute).isascii() and (hour + minute).isdigit():
        minutes = int(hour) * 60 + int(minute)
        if int(minute) < 60 and minutes <= DAY_MINUTES:
            return minutes
    raise InvalidHours(f"{text!r} is not a time of the day such as 22:00")


def _zone(name: str) -> ZoneInfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidHours(f"this computer knows no time zone {name!r}; a name is, for example, Europe/Paris") from None
