"""The search for an order: histories known to be linearizable or not, and random ones against trying every order."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from tests.histories.checker import Verdict, check, first_unexplained
from tests.histories.model import Model, State, call, nothing
from tests.histories.operations import Call, Form, Operation, Outcome, Reply

MODEL = Model(late_seconds=1.0)


def did(begun: float, ended: float, asked: Call, *replies: Reply) -> Operation:
    """An operation that was answered; without an end, its outcome is unknown."""
    if ended == math.inf:
        return Operation(0, 0, (asked,), Form.PLAIN, begun, outcome=Outcome.UNKNOWN)
    return Operation(0, 0, (asked,), Form.PLAIN, begun, ended, Outcome.ANSWERED, replies)


def transaction(begun: float, ended: float, calls: Sequence[Call], *replies: Reply) -> Operation:
    return Operation(0, 0, tuple(calls), Form.TRANSACTION, begun, ended, Outcome.ANSWERED, replies)


def verdict(*history: Operation, keys: int = 1) -> Verdict:
    return check(history, nothing(keys), MODEL.step).verdict


LINEARIZABLE: dict[str, list[Operation]] = {
    "nothing": [],
    "one after another": [did(0, 1, call("SET", "a"), b"OK"), did(2, 3, call("GET"), b"a")],
    "a read beside a write sees it": [did(0, 5, call("SET", "a"), b"OK"), did(1, 2, call("GET"), b"a")],
    "a read beside a write does not see it": [did(0, 5, call("SET", "a"), b"OK"), did(1, 2, call("GET"), None)],
    "two writes at once, in the order of their second": [
        did(0, 5, call("SET", "a"), b"OK"),
        did(0, 5, call("SET", "b"), b"OK"),
        did(6, 7, call("GET"), b"a"),
    ],
    "a write of unknown outcome is seen late": [
        did(0, math.inf, call("SET", "a")),
        did(1, 2, call("GET"), None),
        did(3, 4, call("GET"), b"a"),
    ],
    "a write of unknown outcome is never seen": [did(0, math.inf, call("SET", "a")), did(1, 2, call("GET"), None)],
    "a value of unknown write counts on": [did(0, math.inf, call("INCR")), did(1, 2, call("INCR"), 2)],
    "gone when its time is over": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.7, 0.8, call("GET"), None),
    ],
    "there until the server looked": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.7, 0.8, call("GET"), b"a"),
    ],
    "SET without PX ends a lifetime": [
        did(0, 0.1, call("SET", "a", "PX", 50), b"OK"),
        did(0.1, 0.15, call("SET", "b"), b"OK"),
        did(9, 10, call("GET"), b"b"),
    ],
    "PERSIST ends a lifetime": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.2, 0.3, call("PERSIST"), 1),
        did(0.4, 0.5, call("PERSIST"), 0),
        did(9, 10, call("GET"), b"a"),
    ],
    "PERSIST comes too late": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.6, 0.7, call("PERSIST"), 0),
        did(0.8, 0.9, call("GET"), None),
    ],
    "a transaction in one piece": [
        did(0, 1, call("SET", "a"), b"OK"),
        transaction(2, 5, [call("GETDEL"), call("EXISTS")], b"a", 0),
        did(3, 4, call("GET"), None),
    ],
}
NOT_LINEARIZABLE: dict[str, list[Operation]] = {
    "a lost write": [did(0, 1, call("SET", "a"), b"OK"), did(2, 3, call("GET"), None)],
    "an old value after a new one": [
        did(0, 9, call("SET", "a"), b"OK"),
        did(1, 2, call("GET"), b"a"),
        did(3, 4, call("GET"), None),
    ],
    "a value from nowhere": [did(0, 1, call("GET"), b"a")],
    "an increment that was done twice": [did(0, 1, call("INCR"), 1), did(2, 3, call("INCR"), 3)],
    "two that got the same": [did(0, 1, call("INCR"), 1), did(0, 1, call("INCR"), 1)],
    "two that were first": [did(0, 5, call("SETNX", "a"), 1), did(0, 5, call("SETNX", "b"), 1)],
    "an element that came out twice": [
        did(0, 1, call("RPUSH", "a"), 1),
        did(2, 3, call("LPOP"), b"a"),
        did(2, 3, call("LPOP"), b"a"),
    ],
    "gone before its time": [did(0, 0.1, call("SET", "a", "PX", 5000), b"OK"), did(0.2, 0.3, call("GET"), None)],
    "gone at its former time": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.2, 0.3, call("PERSIST"), 1),
        did(0.7, 0.8, call("GET"), None),
    ],
    "a lifetime that is left behind": [
        did(0, 0.1, call("SET", "a", "PX", 5000), b"OK"),
        did(0.2, 0.3, call("PERSIST"), 0),
        did(0.4, 0.5, call("GET"), b"a"),
    ],
    "a lifetime from nowhere": [did(0, 0.1, call("SET", "a"), b"OK"), did(0.2, 0.3, call("PERSIST"), 1)],
    "there long after its time": [did(0, 0.1, call("SET", "a", "PX", 50), b"OK"), did(3, 4, call("GET"), b"a")],
    "there again after it had gone": [
        did(0, 0.1, call("SET", "a", "PX", 500), b"OK"),
        did(0.6, 0.7, call("GET"), None),
        did(0.8, 0.9, call("GET"), b"a"),
    ],
    "an unknown write before it was sent": [did(1, 2, call("GET"), b"a"), did(3, math.inf, call("SET", "a"))],
    "half a transaction": [
        transaction(0, 5, [call("SET", "a"), call("SET", "b")], b"OK", b"OK"),
        did(1, 2, call("GET"), b"a"),
    ],
}


@pytest.mark.parametrize("history", LINEARIZABLE.values(), ids=LINEARIZABLE)
def test_linearizable(history: list[Operation]) -> None:
    assert verdict(*history) is Verdict.LINEARIZABLE


@pytest.mark.parametrize("history", NOT_LINEARIZABLE.values(), ids=NOT_LINEARIZABLE)
def test_not_linearizable(history: list[Operation]) -> None:
    assert verdict(*history) is Verdict.NOT_LINEARIZABLE


def test_a_transaction_over_two_keys_is_seen_whole() -> None:
    both = [call("SET", "a"), call("SET", "b", key=1)]
    read = [call("GET"), call("GET", key=1)]
    written = transaction(0, 5, both, b"OK", b"OK")
    assert verdict(written, transaction(1, 2, read, b"a", b"b"), keys=2) is Verdict.LINEARIZABLE
    assert verdict(written, transaction(1, 2, read, b"a", None), keys=2) is Verdict.NOT_LINEARIZABLE


def test_the_first_reply_that_nothing_explains() -> None:
    early = [did(n, n + 0.5, call("INCR"), n + 1) for n in range(20)]
    wrong = did(20, 20.5, call("INCR"), 20)
    late = [did(n, n + 0.5, call("INCR"), n) for n in range(21, 40)]
    found = first_unexplained([*early, wrong, *late], nothing(1), MODEL.step)
    assert found is not None
    culprit, before = found
    assert culprit is wrong
    assert before.state == ((b"20", None),)


def test_a_search_that_takes_too_long_is_undecided() -> None:
    history = [did(0, 9, call("APPEND", f"{n}"), 1000) for n in range(12)]
    history += [did(0, math.inf, call("APPEND", f"u{n}")) for n in range(12)]
    found = check(history, nothing(1), MODEL.step, most_steps=500)
    assert found.verdict is Verdict.UNDECIDED
    assert found.steps == 500


def test_operations_of_unknown_outcome_that_are_alike_are_not_tried_in_every_order() -> None:
    history = [did(0, math.inf, call("INCR")) for _ in range(12)]
    history += [did(2 * n + 1, 2 * n + 2, call("INCR"), 2 * n + 2) for n in range(6)]
    assert verdict(*history) is Verdict.LINEARIZABLE
    found = check([*history, did(20, 21, call("GET"), b"99")], nothing(1), MODEL.step, most_steps=1000)
    assert found.verdict is Verdict.NOT_LINEARIZABLE


def every_order(history: Sequence[Operation], initial: State) -> bool:
    """Whether any order at all, of the answered and any of the unknown ones, explains the replies."""
    known = [it for it in history if it.answered < math.inf]
    unknown = [it for it in history if it.answered == math.inf]
    for chosen in range(2 ** len(unknown)):
        taken = known + [it for place, it in enumerate(unknown) if chosen >> place & 1]
        for order in permutations(taken):
            if any(
                later.answered < earlier.invoked for place, earlier in enumerate(order) for later in order[place + 1 :]
            ):
                continue
            states = [initial]
            for it in order:
                states = [after for state in states for after in MODEL.step(state, it)]
            if states:
                return True
    return False


def random_history(chance: random.Random) -> list[Operation]:
    """What a single server answered, at random times, with now and then an answer changed or lost."""
    asked = [
        lambda n: call("SET", f"v{n}"),
        lambda n: call("SET", f"v{n}", "PX", 300),
        lambda n: call("APPEND", f"{n}"),
        lambda n: call("GET"),
        lambda n: call("GET"),
        lambda n: call("DEL"),
        lambda n: call("SETNX", f"n{n}"),
        lambda n: call("PEXPIRE", 200),
        lambda n: call("PERSIST"),
    ]
    history: list[Operation] = []
    state = nothing(1)
    clock = 0.0
    for number in range(chance.randrange(2, 6)):
        clock += chance.uniform(0, 0.3)
        begun, ended = clock - chance.uniform(0, 0.5), clock + chance.uniform(0, 0.5)
        one = did(begun, ended, chance.choice(asked)(number))
        # By the model itself, with any reply, at a moment within its time.
        after = chance.choice(MODEL.step(state, replace(one, replies=None)))
        replies = [(reply,) for reply in (0, 1, 2, 3, 4, None, b"OK", *texts(number))]
        possible = [it for it in replies if after in MODEL.step(state, replace(one, replies=it))]
        if not possible:
            continue
        one.replies = chance.choice(possible) if chance.randrange(6) else chance.choice(replies)
        if chance.randrange(4) == 0:
            one = did(begun, math.inf, one.calls[0])
        history.append(one)
        state = after
    chance.shuffle(history)
    return history


def texts(most: int) -> list[bytes]:
    return [b"%s%d" % (letter, number) for letter in (b"v", b"n", b"") for number in range(most + 1)]


def test_random_histories_against_every_order() -> None:
    chance = random.Random(7)
    verdicts = []
    for _ in range(500):
        history = random_history(chance)
        expected = every_order(history, nothing(1))
        found = verdict(*history)
        assert found is (Verdict.LINEARIZABLE if expected else Verdict.NOT_LINEARIZABLE), [*map(str, history)]
        verdicts.append(expected)
    # Both kinds were among them.
    assert 100 < sum(verdicts) < 450
