"""The live picture: whatever changes, a page that takes the changes has the whole picture."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots.slot import Action, Slot
from slots.states import SlotState
from topom.api.live.picture import FIRST_EVENTS, Picture, changes, message, rounded, runs, whole
from topom.cluster.events import Event, What

ACTIONS = st.none() | st.builds(Action, st.sampled_from([SlotState.PENDING, SlotState.MIGRATING]), st.integers(1, 3))
SLOTS = st.lists(st.tuples(st.integers(0, 3), ACTIONS), min_size=12, max_size=12).map(
    lambda found: tuple(Slot(number, group, action) for number, (group, action) in enumerate(found))
)
SECTIONS = st.fixed_dictionaries(
    {name: st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3) for name in ("groups", "cluster")}
)


def events(last: int) -> tuple[Event, ...]:
    return tuple(
        Event(number, float(number), "operator", What.PAUSED, f"text {number}", 1, 1) for number in range(1, last + 1)
    )


PICTURES = st.builds(
    Picture,
    sections=SECTIONS,
    slots=SLOTS,
    heat=st.sampled_from([{}, {"bytes": [1, None]}, {"bytes": [2, 3]}]),
    events=st.integers(0, 5).map(events),
)


def by_slot(found: list[list[Any]]) -> dict[int, list[Any]]:
    return {slot: run[2:] for run in found for slot in range(run[0], run[0] + run[1])}


def taken(page: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """What a page makes of a message, as ``live.js`` does."""
    page = {"slots": {}, "heat": {}, "events": [], **page}
    for name, content in json.loads(json.dumps(said)).items():
        if name == "slots":
            page["slots"] = {**page["slots"], **by_slot(content)}
        elif name == "events":
            page["events"] = page["events"] + content
        else:
            both = {**page.get(name, {}), **content}
            page[name] = {key: value for key, value in both.items() if value is not None}
    return page


@pytest.mark.long
@given(old=PICTURES, new=PICTURES)
def test_what_was_plus_what_changed_is_what_is(old: Picture, new: Picture) -> None:
    new = replace(new, heat={**old.heat, **new.heat}, events=max(old.events, new.events, key=len))
    page = taken({}, whole(old))
    assert taken(page, changes(old, new)) == taken({}, whole(new))


def test_nothing_changed_says_nothing() -> None:
    picture = Picture({"groups": {"1": {"a": 1}}}, (Slot(0, 1),), {}, events(3))
    assert changes(picture, picture) == {}
    assert changes(picture, Picture({"groups": {"1": {"a": 1}}}, (Slot(0, 1),), {}, events(3))) == {}


def test_neighbours_that_are_alike_are_one_run() -> None:
    moving = Action(SlotState.MIGRATING, 2)
    slots = [Slot(0, 1), Slot(1, 1), Slot(2, 1, moving), Slot(3, 1, moving), Slot(4, 2), Slot(6, 2)]
    assert runs(slots) == [[0, 2, 1], [2, 2, 1, "migrating", 2, "forward"], [4, 1, 2], [6, 1, 2]]


def test_only_the_newest_events_come_at_first() -> None:
    said = whole(Picture(events=events(FIRST_EVENTS + 7)))["events"]
    assert [said[0]["id"], said[-1]["id"], len(said)] == [8, FIRST_EVENTS + 7, FIRST_EVENTS]


def test_a_message_is_a_server_sent_event() -> None:
    assert message("changes", {"text": "two\nlines"}) == b'event: changes\ndata: {"text":"two\\nlines"}\n\n'


def test_three_digits_count() -> None:
    assert [rounded(number) for number in (0, 999, 1234, 6_993_211)] == [0, 999, 1230, 6_990_000]
