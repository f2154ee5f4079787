"""Why something waits, as one record: since when, and how often it is told."""

import pytest
from structlog.testing import capture_logs

from migrator.errors import ForeignKeys, TargetRefused
from slots.kinds import Explained
from topom.errors import NotReady, ProxiesNotReady, TopomError
from topom.reasons import LINE_SECONDS, NOTE_SECONDS, Kind, Reason, Reasons


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def noted() -> list[tuple[str, Reason]]:
    return []


@pytest.fixture
def reasons(clock: Clock, noted: list[tuple[str, Reason]]) -> Reasons[str]:
    return Reasons("it_waits", lambda key, reason: noted.append((key, reason)), clock=clock)


def test_an_error_says_what_and_what_to_do_apart_and_its_text_has_both() -> None:
    error = NotReady("h:1 is empty", "add a replica", kind=Kind.DATA)
    assert str(error) == "h:1 is empty; add a replica"
    assert Reason.of(error, 7.0) == Reason(Kind.DATA, "h:1 is empty", 7.0, "add a replica")
    assert str(Reason.of(error)) == str(error)


def test_a_kind_that_is_not_given_is_that_of_the_class() -> None:
    assert Reason.of(ProxiesNotReady("they are silent")).kind is Kind.PROXY
    assert Reason.of(ForeignKeys("keys")).kind is Kind.DATA
    assert Reason.of(TopomError("?")).kind is Kind.FAULT
    assert NotReady.kind is NotReady("again", kind=Kind.DATA).__class__.kind


def test_what_a_server_refuses_for_and_what_to_do_are_apart() -> None:
    reason = Reason.of(TargetRefused("h:1", "OOM command not allowed"))
    assert reason.kind is Kind.SERVER
    assert reason.to_do == "raise that or free memory"
    assert reason.to_do not in reason.what


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("odd"), ValueError()])
def test_an_error_that_nobody_expected_is_a_fault(error: Exception) -> None:
    reason = Reason.of(error)
    assert reason.kind is Kind.FAULT
    assert reason.what == (f"{type(error).__name__}: odd" if error.args else "ValueError")


def test_an_error_without_a_text_says_its_name() -> None:
    assert Reason.of(Explained()).what == "Explained"


def test_it_waits_since_it_began_to_wait_for_that_kind(reasons: Reasons[str], clock: Clock) -> None:
    reasons.waits("a", ProxiesNotReady("one is silent"))
    clock.now += 5
    reasons.waits("a", ProxiesNotReady("two are silent"))
    assert reasons["a"] == Reason(Kind.PROXY, "two are silent", 1000.0)
    clock.now += 5
    reasons.waits("a", NotReady("h:1 is down"))
    assert reasons["a"].since == 1010.0
    reasons.over("a")
    clock.now += 5
    assert reasons.waits("a", NotReady("h:1 is down")).since == 1015.0


def test_a_reason_that_began_before_it_was_known_keeps_its_time(reasons: Reasons[str]) -> None:
    reasons.waits("a", Reason(Kind.DATA, "it differs", 10.0))
    assert reasons["a"].since == 10.0


def test_they_are_read_as_a_mapping_and_forgotten(reasons: Reasons[str]) -> None:
    reasons.waits("a", NotReady("1"))
    reasons.waits("b", NotReady("2"))
    assert dict(reasons) == {"a": reasons["a"], "b": reasons["b"]}
    assert len(reasons) == 2
    assert reasons.get("c") is None
    reasons.keep_only(["b", "c"])
    assert list(reasons) == ["b"]
    reasons.over("b")
    reasons.over("b")
    assert not reasons


def test_the_log_hears_of_what_is_news(reasons: Reasons[str], clock: Clock) -> None:
    with capture_logs() as lines:
        reasons.waits("a", NotReady("9 bytes behind", "wait"), server="h:1")
        reasons.waits("a", NotReady("9 bytes behind", "wait"), server="h:1")
        reasons.waits("a", NotReady("8 bytes behind", "wait"), server="h:1")
        assert len(lines) == 1
        assert lines[0]["event"] == "it_waits"
        assert lines[0]["server"] == "h:1"
        assert lines[0]["kind"] == "server"
        assert lines[0]["reason"] == "9 bytes behind; wait"
        reasons.waits("a", ProxiesNotReady("silent"))
        assert len(lines) == 2
        clock.now += LINE_SECONDS
        reasons.waits("a", ProxiesNotReady("silent"))
        assert len(lines) == 2
        reasons.waits("a", ProxiesNotReady("still silent"))
        assert len(lines) == 3
        reasons.waits("b", ProxiesNotReady("silent"))
        reasons.over("a")
        reasons.waits("a", ProxiesNotReady("still silent"))
        assert len(lines) == 5


def test_events_come_once_a_minute_whatever_comes_and_goes(
    reasons: Reasons[str], clock: Clock, noted: list[tuple[str, Reason]]
) -> None:
    reasons.waits("a", NotReady("1"))
    reasons.waits("a", ProxiesNotReady("2"))
    reasons.over("a")
    reasons.waits("a", NotReady("3"))
    assert [(key, reason.what) for key, reason in noted] == [("a", "1")]
    reasons.waits("b", NotReady("1"))
    clock.now += NOTE_SECONDS
    reasons.waits("a", NotReady("3"))
    clock.now += NOTE_SECONDS
    reasons.waits("a", NotReady("3"))
    assert [(key, reason.what) for key, reason in noted] == [("a", "1"), ("b", "1"), ("a", "3")]


def test_a_clock_that_is_set_back_keeps_nobody_silent(
    reasons: Reasons[str], clock: Clock, noted: list[tuple[str, Reason]]
) -> None:
    reasons.waits("a", NotReady("1"))
    clock.now -= NOTE_SECONDS
    reasons.waits("a", NotReady("2"))
    assert len(noted) == 2


def test_what_is_noted_of_what_is_over_is_forgotten_in_time(reasons: Reasons[str], clock: Clock) -> None:
    for number in range(100):
        reasons.waits(str(number), NotReady("1"))
        reasons.over(str(number))
        clock.now += 10
    assert len(reasons._noted) < 10
    assert not reasons._logged


def test_a_record_goes_to_the_store_and_comes_back() -> None:
    reason = Reason(Kind.HOURS, "outside the hours", 12.5, "set them")
    assert reason.to_document() == {"kind": "hours", "what": "outside the hours", "since": 12.5, "to_do": "set them"}
    assert Reason.from_document(reason.to_document()) == reason
    assert Reason.from_document({**reason.to_document(), "kind": "of a newer version"}).kind is Kind.OPERATOR
