"""What is wrong with a value that somebody gave, in words for them and not in those of the library that checks it."""

from collections.abc import Callable, Mapping
from typing import Any

_PLAIN = {
    "missing": "has to be given",
    "extra_forbidden": "is not known",
    "int_type": "has to be a whole number",
    "int_parsing": "has to be a whole number",
    "int_from_float": "has to be a whole number",
    "int_parsing_size": "is too large a number",
    "float_type": "has to be a number",
    "float_parsing": "has to be a number",
    "finite_number": "has to be a finite number",
    "bool_type": "has to be true or false",
    "bool_parsing": "has to be true or false",
    "string_type": "has to be text",
    "list_type": "has to be a list",
    "dict_type": "has to be an object with fields",
    "model_type": "has to be an object with fields",
    "model_attributes_type": "has to be an object with fields",
    "json_invalid": "is not JSON",
    "string_pattern_mismatch": "has signs, or an order of signs, that it may not have",
}
_WITH_LIMIT: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda limit: f"has to be at least {_plain(limit['ge'])}",
    "greater_than": lambda limit: f"has to be more than {_plain(limit['gt'])}",
    "less_than_equal": lambda limit: f"has to be at most {_plain(limit['le'])}",
    "less_than": lambda limit: f"has to be less than {_plain(limit['lt'])}",
    "string_too_short": lambda limit: f"has to have {_many(limit['min_length'], 'character')} at least",
    "string_too_long": lambda limit: f"may have {_many(limit['max_length'], 'character')} at most",
    "too_short": lambda limit: f"has to have {_many(limit['min_length'], 'entry', 'entries')} at least",
    "too_long": lambda limit: f"may have {_many(limit['max_length'], 'entry', 'entries')} at most",
    "literal_error": lambda limit: f"has to be {limit['expected']}",
    "enum": lambda limit: f"has to be {limit['expected']}",
}


def in_words(entry: Mapping[str, Any]) -> str:
    """The end of a sentence that begins with the name of what is wrong; ``entry`` is one of pydantic's errors."""
    kind = str(entry["type"])
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _WITH_LIMIT:
        return _WITH_LIMIT[kind](entry["ctx"])
    message = str(entry["msg"])
    if kind == "value_error":
        return f"is wrong: {message.removeprefix('Value error, ')}"
    return (
        message.replace("Input should", "has to", 1) if message.startswith("Input should") else f"is wrong: {message}"
    )


def _plain(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _many(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
