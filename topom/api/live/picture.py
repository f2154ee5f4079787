"""The picture of a cluster as sections of keyed values, and what changes from one picture to the next.

A section is a mapping of keys to JSON values. Slots are many, so they are told in *runs*: ``[first, count, group]`` for
neighbours at rest in the same group, ``[first, count, group, state, target, course]`` for neighbours with an action.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slots.slot import Slot
from topom.cluster.events import Event

Section = Mapping[str, Any]
Run = list[Any]

FIRST_EVENTS = 200
"""How many of the newest events a whole picture has."""
MOST_EVENTS = 200
"""How many events one message has at most; older ones of those that came meanwhile are left out."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the page shows, at one instant.

    Attributes:
        sections: by name, keyed values.
        slots: all slots of the table, by id.
        heat: by name, a number for each slot, or None where it is not known. The same object means no change.
        events: those that are kept, the oldest first.
    """

    sections: Mapping[str, Section] = field(default_factory=dict)
    slots: Sequence[Slot] = ()
    heat: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    events: Sequence[Event] = ()


def whole(picture: Picture) -> dict[str, Any]:
    """The picture as a message: sections, ``slots`` as runs, ``heat``, and the newest ``events``."""
    return {
        **picture.sections,
        "slots": runs(picture.slots),
        "heat": picture.heat,
        "events": [_event(event) for event in picture.events[-FIRST_EVENTS:]],
    }


def changes(old: Picture, new: Picture) -> dict[str, Any]:
    """What has to be changed in ``old`` to have ``new``, in the form of :func:`whole`.

    A key of a section that is gone has null. A section without changes is left out, as are slots, heat and events.
    """
    found: dict[str, Any] = {}
    for name, section in new.sections.items():
        before = old.sections.get(name, {})
        if section is before:
            continue
        changed = {key: value for key, value in section.items() if key not in before or before[key] != value}
        changed.update(dict.fromkeys(before.keys() - section.keys()))
        if changed:
            found[name] = changed
    if new.slots is not old.slots:
        other = [slot for slot, known in zip(new.slots, old.slots, strict=True) if slot is not known and slot != known]
        if other:
            found["slots"] = runs(other)
    heat = {name: values for name, values in new.heat.items() if values is not old.heat.get(name)}
    if heat:
        found["heat"] = heat
    last = old.events[-1].id if old.events else 0
    events = [_event(event) for event in new.events[-MOST_EVENTS:] if event.id > last]
    if events:
        found["events"] = events
    return found


def runs(slots: Iterable[Slot]) -> list[Run]:
    """Slots in ascending order, as runs."""
    found: list[Run] = []
    for slot in slots:
        said = _said(slot)
        if found and found[-1][0] + found[-1][1] == slot.id and found[-1][2:] == said:
            found[-1][1] += 1
        else:
            found.append([slot.id, 1, *said])
    return found


def message(name: str, content: Any) -> bytes:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n".encode()


def rounded(number: float) -> float:
    """A number with three digits that count: what differs less is no change."""
    return float(f"{number:.3g}") if number < 1000 else int(float(f"{number:.3g}"))


def _said(slot: Slot) -> list[Any]:
    if slot.action is None:
        return [slot.group_id]
    return [slot.group_id, slot.action.state.value, slot.action.target_id, slot.action.course.value]


def _event(event: Event) -> dict[str, Any]:
    return {"id": event.id, "at": event.at, "who": event.who, "what": event.what, "text": event.text}
