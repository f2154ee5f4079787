"""Which servers have failed, judged from several views: topom's own, and those of the proxies that use them.

A *view* is what one process says of the servers: for how long each has not answered it. A server is

- ``unknown``: topom itself has not looked at it yet, which is so right after its start and for a new server. Nobody
  decides anything upon that;
- ``alive``: it answers everybody whose view is fresh;
- ``suspected``: it has not answered somebody for ``suspect_seconds``;
- ``failed``: it has not answered the majority of those whose views are fresh for ``fail_seconds``.

A view is what its process has seen itself by the time that it said so, and is fresh for ``fresh_seconds`` after it
came. So one that is late takes no part: delays make nobody suspected. One cut link makes a server suspected for who is
behind it, and does not fail it. topom alone fails no server as long as there are proxies, heard of yet or not: it may
be topom that is cut off. A server that dies is found failed within ``fail_seconds``, and as long as questions and
reports take.

The way back takes somebody's word, so that reports that are late change nothing back and forth. Who has not heard a
server is held to it until it says otherwise, or is *gone*: nothing came from it for ``gone_seconds``. So

- a suspected server is alive once all that suspected it hear it, or are gone;
- a failed one is so no more once as many hear it as are held to not hearing it. Until nobody suspects it any more,
  those that heard it are held to that, too: where half can reach a server, it does not fail again and again.

Nobody knows how long ago a view was said that comes now. Right after a server has failed, or has come back, a word on
the other side counts only from who said the opposite before, and so has seen the change; what comes ``late_seconds``
later has been said since, and counts from everybody.

Pure: whoever uses it brings the time.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

from slots.probing import UNANSWERED_SECONDS

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

    @property
    def late_seconds(self) -> float:
        """How long a view may have been on its way."""
        return 2 * self.fresh_seconds

    @property
    def gone_seconds(self) -> float:
        """After so long without a view, its process is held to nothing any more."""
        return 3 * self.fresh_seconds


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of a server, and by how many: ``silent`` of ``views`` views have it failed.

    Those are the fresh ones, and older ones of processes that are held to not hearing it.
    ``doubted``: the majority of fresh views has it at least suspected, so that it may be about to fail.
    """

    condition: Condition
    silent: int
    views: int
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class _View:
    """What a process said, when that came, and when it last said otherwise than before whether it hears a server.

    ``answered``: servers that have surely answered it; of others, it may have begun to ask when it says they fell
    silent.
    """

    at: float
    silences: Mapping[str, float]
    turned: Mapping[str, float]
    answered: frozenset[str]


class Detector:
    """The views, and what follows from them."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._views: dict[str, _View] = {}
        self._expected: set[str] = set()
        self._changes: dict[str, tuple[bool, float]] = {}
        """Of each server that has failed, until all hear it again: whether it still does, and since when that is so."""

    def report(self, viewer: str, silences: Mapping[str, float], now: float) -> None:
        """Take a view: seconds since each server's latest answer to ``viewer``, as it says at ``now``."""
        before = self._views.get(viewer)
        turned: dict[str, float] = {}
        answered = {server for server, silence in silences.items() if silence < UNANSWERED_SECONDS}
        if before is not None:
            answered |= before.answered & silences.keys()
            limit = self._settings.suspect_seconds
            turned = {server: at for server, at in before.turned.items() if server in silences}
            for server, silence in silences.items():
                was = before.silences.get(server)
                if was is not None and (was < limit) is not (silence < limit):
                    turned[server] = now
        self._views[viewer] = _View(now, silences, turned, frozenset(answered))
        if viewer == OWN:
            self._changes = {server: change for server, change in self._changes.items() if server in silences}
        else:
            self._expected.add(viewer)

    def keep_only(self, viewers: Iterable[str]) -> None:
        """Expect these views, whether they have come yet or not, and forget those of all others, members no more."""
        self._expected = {*viewers} - {OWN}
        kept = {*self._expected, OWN}
        self._views = {viewer: view for viewer, view in self._views.items() if viewer in kept}

    def silence(self, server: str, now: float) -> float:
        """For how long a server has been silent, by the proxy that heard it last; by topom's own view without any.

        Until then it may have acknowledged writes. A proxy that has just begun to ask, and was not answered, says
        nothing of that. Where it is not known of any whether it was, as of all when topom has begun just now, the one
        in the middle counts: single ones may have begun just now, or have been cut off for long.
        """
        others = {viewer: view for viewer, view in self._views.items() if viewer != OWN and server in view.silences}
        answered = [view for view in others.values() if server in view.answered]
        if answered:
            return min(view.silences[server] + now - view.at for view in answered)
        if others:
            return median_low([view.silences[server] + now - view.at for view in others.values()])
        own = self._views.get(OWN)
        return own.silences[server] + now - own.at if own is not None and server in own.silences else 0.0

    def judge(self, server: str, now: float) -> Judgement:
        """What is thought of a server at ``now``, which is remembered: no earlier time may follow."""
        settings = self._settings
        failed, changed_at = self._changes.get(server, (False, -math.inf))
        fresh = others_fresh = doubting = silent = silent_anew = hearing_anew = held = held_silent = held_hearing = 0
        looked = False
        for viewer, view in self._views.items():
            silence = view.silences.get(server)
            age = now - view.at
            if silence is None or age > settings.gone_seconds:
                continue
            hears = silence < settings.suspect_seconds
            is_silent = silence >= settings.fail_seconds
            if age > settings.fresh_seconds:
                held += not hears
                held_silent += is_silent
                held_hearing += hears
                continue
            fresh += 1
            looked |= viewer == OWN
            others_fresh += viewer != OWN
            doubting += not hears
            silent += is_silent
            if (
                viewer == OWN
                or view.turned.get(server, -math.inf) > changed_at
                or view.at >= changed_at + settings.late_seconds
            ):
                silent_anew += is_silent
                hearing_anew += hears
        if failed:
            changed = hearing_anew > 0 and hearing_anew >= doubting + held
        else:
            asked = fresh + (held_hearing if server in self._changes else 0)
            changed = 2 * silent_anew > asked and (others_fresh > 0 or not self._expected)
        if changed and looked:
            failed = not failed
            self._changes[server] = (failed, now)
        if not looked:
            condition = Condition.UNKNOWN
        elif failed:
            condition = Condition.FAILED
        else:
            condition = Condition.SUSPECTED if doubting + held else Condition.ALIVE
            if condition is Condition.ALIVE and now >= changed_at + settings.late_seconds:
                self._changes.pop(server, None)
        return Judgement(condition, silent + held_silent, fresh + held, 2 * doubting > fresh)
