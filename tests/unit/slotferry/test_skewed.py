"""What the demo with ``--skew`` shows and counts. The run itself is in tests/integration/slotferry/test_local.py."""

from slotferry import skewed
from slotferry.skewed import Asked, hot_keys, line, relative, requests_of, value
from slots.keyslots import KeySlots


def test_each_slot_has_one_hot_key() -> None:
    key_slots = KeySlots("crc32", 1024)
    found = hot_keys(key_slots, [3, 500, 1023])
    assert sorted(key_slots.slot_of(0, key.encode()) for key in found) == [3, 500, 1023]


def test_requests_count_for_the_group_that_owns_the_slot() -> None:
    slots = [
        {"group_id": 1, "requests": 5.0},
        {"group_id": 2, "requests": 3.0},
        {"group_id": 1, "requests": 2.0},
        {"group_id": 0, "requests": 100.0},  # offline
    ]
    assert requests_of({"slots": slots}, (1, 2, 3)) == {1: 7.0, 2: 3.0, 3: 0.0}


def test_shares() -> None:
    assert relative({1: 60.0, 2: 30.0, 3: 0.0}) == {1: 2.0, 2: 1.0, 3: 0.0}
    assert relative({1: 0.0, 2: 0.0}) == {1: 0.0, 2: 0.0}


def test_a_line_has_a_bar_for_each_group() -> None:
    told = line(12.3, {1: 1.5, 2: 0.5}, {1: 1.25, 2: 0.75})
    assert told == (
        "  12 s  group 1 ██████████████████░░░░░░  75%  group 2 ██████░░░░░░░░░░░░░░░░░░  25%"
        "   of late, times the share: 1.25 0.75"
    )


def test_replies_are_compared() -> None:
    asked = Asked()
    asked.count(["hot:1", "hot:2"], [value("hot:1"), value("hot:2")])
    assert (asked.requests, asked.errors, asked.differences, asked.texts) == (2, 0, 0, [])
    asked.count(["hot:1", "hot:2", "hot:3"], [value("hot:2"), None, ValueError("no")])
    asked.fail(OSError("gone"))
    assert (asked.requests, asked.errors, asked.differences) == (5, 2, 2)
    assert asked.texts[2:] == ["error: no", "error: gone"]
    assert asked.texts[1] == "difference: hot:2 is None"


def test_texts_are_few() -> None:
    asked = Asked()
    for _ in range(100):
        asked.fail(OSError("gone"))
    assert asked.errors == 100
    assert len(asked.texts) == skewed.MOST_TEXTS
