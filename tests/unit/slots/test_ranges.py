"""Slot ranges as operators write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import ranges


@given(st.sets(st.integers(0, 1023), min_size=1))
def test_what_is_shown_is_read_back(slots: set[int]) -> None:
    assert ranges.parse(ranges.show(slots), 1024) == sorted(slots)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("0", [0]),
        ("3-5", [3, 4, 5]),
        ("700, 0-2", [0, 1, 2, 700]),
        ("1-3,2-4,4", [1, 2, 3, 4]),
        ("1023", [1023]),
    ],
)
def test_parse(text: str, slots: list[int]) -> None:
    assert ranges.parse(text, 1024) == slots


@pytest.mark.parametrize(
    "text", ["", ",", "a", "1-", "-1", "1-2-3", "5-3", "1024", "0-1024", "1,,2", "1.5", "1_0", "+1", "1 2"]
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ranges.RangeError):
        ranges.parse(text, 1024)


def test_an_error_names_the_part_that_is_wrong() -> None:
    with pytest.raises(ranges.RangeError, match="'x7' is not a slot or a range"):
        ranges.parse("0-3,x7", 1024)
    with pytest.raises(ranges.RangeError, match="'4-2' ends before it begins; write 2-4"):
        ranges.parse("0-3,4-2", 1024)


def test_show() -> None:
    assert ranges.show([]) == ""
    assert ranges.show([5, 3, 4, 4, 9]) == "3-5,9"


def test_many_slots_are_shortened_and_few_are_not() -> None:
    assert ranges.named([5]) == "slot 5"
    assert ranges.named([3, *range(7, 13)]) == "slots 3,7-12"
    assert ranges.named(range(0, 1024, 2)) == "512 slots: 0, 2, 4, 6, …"
    assert ranges.named(range(1024)) == "slots 0-1023"


def test_a_sentence_about_slots_has_the_right_number() -> None:
    assert ranges.that([5], "is", "are") == "slot 5 is"
    assert ranges.that([3, *range(7, 13)], "is", "are") == "slots 3,7-12 are"
    assert ranges.that(range(0, 1024, 2), "is", "are") == "512 slots (0, 2, 4, 6, …) are"
