"""JSON and YAML for programs: what was written is read back as it was."""

import json
from typing import Any

import pytest
import yaml

from slots.forms import Form, written

VALUES: list[Any] = [
    {"slots": [{"id": 1, "action": {}, "owner": None, "rate": 1.5, "up": True}], "epoch": 10**12},
    {"time": "1:20", "no": "no", "text": "a: b # c\n- d", "empty": "", "none": [], "control": "\x1b\x00"},
    ["ä", "😀", "plain"],
    "slots 0-9",
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert json.loads(written(value, Form.JSON)) == value
    assert "\n" not in written(value, Form.JSON)
    assert yaml.safe_load(written(value, Form.YAML)) == value


def test_many_documents_of_yaml_are_told_apart() -> None:
    stream = "".join(written(value, Form.YAML, many=True) + "\n" for value in VALUES)
    assert list(yaml.safe_load_all(stream)) == VALUES


def test_bytes_that_are_no_text_can_be_written() -> None:
    name = b"a\xff".decode(errors="surrogateescape")
    assert json.loads(written({"key": name}, Form.JSON)) == {"key": name}
    assert written({"key": name}, Form.YAML) == 'key: "a\\uDCFF"'
