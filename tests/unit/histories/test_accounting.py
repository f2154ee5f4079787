"""Accounting for totals and queues."""

import math

import pytest

from tests.histories.accounting import account_queue, account_total
from tests.histories.model import call
from tests.histories.operations import Form, Operation, Outcome


def incr(begun: float, ended: float, value: int) -> Operation:
    return Operation(0, 0, (call("INCR"),), Form.PLAIN, begun, ended, Outcome.ANSWERED, (value,))


def push(element: str) -> Operation:
    return Operation(0, 0, (call("RPUSH", element),), Form.PLAIN, 0, 1, Outcome.ANSWERED, (1,))


def pop(element: bytes | None) -> Operation:
    return Operation(0, 0, (call("LPOP"),), Form.PLAIN, 0, 1, Outcome.ANSWERED, (element,))


def unknown(name: str, *arguments: str) -> Operation:
    return Operation(0, 0, (call(name, *arguments),), Form.PLAIN, 0, math.inf, Outcome.UNKNOWN)


def test_totals_that_are_right() -> None:
    assert account_total([], 0) == []
    assert account_total([incr(0, 1, 1), incr(0, 3, 3), incr(2, 3, 2)], 3) == []
    assert account_total([incr(0, 1, 1), unknown("INCR"), incr(2, 3, 3)], 3) == []
    assert account_total([incr(0, 1, 1), unknown("INCR"), incr(2, 3, 2)], 2) == []


@pytest.mark.parametrize(
    ("history", "stored", "what"),
    [
        ([incr(0, 1, 1), incr(2, 3, 1)], 1, "doubled"),
        ([incr(0, 1, 1), incr(2, 3, 3)], 3, "gaps"),
        ([incr(0, 1, 1), incr(2, 3, 2)], 1, "lost"),
        ([incr(0, 1, 2), incr(2, 3, 1)], 2, "reversed"),
        ([incr(0, 1, 1), unknown("INCR")], 3, "gaps"),
    ],
)
def test_totals_that_are_wrong(history: list[Operation], stored: int, what: str) -> None:
    (found,) = account_total(history, stored)
    assert found.startswith(what)


def test_queues_that_are_right() -> None:
    assert account_queue([push("a"), push("b"), pop(b"a"), pop(None)], [b"b"]) == []
    assert account_queue([push("a"), unknown("LPOP")], []) == []
    assert account_queue([unknown("RPUSH", "a")], [b"a"]) == []
    assert account_queue([unknown("RPUSH", "a")], []) == []


@pytest.mark.parametrize(
    ("history", "left", "what"),
    [
        ([push("a"), pop(b"a"), pop(b"a")], [], "doubled"),
        ([push("a"), pop(b"a")], [b"a"], "doubled"),
        ([push("a"), pop(None)], [], "lost"),
        ([pop(b"a")], [], "[b'a'] came out, but nobody pushed"),
        ([push("a"), push("b"), unknown("LPOP")], [], "lost"),
    ],
)
def test_queues_that_are_wrong(history: list[Operation], left: list[bytes], what: str) -> None:
    (found,) = account_queue(history, left)
    assert found.startswith(what)
