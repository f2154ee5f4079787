"""Which values of clients that cache have lived on after a change."""

import pytest

from tests.histories.caches import PROMISED_SECONDS, Kept, differs, lived_on
from tests.histories.model import call
from tests.histories.operations import Call, Form, Operation, Outcome, Partition

LONG = 100.0


def operation(
    asked: Call, invoked: float, answered: float, reply: object = b"OK", outcome: Outcome = Outcome.ANSWERED
) -> Operation:
    return Operation(1, 0, (asked,), Form.PLAIN, invoked, answered, outcome, (reply,))


def kept(*operations: Operation, value: bytes | None = b"old", read: float = 1.0, used: float = LONG) -> Kept:
    return Kept("a client", Partition("register", ("key",), 0, list(operations)), value, read, used)


CHANGE = operation(call("SET", "new"), 2.0, 3.0)


def test_a_value_that_is_used_long_after_a_change_has_lived_on() -> None:
    one = kept(CHANGE)
    [found] = lived_on([one])
    assert found.partition is one.partition
    assert "b'old'" in found.text
    assert "SET" in found.text


@pytest.mark.parametrize(
    "changed",
    [
        operation(call("DEL"), 2.0, 3.0, 0),
        operation(call("APPEND", "+1"), 2.0, 3.0, 4),
        operation(call("SETNX", "new"), 2.0, 3.0, 1),
        operation(call("FLUSHDB"), 2.0, 3.0),
    ],
    ids=str,
)
def test_each_change_counts(changed: Operation) -> None:
    assert lived_on([kept(changed)])


@pytest.mark.parametrize(
    "no_change",
    [
        operation(call("GET"), 2.0, 3.0, b"old"),
        operation(call("SETNX", "new"), 2.0, 3.0, 0),
        operation(call("SET", "new"), 0.5, 3.0),
        operation(call("SET", "new"), 2.0, 3.0, None, Outcome.UNKNOWN),
        operation(call("PERSIST"), 2.0, 3.0, 1),
    ],
    ids=str,
)
def test_what_changes_nothing_for_sure_does_not_count(no_change: Operation) -> None:
    assert not lived_on([kept(no_change)])


def test_a_value_may_be_used_for_as_long_as_promised() -> None:
    until = CHANGE.answered + PROMISED_SECONDS
    assert not lived_on([kept(CHANGE, used=until - 0.01)])
    assert lived_on([kept(CHANGE, used=until + 0.01)])


def test_a_key_that_was_not_there_may_be_so_again() -> None:
    assert not lived_on([kept(CHANGE, value=None)])


def test_what_is_kept_has_to_be_what_is_there_in_the_end() -> None:
    last = operation(call("GET"), 9.0, 10.0, b"new")
    assert differs(kept(CHANGE, last))
    assert differs(kept(CHANGE, last, value=None))
    assert not differs(kept(CHANGE, last, value=b"new"))
    # It may have expired since.
    assert not differs(kept(CHANGE, last, value=None, read=9.5))
    assert not differs(kept(CHANGE, Operation(-1, 0, last.calls, Form.PLAIN, 9.0)))
