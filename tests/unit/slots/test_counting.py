"""A number of things reads as a person says it."""

import pytest

from slots.counting import counted


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("slot",), "0 slots"),
        (1, ("slot",), "1 slot"),
        (1234, ("slot",), "1,234 slots"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_one_is_one_and_others_are_many(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said
