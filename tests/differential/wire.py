"""RESP as bytes: requests made, a stream cut into whole values, a value taken apart for a closer look."""

from collections.abc import Iterable
from typing import NamedTuple

LINES = b"+-:_,#("
STRINGS = b"$=!"
AGGREGATES = b"*~>%|"


class Node(NamedTuple):
    """One value: the byte of its type, and its text or its elements; None for the null of RESP2."""

    kind: str
    held: "bytes | tuple[Node, ...] | None"

    @property
    def items(self) -> "tuple[Node, ...]":
        """The elements of an aggregate; empty for anything else."""
        return self.held if isinstance(self.held, tuple) else ()

    @property
    def text(self) -> bytes:
        """Text of a line or a string, empty for anything else."""
        return self.held if isinstance(self.held, bytes) else b""


def encode(command: Iterable[bytes]) -> bytes:
    """A request."""
    words = list(command)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _parse(data: bytes, position: int) -> tuple[Node, int] | None:
    """The value at ``position`` and where it ends; None when it is not all there."""
    line_end = data.find(b"\r\n", position)
    if line_end < 0:
        return None
    kind = data[position : position + 1]
    line = data[position + 1 : line_end]
    after = line_end + 2
    if kind in LINES:
        return Node(kind.decode(), line), after
    size = int(line)
    if kind in STRINGS:
        if size < 0:
            return Node(kind.decode(), None), after
        if len(data) < after + size + 2:
            return None
        return Node(kind.decode(), data[after : after + size]), after + size + 2
    if kind not in AGGREGATES:
        raise ValueError(f"not RESP: {data[position : position + 60]!r}")
    if size < 0:
        return Node(kind.decode(), None), after
    held = []
    for _ in range(size * (2 if kind in (b"%", b"|") else 1)):
        found = _parse(data, after)
        if found is None:
            return None
        node, after = found
        held.append(node)
    return Node(kind.decode(), tuple(held)), after


def decode(value: bytes) -> Node:
    """A whole value taken apart."""
    found = _parse(value, 0)
    if found is None or found[1] != len(value):
        raise ValueError(f"not one value: {value[:200]!r}")
    return found[0]


def show(value: bytes | None, longest: int = 400) -> str:
    """A value for the eye."""
    if value is None:
        return "nothing"
    return repr(value if len(value) <= longest else value[:longest] + b"...")


class Values:
    """A stream of bytes, cut into whole values."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Values that are whole with these bytes."""
        self._rest += data
        found = []
        position = 0
        while position < len(self._rest):
            value = _parse(self._rest, position)
            if value is None:
                break
            found.append(self._rest[position : value[1]])
            position = value[1]
        self._rest = self._rest[position:]
        return found


def is_message(value: bytes, subscribed: bool) -> bool:
    """Whether a value comes by itself, between replies: a push of RESP3, or a message to a subscriber in RESP2."""
    if value[:1] == b">":
        return True
    if not subscribed or value[:1] != b"*":
        return False
    items = decode(value).items
    return len(items) in (3, 4) and items[0].text in (b"message", b"pmessage", b"smessage")


def words(text: str) -> tuple[bytes, ...]:
    """A command typed with blanks between its words, for examples written by hand."""
    return tuple(text.encode().split())
