"""Events as documents: the oldest are dropped, and topom reads the events of another version."""

import json
from dataclasses import replace
from typing import Any

from tests.unit.topom.cluster.changes_told import STATE
from topom.cluster import changed_records, event_records, records
from topom.cluster import event_finding as telling
from topom.cluster.events import Event, Said, What
from topom.reasons import Kind, Reason
from topom.store import Stored


def test_the_oldest_are_dropped_and_documents_stay_small() -> None:
    state, stored = STATE, {k: v for k, v in changed_records.differences(None, STATE).items() if v is not None}
    for number in range(1, 301):
        new = telling.recorded(
            state, replace(state, version=state.version + 1), "w", 1.0, 64, [Said(What.PROXY_LOST, str(number))]
        )
        documents = changed_records.differences(state, new)
        assert len([name for name in documents if name.startswith(event_records.PREFIX)]) <= 2
        stored = {name: value for name, value in {**stored, **documents}.items() if value is not None}
        state = new
    assert [event.id for event in state.events] == list(range(237, 301))
    assert len([name for name in stored if name.startswith(event_records.PREFIX)]) <= 3
    found = records.decode(Stored(state.version, stored))
    assert found is not None
    assert found.events[-64:] == state.events
    assert len(found.events) < 64 + event_records.EVENTS_A_DOCUMENT, "what is left of a document's, at a start"
    fewer = telling.recorded(found, replace(found, version=999), "w", 1.0, 32, [Said(What.PROXY_LOST, "x")])
    stored = {**stored, **changed_records.differences(found, fewer)}  # type: ignore[dict-item]
    again = records.decode(Stored(999, {name: value for name, value in stored.items() if value is not None}))
    assert again is not None
    assert again.events[-32:] == fewer.events
    assert [event.id for event in again.events] == list(range(again.events[0].id, 302))


def test_an_event_of_another_version_can_be_read() -> None:
    event = Event(1, 2.5, "topom x", "something_new", "It happened.", 3, 4)
    documents = event_records.differences((), (event,))
    ((name, value),) = documents.items()
    assert value is not None
    stored = {**changed_records.differences(None, STATE), name: value}
    found = records.decode(Stored(7, {key: value for key, value in stored.items() if value is not None}))
    assert found is not None
    assert found.events == (event,)


def test_an_event_of_something_that_waits_keeps_its_reason() -> None:
    reason = Reason(Kind.DATA, "h:1 is empty", 1.5, "fill it")
    told = Event(1, 2.5, "topom x", What.MASTER_NOT_REPLACED, "It waits.", 3, 3, reason)
    other = Event(2, 2.5, "topom x", What.SERVER_FAILED, "It failed.", 3, 3)
    (value,) = event_records.differences((), (told, other)).values()
    assert value is not None
    assert _decoded(json.loads(value)) == (told, other)
    # When: another version has stored more or fewer fields of each.
    rows = json.loads(value)
    assert _decoded([[*row, "more"] for row in rows]) == (told, other)
    assert _decoded([row[:7] for row in rows]) == (replace(told, reason=None), other)


def _decoded(rows: list[list[Any]]) -> tuple[Event, ...]:
    return event_records.in_order([event_records.events_of(rows)])
