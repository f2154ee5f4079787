"""A run is in another thread, is told when this one is interrupted, and Spark is ended whatever it says."""

import os
import signal
import threading
from threading import Event, current_thread, main_thread

import pytest

from sizing import interrupting
from sizing.errors import SizingError


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def hear(number: signal.Signals) -> None:
    with interrupting.heard():
        send(number)
        Event().wait(60)


@pytest.mark.parametrize("number", interrupting.SIGNALS)
def test_each_signal_interrupts_and_the_handlers_before_are_in_force_again(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt):
            hear(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupting.heard():
            send(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_spark_does_not_stay() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupting.beginning():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_work_is_done_elsewhere() -> None:
    left: list[bool] = []

    def fails(told: Event) -> None:
        assert current_thread() is not main_thread()
        raise SizingError("no")

    assert interrupting.interruptible(lambda told: told.is_set(), lambda: None, lambda: left.append(True)) is False
    with pytest.raises(SizingError, match="no"):
        interrupting.interruptible(fails, lambda: None, lambda: left.append(True))
    assert left == []


@pytest.mark.parametrize("says", [None, RuntimeError("the context is stopped")])
def test_who_is_interrupted_tells_the_work_and_ends_jobs_until_it_ends(
    says: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says is None:
        # The work ends by what it is told, and not by its limit, also on a slow machine.
        monkeypatch.setattr(interrupting, "END_SECONDS", 60.0)
    begun, left, ended = Event(), Event(), Event()
    asked: list[bool] = []

    def work(told: Event) -> None:
        begun.set()
        told.wait(60)
        # A job that begins only now is ended, too.
        (ended if says is None else left).wait(60)

    def end_jobs() -> None:
        asked.append(True)
        if says is not None:
            raise says
        if len(asked) == 3:
            ended.set()

    def interrupt() -> None:
        begun.wait(60)
        send(signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), interrupting.heard():
        interrupting.interruptible(work, end_jobs, left.set)
    assert left.is_set()
    assert len(asked) >= 3 if says is None else len(asked) == 1


def test_work_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupting, "END_SECONDS", 0.0)
    begun, released, left = Event(), Event(), Event()

    def work(told: Event) -> None:
        begun.set()
        released.wait(60)

    def interrupt() -> None:
        begun.wait(60)
        send(signal.SIGTERM)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt), interrupting.heard():
            interrupting.interruptible(work, lambda: None, left.set)
        assert left.is_set()
    finally:
        released.set()
