"""Whether a history is linearizable: Wing and Gong's search with Lowe's memory of what was tried.

A history is linearizable if its operations can be put in one order in which each takes effect at a moment between
its invocation and its reply, and every reply is what a single server would have given. The search repeats one
step: it places an operation that was sent before every unplaced operation had its reply. If a reply does not fit, it
goes back. It remembers each set of placed operations with the state that they lead to, and does not try it again
(J. Wing and C. Gong, "Testing and Verifying Concurrent Objects", 1993; G. Lowe, "Testing for linearizability", 2017).
By the locality of linearizability each partition of the keys is checked by itself (A. Horn and D. Kroening, 2015).

An operation of unknown outcome may be placed anywhere after its invocation, or be left out.

The search keeps its own stack, and gives up after a given number of steps. That is *undecided*, not a finding.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from tests.histories.operations import Call, Operation, Outcome

S = TypeVar("S", bound=Hashable)
Step = Callable[[S, Operation], Sequence[S]]
"""The states that an operation may leave behind; none if its reply does not fit."""

MOST_STEPS = 100_000
"""The most placings of an operation that one search may try: some ten seconds."""


class Verdict(StrEnum):
    """What a search found."""

    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """A verdict, and how far the search got.

    Attributes:
        verdict: what was found.
        steps: how many placings were tried.
        order: the longest order that was found.
        state: what it leads to.
    """

    verdict: Verdict
    steps: int
    order: list[Operation]
    state: S


class _Search(Generic[S]):
    """One search. Answered operations have the low bits of a mask, by invocation; unknown ones those above."""

    def __init__(self, history: Sequence[Operation], step: Step[S]) -> None:
        self.known = sorted((it for it in history if it.answered < math.inf), key=lambda it: it.invoked)
        self.unknown = sorted((it for it in history if it.answered == math.inf), key=lambda it: it.invoked)
        self.all_known = (1 << len(self.known)) - 1
        self._step = step

    def operation(self, bit: int) -> Operation:
        """The one that has this bit."""
        count = len(self.known)
        return self.known[bit] if bit < count else self.unknown[bit - count]

    def successors(self, mask: int, state: S) -> Iterator[tuple[int, S]]:
        """Bits of the operations that may come next, with the states they lead to; the likeliest first."""
        known = self.known
        count = len(known)
        bit = (~mask & (mask + 1)).bit_length() - 1
        soonest = math.inf
        next_bits: list[int] = []
        for index in range(bit, count):
            if mask >> index & 1:
                continue
            operation = known[index]
            if operation.invoked > soonest:
                break
            next_bits.append(index)
            soonest = min(soonest, operation.answered)
        next_bits.sort(key=lambda index: known[index].answered)
        for index in next_bits:
            for after in self._step(state, known[index]):
                yield index, after
        waiting: set[tuple[Call, ...]] = set()
        for index, operation in enumerate(self.unknown, count):
            if operation.invoked > soonest:
                break
            # If operations are equal, the one that was sent first can be placed wherever a later one can.
            if mask >> index & 1 or operation.calls in waiting:
                continue
            waiting.add(operation.calls)
            for after in self._step(state, operation):
                if after != state:  # without an effect it is as good as left out
                    yield index, after


def check(history: Sequence[Operation], initial: S, step: Step[S], most_steps: int = MOST_STEPS) -> Found[S]:
    """Search an order of a partition's history that explains every reply.

    Args:
        history: operations that were answered, and those of unknown outcome, whose ``answered`` is infinite.
        initial: state before the first.
        step: see :data:`Step`.
        most_steps: after which the search is given up.
    """
    search = _Search(history, step)
    if not search.all_known:
        return Found(Verdict.LINEARIZABLE, 0, [], initial)
    tried = {(0, initial)}
    masks = [0]
    bits: list[int] = []
    branches = [search.successors(0, initial)]
    steps = 0
    best: list[int] = []
    best_known = 0
    best_state = initial
    while branches:
        following = next(branches[-1], None)
        if following is None:
            branches.pop()
            masks.pop()
            if bits:
                bits.pop()
            continue
        bit, state = following
        mask = masks[-1] | 1 << bit
        if (mask, state) in tried:
            continue
        steps += 1
        placed = (mask & search.all_known).bit_count()
        if placed > best_known:
            best_known, best, best_state = placed, [*bits, bit], state
        if mask & search.all_known == search.all_known:
            return Found(Verdict.LINEARIZABLE, steps, [search.operation(it) for it in best], best_state)
        if steps >= most_steps:
            return Found(Verdict.UNDECIDED, steps, [search.operation(it) for it in best], best_state)
        tried.add((mask, state))
        masks.append(mask)
        bits.append(bit)
        branches.append(search.successors(mask, state))
    return Found(Verdict.NOT_LINEARIZABLE, steps, [search.operation(it) for it in best], best_state)


def until(history: Sequence[Operation], moment: float) -> list[Operation]:
    """A history as it was known at a moment: an operation without a reply by then is of unknown outcome."""
    return [
        it
        if it.answered <= moment or it.answered == math.inf
        else replace(it, answered=math.inf, replies=None, outcome=Outcome.UNKNOWN, error="answered later")
        for it in history
        if it.invoked <= moment
    ]


def first_unexplained(history: Sequence[Operation], initial: S, step: Step[S]) -> tuple[Operation, Found[S]] | None:
    """In a history that is not linearizable, the first reply that cannot be explained, and what was possible then.

    Such a history stays not linearizable however it goes on, so the reply is found by halving. None if the search takes
    too long.
    """
    replies = sorted((it for it in history if it.answered < math.inf), key=lambda it: it.answered)
    low, high = 0, len(replies) - 1
    while low < high:
        middle = (low + high) // 2
        found = check(until(history, replies[middle].answered), initial, step)
        if found.verdict is Verdict.NOT_LINEARIZABLE:
            high = middle
        else:
            low = middle + 1
    culprit = replies[low]
    before = check([it for it in until(history, culprit.answered) if it is not culprit], initial, step)
    if check(until(history, culprit.answered), initial, step).verdict is not Verdict.NOT_LINEARIZABLE:
        return None
    return culprit, before
