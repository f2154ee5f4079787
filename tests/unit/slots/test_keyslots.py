"""The slots of a product's keys, one and many at once."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import functions
from slots.keyslots import KeySlots
from slots.rules import SlotRule
from tests.unit.slots.test_functions import KEYS, NAMES, NUMBERS_OF_SLOTS


@given(NAMES, st.lists(KEYS, max_size=30), NUMBERS_OF_SLOTS, st.integers(0, 15), st.data())
def test_many_keys_at_once(
    function: str, keys: list[bytes], number_of_slots: int, database: int, data: st.DataObject
) -> None:
    slots = [functions.slot(function, key, number_of_slots) for key in keys]
    chosen = data.draw(st.sets(st.sampled_from(slots))) if slots else set()
    wanted = bytes(slot in chosen for slot in range(number_of_slots))
    key_slots = KeySlots(function, number_of_slots)

    assert [key_slots.slot_of(database, key) for key in keys] == slots
    assert key_slots.slots_of(database, keys) == slots
    assert key_slots.select(database, keys, wanted) == [
        key for key, slot in zip(keys, slots, strict=True) if slot in chosen
    ]


def test_it_goes_to_other_processes() -> None:
    copy = pickle.loads(pickle.dumps(KeySlots("crc16", 16384)))
    assert (copy.function, copy.number_of_slots) == ("crc16", 16384)
    assert copy.slot_of(0, b"foo") == 12182


def test_what_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"'sha1'; there are crc32, crc16, crc32c, md5"):
        KeySlots("sha1", 1024)
    for number_of_slots in (-1, 0, 3, 1000, 16385, 32768, 2**40):
        with pytest.raises(ValueError, match="power of two up to 16384"):
            KeySlots("crc32", number_of_slots)


def test_marks_of_another_number_of_slots() -> None:
    slots = KeySlots("crc32", 1024)
    with pytest.raises(ValueError, match="512 slots are marked"):
        slots.select(0, [b"key"], bytes(512))
    with pytest.raises(ValueError, match="512 slots are marked"):
        slots.misplaced(0, [b"key"], slots, bytes(512))
    with pytest.raises(ValueError, match="1024 slots are marked"):
        slots.misplaced(0, [b"key"], KeySlots("crc32", 512), bytes(1024))


@given(st.lists(KEYS, max_size=30), st.sampled_from([0, 5]), st.sets(st.integers(0, 15)))
def test_keys_that_other_rules_place_elsewhere(keys: list[bytes], database: int, owned: set[int]) -> None:
    old = KeySlots("crc32", 16, [SlotRule("a*")])
    new = KeySlots("crc32", 16, [SlotRule("a(*)b"), SlotRule("*", 5, "five")])
    keys = [*keys, b"a1b", b"a2b", b"a3", b"", b"plain"]
    here = bytes(slot in owned for slot in range(16))
    stranded = [key for key in keys if old.slot_of(database, key) in owned and new.slot_of(database, key) not in owned]
    shown = [key for key in keys if old.slot_of(database, key) not in owned and new.slot_of(database, key) in owned]
    assert sorted(old.misplaced(database, keys, new, here)) == sorted(stranded + shown)


def test_what_of_a_key_is_hashed() -> None:
    slots = KeySlots("crc32", 1024, [SlotRule("bull:(*):*"), SlotRule("celery*"), SlotRule("*", 5, "five")])
    for database, key, hashed in (
        (0, b"bull:mail:1", b"mail"),
        (0, b"bull:{mail}:1", b"{mail}"),
        (0, b"celery-task", b"celery"),
        (0, b"plain", b"plain"),
        (5, b"plain", b"five"),
        (5, b"bull:mail:1", b"mail"),
    ):
        assert slots.hashed(database, key) == hashed
        assert slots.slot_of(database, key) == functions.slot("crc32", hashed, 1024)


@pytest.mark.parametrize("key", ["text", None])
def test_keys_that_are_not_bytes(key: object) -> None:
    with pytest.raises(TypeError):
        KeySlots("crc32", 1024).slots_of(0, [key])  # type: ignore[list-item]
