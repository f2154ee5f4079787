"""Which servers have failed, judged from several views: topom's own, and those of the proxies that use the servers.

A *view* is what one process says of the servers: for how long each has not answered it. A server is

- ``unknown``: topom itself has not looked at it yet. That is so right after topom's start, and for a new server.
  Nothing is decided by it;
- ``alive``: it answers every process with a fresh view;
- ``suspected``: it has not answered some process for ``suspect_seconds``;
- ``failed``: for ``fail_seconds`` it has not answered the majority of the processes with fresh views.

A view is what its process itself had seen when it reported, and is fresh for ``fresh_seconds`` after it came. A view
that is late takes no part, so delays make no server suspected. If one link is cut, the process behind it suspects the
server, but the server does not fail. topom alone fails no server while there are proxies, even proxies that it has not
heard yet: topom itself may be cut off. A server that dies is found failed after ``fail_seconds`` and the time that
questions and reports take.

The way back needs a report, so that late reports do not change the condition back and forth. A process that has not
heard a server is held to that until it says otherwise, or is *gone*: nothing came from it for ``gone_seconds``. So

- a suspected server is alive once all processes that suspected it hear it, or are gone;
- a failed server is back once as many processes hear it as are held to not hearing it. Until no process suspects it,
  those that heard it are held to that, too. So a server that half of them can reach does not fail again and again.

Nobody knows how old a view is when it comes. Right after a server has failed, or has come back, a view that says the
opposite counts only if its process had said otherwise before, and so has seen the change. A view that comes
``late_seconds`` later was made after the change, and counts from every process.

A view says only what is not well. Of the servers that its process asks, it names those that are silent and those that
have never answered; the process hears all others. So the cost of a view grows with the servers that fail, and not with
all servers. The epoch of a process's table says which servers it asks: those that were in the table at that epoch.

Pure: the caller brings the time.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

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
        """How long a view may be on its way."""
        return 2 * self.fresh_seconds

    @property
    def gone_seconds(self) -> float:
        """After so long without a view, its process is gone, and is held to nothing."""
        return 3 * self.fresh_seconds


@dataclass(frozen=True, slots=True)
class Judgement:
    """The condition of a server, and how many views find it failed: ``silent`` of ``views``.

    The views are the fresh ones, and older ones of processes that are held to not hearing it. ``doubted``: in the
    majority of fresh views the server is at least suspected, so it may be about to fail.
    """

    condition: Condition
    silent: int
    views: int
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class _View:
    """What a process said, when that came, and for each server when it last changed its word on whether it hears it.

    ``epoch``: the epoch of the table whose servers it asks. ``silent``: how long each server that it does not hear has
        been silent. ``unanswered``: servers that have never answered it. For these only what is in ``silent`` counts,
        because their silence may only have begun when it began to ask.
    """

    at: float
    epoch: float
    silent: Mapping[str, float]
    unanswered: frozenset[str]
    turned: Mapping[str, float]

    @property
    def odd(self) -> frozenset[str]:
        """All servers except those that it hears."""
        return self.unanswered | self.silent.keys()


class Detector:
    """The views, and what follows from them."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._views: dict[str, _View] = {}
        self._expected: set[str] = set()
        self._servers: dict[str, float] = {}
        """Servers that are judged, each with the epoch since which processes ask it; infinity if only topom asks."""
        self._odd: Counter[str] = Counter()
        """For each server, how many views say anything except that they hear it."""
        self._changes: dict[str, tuple[bool, float]] = {}
        """For each server that has failed, until all hear it again: whether it is failed now, and since when."""

    def judge_only(self, servers: Mapping[str, float]) -> None:
        """Judge these servers, and forget all others.

        Args:
            servers: for each address, the epoch of the table with which the server came in; infinity for a server in no
                table.
        """
        self._servers = dict(servers)
        self._changes = {server: change for server, change in self._changes.items() if server in servers}

    def report(
        self, viewer: str, silent: Mapping[str, float], now: float, epoch: float, unanswered: Collection[str] = ()
    ) -> None:
        """Take the view that a process reports ``now``.

        Args:
            silent: seconds since the latest answer of each server that has been silent for ``suspect_seconds``.
            epoch: the epoch of the table whose servers it asks; infinity for a process that asks all.
            unanswered: servers that have never answered it.
        """
        before = self._views.get(viewer)
        view = _View(now, epoch, silent, frozenset(unanswered), {})
        if before is not None:
            late = self._settings.late_seconds
            # After so long, a changed word counts like all else in this view.
            turned = {server: at for server, at in before.turned.items() if now < at + late}
            for server in before.silent.keys() | silent.keys():
                was, is_now = self._silence(before, server), self._silence(view, server)
                if was is not None and is_now is not None and self._hears(was) is not self._hears(is_now):
                    turned[server] = now
            view = _View(now, epoch, silent, view.unanswered, turned)
            self._odd.subtract(before.odd)
        self._odd.update(view.odd)
        self._views[viewer] = view
        if viewer != OWN:
            self._expected.add(viewer)

    def keep_only(self, viewers: Iterable[str]) -> None:
        """Expect the views of these members, whether they have come yet or not, and forget all other views."""
        self._expected = {*viewers} - {OWN}
        for viewer in self._views.keys() - self._expected - {OWN}:
            self._odd.subtract(self._views.pop(viewer).odd)

    def silence(self, server: str, now: float) -> float:
        """How long a server has been silent at least: by the proxy that heard it last, or by topom's own view if there
        are no proxies. Before that silence it may have acknowledged writes. A proxy that has just begun to ask, and was
        not answered, does not count. Right after topom's own start it may not be known of any proxy whether the server
        answered it. Then the silence in the middle counts: a proxy may have begun just now, or be cut off for long.
        """
        others, answered = [], []
        for viewer, view in self._views.items():
            silence = self._silence(view, server)
            if viewer == OWN or silence is None:
                continue
            others.append(silence + now - view.at)
            if server not in view.unanswered:
                answered.append(silence + now - view.at)
        if answered:
            return min(answered)
        if others:
            return median_low(others)
        own = self._views.get(OWN)
        silence = self._silence(own, server) if own is not None else None
        return silence + now - own.at if own is not None and silence is not None else 0.0

    def judge_all(self, now: float) -> tuple[Mapping[str, Judgement], Judgement]:
        """The judgements at ``now``: by server, of those that some process does not hear, or did not hear until lately;
        and one judgement of all others.

        The outcome is remembered, so no earlier time may follow.
        """
        odd = [server for server, views in self._odd.items() if views and server in self._servers]
        found = {server: self.judge(server, now) for server in sorted({*odd, *self._changes})}
        fresh = sum(now - view.at <= self._settings.fresh_seconds for view in self._views.values())
        for server in [server for server, views in self._odd.items() if not views]:
            del self._odd[server]
        return found, Judgement(Condition.ALIVE if OWN in self._views else Condition.UNKNOWN, 0, fresh)

    def _hears(self, silence: float) -> bool:
        return silence < self._settings.suspect_seconds

    def _silence(self, view: _View, server: str) -> float | None:
        """How long a server has been silent by a view, 0 if the process hears it; None if the view does not tell."""
        since = self._servers.get(server)
        # The process did not ask the server before its table had it.
        if since is None or view.epoch < since:
            return None
        return view.silent.get(server, None if server in view.unanswered else 0.0)

    def judge(self, server: str, now: float) -> Judgement:
        """The judgement of a server at ``now``. It is remembered, so no earlier time may follow."""
        settings = self._settings
        failed, changed_at = self._changes.get(server, (False, -math.inf))
        fresh = others_fresh = doubting = silent = silent_anew = hearing_anew = held = held_silent = held_hearing = 0
        looked = False
        for viewer, view in self._views.items():
            silence = self._silence(view, server)
            age = now - view.at
            if silence is None or age > settings.gone_seconds:
                continue
            hears = self._hears(silence)
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
