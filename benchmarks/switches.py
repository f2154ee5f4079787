"""When slots were locked and switched, by topom's log, on the monotonic clock that all processes share."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.probe import Request
from slots.states import SlotState


@dataclass(frozen=True)
class Step:
    """A batch of slots has another state since ``at``; "" after a lock that was given up."""

    at: float
    slots: str
    state: str


@dataclass(frozen=True)
class Locked:
    """One lock: the seconds from its write to that of the next state, and the longest request under way meanwhile."""

    seconds: float
    longest_milliseconds: float


def events(log: Path) -> Iterator[dict[str, Any]]:
    """The events that a process of ours has logged to a file, as far as they are whole."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)


def moment(event: dict[str, Any]) -> float:
    """When an event was logged."""
    return datetime.fromisoformat(event["timestamp"]).timestamp() - time.time() + time.monotonic()


def steps(log: Path) -> list[Step]:
    """The steps of all slots that topom has logged."""
    return [
        Step(moment(event), event["slots"], event.get("state", ""))
        for event in events(log)
        if event["event"] in ("slots_advanced", "slots_unlocked")
    ]


def first(done: Iterable[Step], state: SlotState) -> float | None:
    """When slots first had a state; None if none had it."""
    return min((step.at for step in done if step.state == state), default=None)


def last(done: Iterable[Step], state: SlotState) -> float | None:
    """When slots last got a state; None if none had it."""
    return max((step.at for step in done if step.state == state), default=None)


def spans(done: Sequence[Step]) -> list[tuple[float, float]]:
    """From when to when slots were locked, in the order of the locks' ends."""
    locked: dict[str, float] = {}
    found = []
    for step in done:
        if step.state == SlotState.PREPARED:
            locked[step.slots] = step.at
        elif step.slots in locked:
            found.append((locked.pop(step.slots), step.at))
    return found


def longest(requests: Iterable[Request], begin: float, end: float) -> float:
    """Milliseconds of the longest request that was under way within a span; 0 if none was.

    A request that waits for a lock is under way when the lock ends.
    """
    within = (request.seconds for request in requests if request.at <= end and request.at + request.seconds >= begin)
    return 1000 * max(within, default=0.0)


def locks(done: Sequence[Step], requests: Sequence[Request]) -> list[Locked]:
    """All locks, with what clients saw of them."""
    return [Locked(end - begin, longest(requests, begin, end)) for begin, end in spans(done)]
