"""Reads or writes a large JSON object a piece at a time, on a thread, so that the event loop goes on meanwhile.

``json.loads`` is one call into C, which no other thread interrupts, however long it takes: 16384 slots with ten keys
each would stop topom for a third of a second. Here each element of the one long array is a call of its own, and is
converted at once. So the garbage collector, which also runs without interruption, finds little to look at. The same
holds of ``json.dumps``: a day by minute of 100 groups takes it an eighth of a second.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_encoded = json.JSONEncoder(separators=(",", ":")).encode


class NotJson(json.JSONDecodeError):
    """The body is no JSON object, or its array has too many elements."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message, "", 0)
        self.pos = at


def read(
    body: bytes, array: str, most: int, each: Callable[[int, Any], Any] = lambda place, element: element
) -> dict[str, Any]:
    """The object in ``body``, as ``json.loads`` would give it.

    Args:
        array: the name of the member that is a long array; its elements are read one by one.
        most: how many elements it may have.
        each: gets an element, and its place from 0; gives what takes its place in the array.

    Raises:
        NotJson: as it says.
        Exception: whatever ``each`` raises.
    """
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
    except ValueError as error:
        raise NotJson(str(error)) from None
    return _Reader(text, array, most, each).read()


def write(document: Mapping[str, Any]) -> bytes:
    """The document as ``json.dumps`` would write it, without spaces."""
    members = (f"{_encoded(name)}:{_written(value)}" for name, value in document.items())
    return f"{{{','.join(members)}}}".encode()


def _written(value: Any) -> str:
    return f"[{','.join(map(_encoded, value))}]" if isinstance(value, list) else _encoded(value)


class _Reader:
    def __init__(self, text: str, array: str, most: int, each: Callable[[int, Any], Any]) -> None:
        self._each = each
        self._text = text
        self._at = 0
        self._array = array
        self._most = most

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._expect("{")
        if not self._take("}"):
            while True:
                self._skip()
                name = self._value()
                if not isinstance(name, str):
                    raise NotJson("a member's name was expected", self._at)
                self._expect(":")
                self._skip()
                long = name == self._array and self._text.startswith("[", self._at)
                found[name] = self._elements() if long else self._value()
                if self._take("}"):
                    break
                self._expect(",")
        self._skip()
        if self._at != len(self._text):
            raise NotJson("there is more after the object", self._at)
        return found

    def _elements(self) -> list[Any]:
        self._expect("[")
        elements: list[Any] = []
        if self._take("]"):
            return elements
        while True:
            if len(elements) == self._most:
                raise NotJson(f"{self._array} may have {self._most} elements at most", self._at)
            self._skip()
            elements.append(self._each(len(elements), self._value()))
            if self._take("]"):
                return elements
            self._expect(",")

    def _value(self) -> Any:
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError) as error:
            raise NotJson(str(error), self._at) from None
        return value

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()

    def _take(self, character: str) -> bool:
        self._skip()
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._take(character):
            raise NotJson(f"{character} was expected", self._at)
