"""Why something waits, as one record. The same record goes to the log, the events, the API and the command line.

A part of topom that tries something again and again keeps :class:`Reasons`: by key, what each thing waits for, and
since when. A request that is not done gets an error instead (:mod:`topom.errors`): that is a *refusal*. Both have
``what`` and ``to_do`` as separate texts, and a :class:`~slots.kinds.Kind`.

**bounded**: while something waits for the same kind of thing, the log gets a line once in :data:`LINE_SECONDS` and the
events get one a minute, no matter how often it is tried.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import structlog

from slots.kinds import Explained, Kind

__all__ = ["Kind", "Reason", "Reasons"]

log = structlog.get_logger(__name__)

LINE_SECONDS = 10.0
"""Seconds between two log lines of one key and kind whose texts differ."""
NOTE_SECONDS = 60.0
"""Seconds between two events of one key."""

Key = TypeVar("Key")
Refusal = TypeVar("Refusal", bound=Explained)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something waits, or does not go on.

    Attributes:
        what: one sentence, without a full stop.
        since: when the wait began, in seconds since 1970, UTC; 0.0 where that is not kept yet.
        to_do: what an operator can do; empty if the wait ends by itself.
    """

    kind: Kind
    what: str
    since: float = 0.0
    to_do: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.to_do}" if self.to_do else self.what

    @classmethod
    def now(cls, kind: Kind, what: str, to_do: str = "") -> "Reason":
        """The reason of a wait that begins now."""
        return cls(kind, what, time.time(), to_do)

    @classmethod
    def of(cls, error: BaseException, since: float | None = None) -> "Reason":
        """The reason that an error gives, from now on unless ``since`` is given. An unexpected error is a fault."""
        at = time.time() if since is None else since
        if isinstance(error, Explained):
            return cls(error.kind, error.what or type(error).__name__, at, error.to_do)
        return cls(Kind.FAULT, f"{type(error).__name__}: {error}".removesuffix(": "), at)

    def to(self, refusal: type[Refusal]) -> Refusal:
        """The error for a request that this reason keeps from being done."""
        return refusal(self.what, self.to_do, kind=self.kind)

    def says(self, other: "Reason | None") -> bool:
        """Whether both say the same; when they began does not matter."""
        return other is not None and self == replace(other, since=self.since)

    def to_document(self) -> dict[str, Any]:
        """The document as the store and the API have it."""
        return asdict(self)

    @classmethod
    def from_document(cls, raw: Any) -> "Reason":
        """The reverse of :meth:`to_document`. Raises KeyError, TypeError or ValueError for anything else."""
        known = set(Kind)
        kind = Kind(raw["kind"]) if raw["kind"] in known else Kind.OPERATOR  # a newer version wrote it
        return cls(kind, str(raw["what"]), float(raw["since"]), str(raw["to_do"]))


class Reasons(Mapping[Key, Reason]):
    """Why things wait, by key.

    Args:
        news: the name of the log's line about what is new; empty for no lines.
        note: has an event stored about what is new.
        level: the level of the log's line.
    """

    def __init__(
        self,
        news: str = "",
        note: Callable[[Key, Reason], None] | None = None,
        level: str = "warning",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._news = news
        self._note = note
        self._level = level
        self._clock = clock
        self._reasons: dict[Key, Reason] = {}
        self._logged: dict[Key, tuple[float, Reason]] = {}
        self._noted: dict[Key, tuple[float, Reason]] = {}

    def __getitem__(self, key: Key) -> Reason:
        return self._reasons[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._reasons))

    def __len__(self) -> int:
        return len(self._reasons)

    def waits(self, key: Key, why: Reason | BaseException, **said: object) -> Reason:
        """Note that this key waits. A wait for the same kind keeps its beginning. ``said`` goes to the log's line."""
        new = self.waits_shortly(key, why, **said)
        now = self._clock()
        if self._note is not None and _is_news(self._noted.get(key), new, now, NOTE_SECONDS, or_kind=False):
            self._noted[key] = now, new
            self._note(key, new)
        return new

    def waits_shortly(self, key: Key, why: Reason | BaseException, **said: object) -> Reason:
        """As :meth:`waits`, for a wait that is over in moments: no event is stored about it."""
        now = self._clock()
        new = why if isinstance(why, Reason) else Reason.of(why, now)
        if not new.since:
            new = replace(new, since=now)
        old = self._reasons.get(key)
        if old is not None and old.kind == new.kind:
            new = replace(new, since=min(old.since, new.since))
        self._reasons[key] = new
        told = said or ({} if key is None else {"about": key})
        if self._news and _is_news(self._logged.get(key), new, now, LINE_SECONDS, or_kind=True):
            self._logged[key] = now, new
            getattr(log, self._level)(self._news, **told, kind=new.kind, reason=str(new))
        return new

    def over(self, key: Key) -> None:
        """Note that this key does not wait."""
        if self._reasons.pop(key, None) is not None:
            self._logged.pop(key, None)
            now = self._clock()
            # A wait that comes and goes still gets at most one event a minute.
            self._noted = {
                known: noted
                for known, noted in self._noted.items()
                if known in self._reasons or abs(now - noted[0]) < NOTE_SECONDS
            }

    def are(self, found: Mapping[Key, Reason | BaseException]) -> None:
        """Note that these keys wait, and no others."""
        self.keep_only(found)
        for key, why in found.items():
            self.waits(key, why)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget the waits of all other keys."""
        for key in self._reasons.keys() - {*keys}:
            self.over(key)


def _is_news(told: tuple[float, Reason] | None, new: Reason, now: float, seconds: float, or_kind: bool) -> bool:
    if told is None:
        return True
    at, old = told
    if or_kind and old.kind != new.kind:
        return True
    # The distance counts, so a clock that was set back silences nothing for longer.
    return not new.says(old) and abs(now - at) >= seconds
