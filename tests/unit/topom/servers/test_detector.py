"""The condition of servers by several views; and simulations of links that delay and of servers that die."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from slots.probing import UNANSWERED_SECONDS
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings, Judgement

SETTINGS = DetectorSettings(suspect_seconds=2.0, fail_seconds=5.0, fresh_seconds=5.0)
UNKNOWN, ALIVE, SUSPECTED, FAILED = Condition
EPOCH = 1.0


def judging(*servers: str) -> Detector:
    """A detector of servers that have been in the table since :data:`EPOCH`."""
    detector = Detector(SETTINGS)
    detector.judge_only(dict.fromkeys(servers or ("a:1",), EPOCH))
    return detector


def judged(now: float = 0.0, **views: float) -> Condition:
    """The condition at ``now`` of a server that each viewer had not heard for so long at time 0."""
    detector = judging()
    for viewer, silence in views.items():
        detector.report(viewer, {"a:1": silence}, 0.0, EPOCH)
    return detector.judge("a:1", now).condition


def test_the_majority_of_views_fails_a_server() -> None:
    assert judged() is UNKNOWN
    assert judged(p1=99.0, p2=99.0) is UNKNOWN, "topom has not looked itself"
    assert judged(topom=0.1, p1=1.9, p2=0.0) is ALIVE
    assert judged(topom=0.1, p1=2.0, p2=0.0) is SUSPECTED
    assert judged(topom=0.1, p1=99.0, p2=0.0) is SUSPECTED, "one cut link fails nothing"
    assert judged(topom=99.0, p1=0.0, p2=0.0) is SUSPECTED
    assert judged(topom=5.0, p1=5.0, p2=0.0) is FAILED
    assert judged(topom=0.0, p1=5.0, p2=5.0) is FAILED
    assert judged(topom=5.0, p1=0.0) is SUSPECTED, "half is no majority"
    assert judged(topom=5.0) is FAILED, "there is nobody else to ask"


def test_for_how_long_a_server_has_been_silent() -> None:
    detector = judging()
    assert detector.silence("a:1", 3.0) == 0.0, "nobody has said anything of it"
    detector.report(OWN, {"a:1": 7.0}, 1.0, EPOCH)
    assert detector.silence("a:1", 3.0) == 9.0, "there is nobody else to say so"
    # Given: proxies that it has never answered.
    for viewer, silence in (("1", UNANSWERED_SECONDS + 20.0), ("2", UNANSWERED_SECONDS + 1.0)):
        detector.report(viewer, {"a:1": silence}, 1.0, EPOCH, ["a:1"])
    detector.report("3", {"a:1": UNANSWERED_SECONDS + 4.0}, 2.0, EPOCH, ["a:1"])
    assert detector.silence("a:1", 3.0) == UNANSWERED_SECONDS + 5.0, "the one in the middle"
    # When: two of them have heard it, one later than the other.
    detector.report("1", {"a:1": 30.0}, 40.0, EPOCH)
    detector.report("2", {"a:1": 37.0}, 40.0, EPOCH)
    assert detector.silence("a:1", 41.0) == 31.0
    assert detector.silence("b:1", 41.0) == 0.0


def test_views_that_are_not_fresh_do_not_count() -> None:
    detector = judging()
    for viewer in ("1", "2"):
        detector.report(viewer, {"a:1": 9.0}, 0.0, EPOCH)
    detector.report(OWN, {"a:1": 0.0}, 5.1, EPOCH)
    assert detector.judge("a:1", 5.1) == Judgement(SUSPECTED, 2, 3)
    # topom itself may be cut off: from the server, and from the proxies.
    detector.report(OWN, {"a:1": 9.0}, 9.0, EPOCH)
    assert detector.judge("a:1", 9.0).condition is SUSPECTED
    # They are not members any more.
    detector.keep_only(())
    assert detector.judge("a:1", 9.0).condition is FAILED
    assert detector.judge("b:1", 9.0).condition is UNKNOWN, "nobody knows it"


def test_a_failed_server_stays_so_until_views_hear_it() -> None:
    detector = judging()
    for viewer in ("1", "2"):
        detector.report(viewer, {"a:1": 9.0}, 0.0, EPOCH)
    detector.report("3", {"a:1": 0.0}, 0.0, EPOCH)
    detector.report(OWN, {"a:1": 9.0}, 5.0, EPOCH)
    assert detector.judge("a:1", 5.0) == Judgement(FAILED, 3, 4, doubted=True)
    detector.report(OWN, {"a:1": 9.0}, 5.1, EPOCH)
    assert detector.judge("a:1", 5.1).condition is FAILED, "that views are not fresh any more is no word of anybody"
    # It answers topom again. Nothing is known of the two others, and the third one may have said this before.
    detector.report(OWN, {"a:1": 0.0}, 6.0, EPOCH)
    detector.report("3", {"a:1": 0.0}, 6.0, EPOCH)
    assert detector.judge("a:1", 6.0) == Judgement(FAILED, 2, 4)
    # One of them says something else than before, so it has heard the server since then.
    detector.report("1", {"a:1": 0.0}, 6.1, EPOCH)
    assert detector.judge("a:1", 6.1) == Judgement(SUSPECTED, 1, 4)
    detector.report("2", {"a:1": 0.0}, 6.2, EPOCH)
    assert detector.judge("a:1", 6.2) == Judgement(ALIVE, 0, 4)


def test_who_is_gone_is_held_to_nothing() -> None:
    """Proxies that die after a server has failed do not keep it failed; former members do not either."""
    for leave in (False, True):
        detector = judging()
        for viewer in ("1", "2"):
            detector.report(viewer, {"a:1": 9.0}, 0.0, EPOCH)
        detector.report(OWN, {"a:1": 9.0}, 0.0, EPOCH)
        assert detector.judge("a:1", 0.0).condition is FAILED
        detector.report(OWN, {"a:1": 0.0}, 15.0, EPOCH)
        assert detector.judge("a:1", 15.0).condition is FAILED
        if leave:
            detector.keep_only(())
            assert detector.judge("a:1", 15.0).condition is ALIVE
        else:
            detector.report(OWN, {"a:1": 0.0}, 15.1, EPOCH)
            assert detector.judge("a:1", 15.1).condition is ALIVE


def test_a_server_that_came_back_fails_again_only_by_new_words() -> None:
    detector = judging()
    for viewer in ("1", "2", "3", OWN):
        detector.report(viewer, {"a:1": 9.0}, 0.0, EPOCH)
    assert detector.judge("a:1", 0.0).condition is FAILED
    for viewer in ("1", OWN):
        detector.report(viewer, {"a:1": 0.0}, 3.0, EPOCH)
    assert detector.judge("a:1", 3.0).condition is SUSPECTED
    # The two others said this before it was back; nothing comes from the first one meanwhile.
    for viewer, silence in (("2", 12.0), ("3", 12.0), (OWN, 0.0)):
        detector.report(viewer, {"a:1": silence}, 9.0, EPOCH)
    assert detector.judge("a:1", 9.0) == Judgement(SUSPECTED, 2, 3, doubted=True)
    # They have said this since then, but the first one heard it.
    for now in (13.0, 18.1):
        for viewer, silence in (("2", now + 9.0), ("3", now + 9.0), (OWN, 0.0)):
            detector.report(viewer, {"a:1": silence}, now, EPOCH)
        assert detector.judge("a:1", now).condition is (SUSPECTED if now < 18.0 else FAILED), "the first one is gone"


def test_nothing_of_a_removed_server_is_remembered() -> None:
    detector = judging()
    detector.report(OWN, {"a:1": 9.0}, 0.0, EPOCH)
    assert detector.judge("a:1", 0.0).condition is FAILED
    detector.judge_only({})
    assert detector.judge("a:1", 1.0).condition is UNKNOWN
    detector.judge_only({"a:1": EPOCH})
    detector.report(OWN, {"a:1": 3.0}, 2.0, EPOCH)
    assert detector.judge("a:1", 2.0).condition is SUSPECTED


@dataclass
class Simulation:
    """topom and some proxies ask servers, and the proxies report to topom; ``delay`` draws every delay.

    As :mod:`slots.probing` and the heartbeats do: a question every half second, given up after one; a report each
    second, which a link may keep for long, in order.
    """

    proxies: int
    delay: Callable[[], float]
    report_delay: Callable[[], float]
    now: float = 0.0
    dead_from: dict[str, float] = field(default_factory=dict)
    back_from: dict[str, float] = field(default_factory=dict)
    cut: set[tuple[str, str]] = field(default_factory=set)
    """Links that are cut, each as viewer and server."""

    def __post_init__(self) -> None:
        self.detector = judging("a:1", "b:1")
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self.servers = ["a:1", "b:1"]
        self._heard: dict[tuple[str, str], float] = {}
        self._last_report: dict[str, float] = {}
        self.seen: list[tuple[float, str, Condition]] = []
        self._condition = dict.fromkeys(self.servers, ALIVE)
        for viewer in (OWN, *map(str, range(self.proxies))):
            for server in self.servers:
                self._heard[viewer, server] = 0.0
                self._at(random.uniform(0, 0.5), lambda viewer=viewer, server=server: self._ask(viewer, server))
            if viewer != OWN:
                self._at(random.uniform(0, 1), lambda viewer=viewer: self._report(viewer))
        self._at(0.0, self._judge)

    def _at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), do))

    def _ask(self, viewer: str, server: str) -> None:
        took = self.delay()
        there = self.now + took / 2
        dead = self.dead_from.get(server, 1e9) <= there < self.back_from.get(server, 1e9)
        dead |= (viewer, server) in self.cut
        answered = not dead and took < 1.0
        if answered:
            self._at(self.now + took, lambda: self._heard.__setitem__((viewer, server), self.now))
        self._at(
            self.now + min(took if not dead else 1.0, 1.0) + random.uniform(0.4, 0.6), lambda: self._ask(viewer, server)
        )

    def _view(self, viewer: str) -> dict[str, float]:
        silences = {server: self.now - self._heard[viewer, server] for server in self.servers}
        return {server: silence for server, silence in silences.items() if silence >= SETTINGS.suspect_seconds}

    def _report(self, viewer: str) -> None:
        view = self._view(viewer)
        arrives = max(self.now + self.report_delay(), self._last_report.get(viewer, 0.0))
        self._last_report[viewer] = arrives
        self._at(arrives, lambda: self.detector.report(viewer, view, self.now, EPOCH))
        self._at(self.now + 1.0, lambda: self._report(viewer))

    def _judge(self) -> None:
        self.detector.report(OWN, self._view(OWN), self.now, EPOCH)
        for server in self.servers:
            condition = self.detector.judge(server, self.now).condition
            if condition is not self._condition[server]:
                self._condition[server] = condition
                self.seen.append((self.now, server, condition))
        self._at(self.now + 0.25, self._judge)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()


def jittery(mean: float) -> Callable[[], float]:
    """Delays around a mean: from a tenth of it to ten times as much."""
    return lambda: mean * 10 ** random.uniform(-1, 1)


@pytest.mark.parametrize("proxies", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(4))
def test_delays_of_ten_times_the_usual_fail_nothing(proxies: int, seed: int) -> None:
    """Answers that usually take 50 ms take up to half a second, and reports take up to 10 s instead of 1 s."""
    random.seed(seed)
    simulation = Simulation(proxies, jittery(0.05), jittery(1.0))
    simulation.run(300.0)
    assert simulation.seen == []


@pytest.mark.parametrize("proxies", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_dies_is_found_in_time(proxies: int, seed: int) -> None:
    random.seed(seed)
    simulation = Simulation(proxies, jittery(0.05), jittery(0.01))
    simulation.dead_from["a:1"] = died = random.uniform(50, 51)
    simulation.run(200.0)
    assert [(server, condition) for _, server, condition in simulation.seen] == [("a:1", SUSPECTED), ("a:1", FAILED)]
    # After the seconds of silence: the time until the next report, its way, and the next look.
    assert died + 4.0 < simulation.seen[-1][0] < died + SETTINGS.fail_seconds + 1.0 + 0.1 + 0.25


def conditions_of(simulation: Simulation) -> list[tuple[str, Condition]]:
    return [(server, condition) for _, server, condition in simulation.seen]


@pytest.mark.parametrize("proxies", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_delays_of_ten_times_the_usual_bring_no_dead_server_back(proxies: int, seed: int) -> None:
    random.seed(seed)
    simulation = Simulation(proxies, jittery(0.05), jittery(1.0))
    simulation.dead_from["a:1"], simulation.back_from["a:1"] = 50.0, 150.0
    simulation.run(150.0)
    assert conditions_of(simulation) == [("a:1", SUSPECTED), ("a:1", FAILED)]
    simulation.run(200.0)
    # In between it is suspected by viewers whose reports are still on their way, if there are any.
    assert [found for found in conditions_of(simulation)[2:] if found != ("a:1", SUSPECTED)] == [("a:1", ALIVE)]
    assert len(simulation.seen) <= 4


@pytest.mark.parametrize("proxies", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_delays_of_ten_times_the_usual_make_no_more_of_cut_links(proxies: int, seed: int) -> None:
    for viewers, conditions in (
        (["0"], [SUSPECTED]),
        ([OWN], [SUSPECTED]),
        (list(map(str, range(proxies))), [SUSPECTED, FAILED] if proxies > 1 else [SUSPECTED]),
    ):
        random.seed(seed)
        simulation = Simulation(proxies, jittery(0.05), jittery(1.0))
        simulation.cut.update((viewer, "a:1") for viewer in viewers)
        simulation.run(200.0)
        assert [condition for _, _, condition in simulation.seen] == conditions, viewers


@pytest.mark.parametrize("seed", range(4))
def test_delays_fail_a_server_that_half_can_reach_no_more_than_once(seed: int) -> None:
    random.seed(seed)
    simulation = Simulation(5, jittery(0.05), jittery(1.0))
    simulation.cut.update((viewer, "a:1") for viewer in "012")
    simulation.run(200.0)
    assert [condition for _, _, condition in simulation.seen] in ([SUSPECTED], [SUSPECTED, FAILED, SUSPECTED])


@pytest.mark.parametrize("proxies", [0, 1, 2, 5, 20])
def test_a_server_that_is_back_is_alive_soon(proxies: int) -> None:
    for seed in range(3):
        random.seed(seed)
        simulation = Simulation(proxies, jittery(0.05), jittery(0.01))
        simulation.dead_from["a:1"], simulation.back_from["a:1"] = 50.0, 80.0
        simulation.run(90.0)
        assert conditions_of(simulation)[-1] == ("a:1", ALIVE)
        # A question that waits in vain for a second, the pause, the next report, and the next look.
        assert 80.0 < simulation.seen[-1][0] < 80.0 + 1.0 + 0.6 + 0.5 + 1.0 + 0.1 + 0.25


def test_one_cut_link_fails_nothing() -> None:
    random.seed(1)
    for proxies, viewer in ((1, OWN), (2, OWN), (2, "0"), (5, "3")):
        simulation = Simulation(proxies, jittery(0.05), jittery(0.01))
        simulation.cut.add((viewer, "a:1"))
        simulation.run(100.0)
        assert [(server, condition) for _, server, condition in simulation.seen] == [("a:1", SUSPECTED)]


def test_a_server_is_doubted_once_a_majority_suspects_it() -> None:
    """It is doubted before any view finds it failed, and not for one cut link."""
    detector = judging()
    for viewer, silence in (("2", 0.0), (OWN, SETTINGS.suspect_seconds), ("1", SETTINGS.suspect_seconds)):
        assert not detector.judge("a:1", 0.0).doubted
        detector.report(viewer, {"a:1": silence}, 0.0, EPOCH)
    assert detector.judge("a:1", 0.0) == Judgement(SUSPECTED, 0, 3, doubted=True)
    detector.report("1", {"a:1": 0.0}, 0.0, EPOCH)
    assert detector.judge("a:1", 0.0) == Judgement(SUSPECTED, 0, 3)
