"""Which servers have failed, judged from several views: topom's own, and those of the proxies that use them.

A *view* is what one process says of the servers: for how long each has not answered it. A server is

- ``unknown``: topom itself has not looked at it yet, which is so right after its start and for a new server. Nobody
  decides anything upon that;
- ``alive``: it answers everybody whose view is fresh;
- ``suspected``: it has not answered somebody for ``suspect_seconds``;
- ``failed``: it has not answered the majority of those whose views are fresh for ``fail_seconds``.

A view is what its process has seen itself by the time that it said so, and counts only for ``fresh_seconds`` after it
came. So one that is late takes no part: delays make nobody suspected. One cut link makes a server suspected for who is
behind it, and does not fail it. topom alone fails no server as long as there are proxies, heard of yet or not: it may
be topom that is cut off. A server that dies is found failed within ``fail_seconds``, and as long as questions and
reports take.

Pure: whoever uses it brings the time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

OWN = "topom"
"""The name of topom's own view."""


class Condition(StrEnum):
    """What is thought of a server."""

    UNKNOWN = "unknown"
    ALIVE = "alive"
    SUSPECTED = "suspected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """Seconds of silence after which a server is suspected, and failed; seconds for which a view is fresh."""

    suspect_seconds: float = 2.0
    fail_seconds: float = 5.0
    fresh_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of a server, and by how many: ``silent`` of ``views`` fresh views have it failed."""

    condition: Condition
    silent: int
    views: int


class Detector:
    """The views, and what follows from them."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._views: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._expected: set[str] = set()

    def report(self, viewer: str, silences: Mapping[str, float], now: float) -> None:
        """Take a view: seconds since each server's latest answer to ``viewer``, as it says at ``now``."""
        self._views[viewer] = (now, silences)
        if viewer != OWN:
            self._expected.add(viewer)

    def keep_only(self, viewers: Iterable[str]) -> None:
        """Expect these views, whether they have come yet or not, and forget those of all others, members no more."""
        self._expected = {*viewers} - {OWN}
        kept = {*self._expected, OWN}
        self._views = {viewer: view for viewer, view in self._views.items() if viewer in kept}

    def judge(self, server: str, now: float) -> Judgement:
        """What is thought of a server at ``now``."""
        settings = self._settings
        silences = []
        others_fresh = 0
        looked = False
        for viewer, (at, view) in self._views.items():
            silence = view.get(server)
            if silence is None:
                continue
            fresh = now - at <= settings.fresh_seconds
            others_fresh += viewer != OWN and fresh
            looked |= viewer == OWN and fresh
            if fresh:
                silences.append(silence)
        silent = sum(silence >= settings.fail_seconds for silence in silences)
        doubted = any(silence >= settings.suspect_seconds for silence in silences)
        if not looked:
            condition = Condition.UNKNOWN
        elif 2 * silent > len(silences) and (others_fresh or not self._expected):
            condition = Condition.FAILED
        else:
            condition = Condition.SUSPECTED if doubted else Condition.ALIVE
        return Judgement(condition, silent, len(silences))
