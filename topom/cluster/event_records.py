"""How events lie in the store: documents of :data:`EVENTS_A_DOCUMENT` events, ``events/00000000`` with the first ones.

The newest document grows with each event; when its events are dropped, a document is deleted. So a write puts one or
two small documents, no matter how many events are kept.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from topom.cluster.events import Event
from topom.reasons import Reason

PREFIX = "events/"
EVENTS_A_DOCUMENT = 32
FIELDS = len(fields(Event))
"""Values of a stored event that this version knows. An event of a newer version may have more values behind them."""
_fields = attrgetter(*(field.name for field in fields(Event) if field.name != "reason"))


def events_of(raw: Iterable[Sequence[Any]]) -> list[Event]:
    """The events of one parsed document. Raises TypeError or ValueError for anything else."""
    return [_event(one) for one in raw]


def in_order(parts: Iterable[Iterable[Event]]) -> tuple[Event, ...]:
    """Every event of all documents, by id."""
    return tuple(sorted((event for part in parts for event in part), key=attrgetter("id")))


def differences(old: Sequence[Event], new: Sequence[Event]) -> dict[str, bytes | None]:
    """The documents to put, or to delete if None, so that a store that holds ``old`` holds ``new``.

    ``new`` is ``old`` with events added at its end, and others dropped at its beginning. A document stays whole until
    its last event is dropped.
    """
    if new is old or not new:
        return {}
    last = old[-1].id if old else 0
    documents: dict[str, bytes | None] = {}
    for page in sorted({_page(event) for event in new[max(0, last + 1 - new[0].id) :]}):
        first = page * EVENTS_A_DOCUMENT + 1
        place = first - new[0].id  # ids have no gaps
        held = new[max(0, place) : place + EVENTS_A_DOCUMENT]
        documents[_name(page)] = json.dumps([_values(event) for event in held], separators=(",", ":")).encode()
    for page in range(_page(old[0]), _page(new[0])) if old else ():
        documents[_name(page)] = None
    return documents


def _event(raw: Any) -> Event:
    event = Event(*raw[: FIELDS - 1])
    reason = raw[FIELDS - 1] if len(raw) >= FIELDS else None
    return event if reason is None else replace(event, reason=Reason.from_document(reason))


def _values(event: Event) -> tuple[Any, ...]:
    reason = event.reason
    return (*_fields(event), None if reason is None else reason.to_document())


def _page(event: Event) -> int:
    return (event.id - 1) // EVENTS_A_DOCUMENT


def _name(page: int) -> str:
    return f"{PREFIX}{page:08d}"
