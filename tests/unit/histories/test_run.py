"""What a run's report says of copies."""

import json

import pytest

from tests.histories.run import switched


def log(*steps: tuple[str, str]) -> bytes:
    return b"\n".join(
        json.dumps({"slots": slots, "state": state, "event": "slots_advanced"}).encode() for slots, state in steps
    )


@pytest.mark.parametrize(
    ("steps", "slots"),
    [
        ([("1-4", "copying"), ("1-4", "preparing"), ("1-4", "prepared"), ("1-4", "finished")], 4),
        ([("1-4", "copying"), ("1,3", "preparing"), ("1,3", "prepared"), ("1,3", "finished")], 2),
        ([("1-4", "preparing"), ("1-4", "prepared"), ("1-4", "migrating"), ("1-4", "finished")], 0),
        ([("1-4", "copying"), ("1-4", "prepared"), ("1-4", "prepared"), ("3-4", "migrating"), ("1-4", "finished")], 2),
        ([("", "prepared"), ("", "finished")], 0),
    ],
)
def test_slots_that_switch_to_a_copy_are_counted(steps: list[tuple[str, str]], slots: int) -> None:
    other = b'\n{"event": "slots_moved", "slots": "1-4"}\nno event\n{"event": "slots_advanced", "slo'
    assert switched(log(*steps) + other) == slots
