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

A view says only what is not well: of the servers that its process asks, it names those that are silent and those that
have never answered; it hears all others. So what a view costs grows with the servers that fail, and not with all.
Which servers a process asks is said by the epoch of its table: those that were in the table by then.

Pure: whoever uses it brings the time.
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

    ``epoch``: of the table whose servers it asks. ``silent``: for how long those have been silent that it does not
    hear. ``unanswered``: servers that have never answered it; of these it says nothing but what is in ``silent``, for
    it may have begun to ask when it says they fell silent.
    """

    at: float
    epoch: float
    silent: Mapping[str, float]
    unanswered: frozenset[str]
    turned: Mapping[str, float]

    @property
    def odd(self) -> frozenset[str]:
        """Servers of which it says anything but that it hears them."""
        return self.unanswered | self.silent.keys()


class Detector:
    """The views, and what follows from them."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._views: dict[str, _View] = {}
        self._expected: set[str] = set()
        self._servers: dict[str, float] = {}
        """The servers that are judged, and the epoch since which processes ask each; infinity if only topom does."""
        self._odd: Counter[str] = Counter()
        """How many views say of a server anything but that they hear it."""
        self._changes: dict[str, tuple[bool, float]] = {}
        """Of each server that has failed, until all hear it again: whether it still does, and since when that is so."""

    def judge_only(self, servers: Mapping[str, float]) -> None:
        """Judge these servers, and forget all others.

        Args:
            servers: by address, the epoch of the first table since it was in none; infinity for one that is in none.
        """
        self._servers = dict(servers)
        self._changes = {server: change for server, change in self._changes.items() if server in servers}

    def report(
        self, viewer: str, silent: Mapping[str, float], now: float, epoch: float, unanswered: Collection[str] = ()
    ) -> None:
        """Take a view, as its process says it ``now``.

        Args:
            silent: seconds since the latest answer of each server that has been silent for ``suspect_seconds``.
            epoch: of the table whose servers it asks; infinity for who asks all.
            unanswered: servers that have never answered it.
        """
        before = self._views.get(viewer)
        view = _View(now, epoch, silent, frozenset(unanswered), {})
        if before is not None:
            late = self._settings.late_seconds
            # What turned so long ago counts like all else that this view says.
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
        """Expect these views, whether they have come yet or not, and forget those of all others, members no more."""
        self._expected = {*viewers} - {OWN}
        for viewer in self._views.keys() - self._expected - {OWN}:
            self._odd.subtract(self._views.pop(viewer).odd)

    def silence(self, server: str, now: float) -> float:
        """For how long a server has been silent at least, by the proxy that heard it last; by topom's own view without.

        Until then it may have acknowledged writes. A proxy that has just begun to ask, and was not answered, says
        nothing of that. Where it is not known of any whether it was, as of all when topom has begun just now, the one
        in the middle counts: single ones may have begun just now, or have been cut off for long.
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
        """What is thought at ``now`` of servers that somebody does not hear, or has not heard until lately; of others.

        It is remembered: no earlier time may follow.
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
        """For how long a server has been silent by a view, 0 if it is heard; None if that says nothing of it."""
        since = self._servers.get(server)
        # Before its table had the server, it did not ask it.
        if since is None or view.epoch < since:
            return None
        return view.silent.get(server, None if server in view.unanswered else 0.0)

    def judge(self, server: str, now: float) -> Judgement:
        """What is thought of a server at ``now``, which is remembered: no earlier time may follow."""
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
