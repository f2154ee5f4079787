"""What is wrong with a value is said in words for the one who gave it."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from slots.wrongvalues import in_words


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    x: int = 0


class Values(BaseModel):
    model_config = ConfigDict(extra="forbid")

    needed: int
    most: Annotated[int, Field(le=9)] = 0
    least: Annotated[float, Field(ge=1)] = 1.0
    above: Annotated[float, Field(gt=0.5, allow_inf_nan=False)] = 1.0
    flag: bool = False
    text: Annotated[str, Field(min_length=1, max_length=3)] = "a"
    listed: Annotated[list[int], Field(max_length=1)] = []
    inner: Inner = Inner()
    word: Literal["on", "off"] = "on"
    colour: Colour = Colour.RED
    even: int = 0

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "has to be given"),
        ({"more": 1}, "is not known"),
        ({"needed": "x"}, "has to be a whole number"),
        ({"needed": 1.5}, "has to be a whole number"),
        ({"most": 10}, "has to be at most 9"),
        ({"least": 0}, "has to be at least 1"),
        ({"least": "x"}, "has to be a number"),
        ({"above": 0.5}, "has to be more than 0.5"),
        ({"above": float("inf")}, "has to be a finite number"),
        ({"flag": "perhaps"}, "has to be true or false"),
        ({"text": ""}, "has to have 1 character at least"),
        ({"text": "four"}, "may have 3 characters at most"),
        ({"text": 3}, "has to be text"),
        ({"listed": [1, 2]}, "may have 1 entry at most"),
        ({"listed": 3}, "has to be a list"),
        ({"inner": 3}, "has to be an object with fields"),
        ({"word": "x"}, "has to be 'on' or 'off'"),
        ({"colour": "x"}, "has to be 'red' or 'blue'"),
        ({"even": 3}, "is wrong: it is odd"),
    ],
)
def test_each_error_is_the_end_of_a_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        Values(**({"needed": 1} | given if given else {}))
    assert [in_words(entry) for entry in wrong.value.errors()] == [words]


def test_a_kind_without_words_of_its_own_is_said_all_the_same() -> None:
    assert in_words({"type": "odd", "msg": "Input should be even"}) == "has to be even"
    assert in_words({"type": "odd", "msg": "URL is bad"}) == "is wrong: URL is bad"
