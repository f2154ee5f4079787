"""The kinds of fields of loads."""

import base64

import pytest
from pydantic import TypeAdapter, ValidationError

from slots.messages.load import KEY_BYTES, ROW_BYTES, KeyText, SlotRows
from slots.slot import MAXIMUM_SLOTS


def test_the_rows_of_all_slots_fit() -> None:
    text = base64.b64encode(bytes(MAXIMUM_SLOTS * ROW_BYTES)).decode()
    assert TypeAdapter(SlotRows).validate_python(text) == text
    with pytest.raises(ValidationError):
        TypeAdapter(SlotRows).validate_python(text + "AAAA")


def test_the_longest_told_key_fits() -> None:
    text = base64.b64encode(b"\xff" * KEY_BYTES).decode()
    assert TypeAdapter(KeyText).validate_python(text) == text
    with pytest.raises(ValidationError):
        TypeAdapter(KeyText).validate_python(text + "AAAA")
