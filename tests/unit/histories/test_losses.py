"""What a server that comes back with older data is excused of, and what it is not."""

from typing import Any

import pytest

from tests.histories.cluster import SLOTS
from tests.histories.losses import Look, Losses, Older, Place
from tests.histories.model import call
from tests.histories.operations import Form, Operation, Outcome, Partition

REST_AT_1 = Place(1, 0, "")
REST_AT_2 = Place(2, 0, "")
FROM_1_TO_2 = Place(1, 2, "migrating")


def look(at: float, place: Place) -> Look:
    return Look(at, at, [place] * SLOTS)


def losses(*looks: Look) -> Losses:
    found = Losses(Any, "crc32", lambda: 0.0)  # type: ignore[arg-type]  # no cluster is asked
    found._looks = list(looks)
    return found


def partition(kind: str, *times: float) -> Partition:
    made = Partition(kind, ("key",), 0)
    for at in times:
        made.operations.append(Operation(0, 0, (call("INCR"),), Form.PLAIN, at, at + 0.1, Outcome.ANSWERED, (1,)))
    return made


def older(before: Look | None, after: Look | None) -> Older:
    """Server 1 was killed at 5 s, and back at 6 s."""
    return Older(1, 5.0, 6.0, before, after)


@pytest.mark.parametrize(
    ("before", "after", "excused"),
    [
        (look(4.9, REST_AT_1), look(6, REST_AT_1), True),
        (look(4.9, REST_AT_2), look(6, REST_AT_2), False),
        (look(4.9, REST_AT_2), look(6, FROM_1_TO_2), True),
        (look(4.9, FROM_1_TO_2), look(6, FROM_1_TO_2), True),
        (None, look(6, REST_AT_2), True),
        (look(4.9, REST_AT_2), None, True),
    ],
)
def test_keys_are_excused_where_the_server_may_have_had_them(
    before: Look | None, after: Look | None, excused: bool
) -> None:
    found = losses()
    found.older.append(older(before, after))
    assert found.excuses(partition("register", 1.0, 4.0)) is excused
    assert found.excuses_key("ballast:1") is excused


def test_what_begins_after_the_restart_is_judged() -> None:
    found = losses()
    found.older.append(older(look(4.9, REST_AT_1), look(6, REST_AT_1)))
    assert not found.excuses(partition("register", 6.5))
    assert not found.excuses(partition("register"))


@pytest.mark.parametrize(
    ("kind", "times", "excused"),
    [
        ("total", (1.0, 4.5), False),  # it ran at the target
        ("total", (1.0, 2.0), True),  # perhaps it has yet to move
        ("register", (1.0, 4.5), True),  # it may have been deleted, and is back
    ],
)
def test_a_total_that_has_left_the_server_is_judged(kind: str, times: tuple[float, ...], excused: bool) -> None:
    before = look(4.9, FROM_1_TO_2)
    found = losses(look(1.0, REST_AT_1), look(3.0, FROM_1_TO_2), look(4.0, FROM_1_TO_2), before)
    found.older.append(older(before, look(6.1, FROM_1_TO_2)))
    assert found.excuses(partition(kind, *times)) is excused
