"""What the tests of both conversations do with their messages."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from slots.messages.message import Message


def kinds_of(union: Any) -> set[type[Message]]:
    """The messages of one direction."""
    return set(get_args(union))


def with_field(wire: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A message, as it is on the way, with another value at ``field`` or ``field.part``."""
    field, _, rest = path.partition(".")
    return {**wire, field: with_field(wire[field], rest, value) if rest else value}


def untried(messages: Iterable[Message], tried: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The fields, by type of message, of which no wrong value is tried."""
    fields = {(message.type, field) for message in messages for field in type(message).model_fields if field != "type"}
    return fields - {(kind, path.partition(".")[0]) for kind, path in tried}
