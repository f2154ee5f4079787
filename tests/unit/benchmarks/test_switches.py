"""What is read of topom's log: locks, switches, and what clients saw meanwhile. Nothing is timed here."""

import json
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import switches
from benchmarks.probe import Kind, Request
from benchmarks.switches import Locked, Step
from slots.states import SlotState

STEPS = [
    Step(1.0, "1-2", "copying"),
    Step(2.0, "1-2", "prepared"),
    Step(2.5, "1-2", ""),
    Step(3.0, "1-2", "prepared"),
    Step(3.25, "1-2", "finished"),
    Step(4.0, "3", "prepared"),
    Step(5.0, "3", "migrating"),
    Step(9.0, "3", "finished"),
]


def request(at: float, seconds: float) -> Request:
    return Request(at, seconds, Kind.ANSWERED)


def test_a_lock_lasts_until_the_next_state_also_if_it_is_given_up() -> None:
    assert switches.spans(STEPS) == [(2.0, 2.5), (3.0, 3.25), (4.0, 5.0)]
    assert switches.first(STEPS, SlotState.MIGRATING) == 5.0
    assert switches.last(STEPS, SlotState.FINISHED) == 9.0
    assert switches.last(STEPS[:3], SlotState.FINISHED) is None


def test_the_longest_request_of_a_lock_may_have_begun_before_it_and_end_after_it() -> None:
    requests = [request(1.0, 0.9), request(1.9, 0.2), request(2.4, 0.5), request(2.6, 0.7)]
    assert switches.longest(requests, 2.0, 2.5) == 500.0
    assert switches.longest(requests, 9.0, 9.5) == 0.0
    assert switches.locks(STEPS[:3], requests) == [Locked(0.5, 500.0)]


def test_steps_are_read_from_what_topom_logged(tmp_path: Path) -> None:
    log = tmp_path / "topom.log"
    stamp = datetime.now(UTC).isoformat()
    lines = [
        {"event": "slots_advanced", "slots": "0-3", "state": "prepared", "timestamp": stamp},
        {"event": "leading", "timestamp": stamp},
        {"event": "slots_unlocked", "slots": "0-3", "timestamp": stamp},
    ]
    log.write_text("a warning\n" + "".join(json.dumps(line) + "\n" for line in lines) + '{"event": "slots_ad')
    assert [(step.slots, step.state) for step in switches.steps(log)] == [("0-3", "prepared"), ("0-3", "")]
