"""Sizes of slots: what a measurement changes, and what is stale."""

import pytest

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.balance.measurements import DAY, NOW, sized, taking
from topom.balance.sizes import (
    InvalidSizes,
    KnownSizes,
    by_group,
    duration,
    freshness,
    sizes_in,
    with_measurement,
)
from topom.migration.ways import Sized


def table(*group_ids: int) -> SlotTable:
    """Slots in these groups; one written as 12 is on its way from group 1 to group 2."""
    slots = [
        Slot(place, group_id // 10, Action(SlotState.MIGRATING, group_id % 10))
        if group_id > 9
        else Slot(place, group_id)
        for place, group_id in enumerate(group_ids)
    ]
    return SlotTable(1, tuple(slots), {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",)), 3: Group(3)})


# What a measurement changes


def test_of_a_complete_measurement_a_slot_that_is_not_named_is_empty() -> None:
    known = with_measurement(KnownSizes({0: sized(5, NOW - DAY)}), taking(), {1: sized(7)}, 4, NOW)
    assert known.slots == {0: sized(0, keys=0), 1: sized(7), 2: sized(0, keys=0), 3: sized(0, keys=0)}
    assert known.last == taking()


def test_of_a_part_a_slot_that_is_not_named_keeps_what_was_known() -> None:
    before = KnownSizes({0: sized(5, NOW - DAY)}, taking(NOW - DAY))
    known = with_measurement(before, taking(complete=False), {1: sized(7)}, 4, NOW)
    assert known.slots == {0: sized(5, NOW - DAY), 1: sized(7)}
    assert known.last == taking(complete=False)


def test_an_older_measurement_does_not_undo_a_newer_one() -> None:
    newer = with_measurement(KnownSizes(), taking(complete=False), {0: sized(5)}, 4, NOW)
    older = taking(NOW - DAY)
    known = with_measurement(newer, older, {0: sized(1, NOW - DAY), 1: sized(2, NOW - DAY)}, 4, NOW)
    assert known.slots[0] == sized(5)
    assert known.slots[1] == sized(2, NOW - DAY)
    assert known.slots[2] == sized(0, NOW - DAY, keys=0)
    assert known.last == newer.last


def test_what_cannot_be_taken_in() -> None:
    with pytest.raises(InvalidSizes, match="slot 4 is not within 0-3"):
        with_measurement(KnownSizes(), taking(), {4: sized(1)}, 4, NOW)
    with pytest.raises(InvalidSizes, match="future"):
        with_measurement(KnownSizes(), taking(NOW + 301), {}, 4, NOW)
    assert with_measurement(KnownSizes(), taking(NOW + 299), {}, 4, NOW).last is not None


def test_slots_count_for_the_group_in_which_they_come_to_rest() -> None:
    known = KnownSizes({0: sized(5), 1: sized(7, keys=3), 2: sized(11)})
    totals = {size.group_id: (size.slots, size.bytes, size.keys) for size in by_group(known, table(1, 12, 0, 1))}
    assert totals == {1: (2, 5, 1), 2: (1, 7, 3), 3: (0, 0, 0)}


def test_what_slots_that_are_to_move_have_and_all_of_their_group() -> None:
    known = KnownSizes({0: sized(6, keys=2), 1: sized(10, keys=4), 2: sized(2, keys=0)})
    # Slot 3 was not measured: it counts as the mean. Slot 1 is still at its source.
    assert sizes_in(known, table(1, 12, 2, 1), 1, [0, 3]) == Sized(4.0, 12.0, 8.0, 22.0)
    assert sizes_in(KnownSizes(), table(1, 1), 1, [0]) is None


# What needs care


def warned(known: KnownSizes, moved: dict[int, float] | None = None, now: float = NOW) -> list[str]:
    return freshness(known, table(1, 1, 2, 2), moved or {}, now, 7 * DAY).warnings


ALL = {slot: sized(1) for slot in range(4)}


def test_fresh_and_complete_sizes_need_no_warning() -> None:
    assert warned(KnownSizes(ALL, taking()), now=NOW + 7 * DAY) == []


def test_sizes_that_are_too_old_are_stale() -> None:
    known = KnownSizes({**ALL, 2: sized(1, NOW - DAY), 3: sized(1, NOW - DAY)}, taking())
    fresh = freshness(known, table(1, 1, 2, 2), {}, NOW + 6 * DAY + 1, 7 * DAY)
    assert (fresh.stale, fresh.moved, fresh.unknown) == ([2, 3], [], [])
    [warning] = fresh.warnings
    assert "the sizes of 2 slots (2-3) are stale" in warning
    assert "taken 7 days ago, at 1970-01-11T13:46:40Z" in warning
    assert "slotferry sizing run" in warning


def test_slots_that_moved_since_or_meanwhile_are_said() -> None:
    known = KnownSizes({**ALL, 3: sized(1, NOW + 5)}, taking())
    fresh = freshness(known, table(1, 1, 2, 2), {0: NOW - 0.001, 1: NOW, 2: NOW + 9, 3: NOW + 4}, NOW + 10, DAY)
    assert fresh.moved == [1, 2]
    assert fresh.warnings == [
        "sizes were taken before 2 slots (1-2) moved; they count with the bytes that they had before"
    ]


def test_slots_that_are_not_known() -> None:
    [warning] = warned(KnownSizes())
    assert "slotferry sizing run --into DIR" in warning
    part = taking(complete=False, missing={"a:1": "timed out"}, sampled=0.1)
    warnings = warned(KnownSizes({0: sized(1)}, part))
    assert "the sizes of 3 slots (1-3) are not known; each counts as the mean of the others" in warnings
    assert "a:1 could not be read when sizes were last taken: timed out" in warnings
    assert "sizes are estimates from a sample of 0.1 of the keys" in warnings
    offline = freshness(KnownSizes({0: sized(1)}, taking()), table(1, 0, 0, 0), {}, NOW, DAY)
    assert (offline.unknown, offline.warnings) == ([], []), "what nobody owns has no keys to speak of"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 minute"), (7200, "2 hours"), (8 * DAY, "8 days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
