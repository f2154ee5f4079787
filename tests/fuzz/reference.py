"""The meaning of the bytes of requests and replies, in the simplest code: the parser is compared with this.

It follows Redis's own rules, without regard to speed, and shares nothing with :mod:`slots.requests.parsing`.
"""

import re
from typing import NamedTuple

MOST_ARGUMENTS = 1048576
LONGEST_INLINE = 65536
MOST_DIGITS = 18
"""The most digits of a number that is read at all; every limit is far below."""

_NUMBER = re.compile(rb"(-?[1-9][0-9]{0,%d}|0)\r\n" % (MOST_DIGITS - 1))
# Only the end of a number shows whether it is valid.
_BEGUN = re.compile(rb"-?[0-9]{0,%d}|(?:-?[1-9][0-9]{0,%d}|0)\r" % (MOST_DIGITS, MOST_DIGITS - 1))
_LINES = b"+-:_,#("
_STRINGS = b"$=!"
_AGGREGATES = b"*~>%|"


class Incomplete(Exception):
    """There is no more to read, and no error so far."""


class Malformed(Exception):
    """No bytes that follow could make it right. The message is Redis's, of a request."""


class Requests(NamedTuple):
    """What a stream of requests holds: each one's size and arguments (an inline one's line), then how it ends."""

    found: list[tuple[int, list[bytes] | bytes]]
    error: str | None


def _number(stream: bytes, start: int, what: str) -> tuple[int, int]:
    """A number on a line of its own, and where the next line begins."""
    match = _NUMBER.match(stream, start)
    if match is not None:
        return int(match[1]), match.end()
    if _BEGUN.fullmatch(stream, start):
        raise Incomplete
    raise Malformed(what)


def _request(stream: bytes, start: int, longest_bulk: int, most_arguments: int) -> tuple[int, list[bytes] | bytes]:
    """The request at ``start``, and where it ends."""
    if stream[start] != ord("*"):
        end = stream.find(b"\n", start, start + LONGEST_INLINE)
        if end >= 0:
            return end + 1, stream[start : end + 1]
        if len(stream) - start >= LONGEST_INLINE:
            raise Malformed("too big inline request")
        raise Incomplete
    count, position = _number(stream, start + 1, "invalid multibulk length")
    if count > MOST_ARGUMENTS:
        raise Malformed("invalid multibulk length")
    if count > most_arguments:
        raise Malformed("unauthenticated multibulk length")
    arguments: list[bytes] = []
    while len(arguments) < count:
        if position == len(stream):
            raise Incomplete
        if stream[position] != ord("$"):
            raise Malformed("expected '$', got '%c'")
        length, position = _number(stream, position + 1, "invalid bulk length")
        if length > longest_bulk and most_arguments < MOST_ARGUMENTS:
            raise Malformed("unauthenticated bulk length")
        if not 0 <= length <= longest_bulk:
            raise Malformed("invalid bulk length")
        if len(stream) < position + length + 2:
            raise Incomplete
        # As in Redis, the two bytes behind are not checked.
        arguments.append(stream[position : position + length])
        position += length + 2
    return position, arguments


def requests(stream: bytes, longest_bulk: int, most_arguments: int) -> Requests:
    """All requests of a stream up to the first that is incomplete or malformed."""
    found: list[tuple[int, list[bytes] | bytes]] = []
    position = 0
    try:
        while position < len(stream):
            end, request = _request(stream, position, longest_bulk, most_arguments)
            found.append((end - position, request))
            position = end
    except Incomplete:
        return Requests(found, None)
    except Malformed as error:
        return Requests(found, str(error))
    return Requests(found, None)


def _skip_value(stream: bytes, position: int) -> int:
    """Where the value at ``position`` ends, with all that is inside."""
    outstanding = 1
    while outstanding:
        if position == len(stream):
            raise Incomplete
        kind = stream[position]
        if kind in _LINES:
            end = stream.find(b"\n", position)
            if end < 0:
                raise Incomplete
            position = end + 1
            outstanding -= 1
        elif kind in _STRINGS:
            length, position = _number(stream, position + 1, "length")
            if length >= 0:
                position += length + 2
            if position > len(stream):
                raise Incomplete
            outstanding -= 1
        elif kind in _AGGREGATES:
            count, position = _number(stream, position + 1, "count")
            outstanding += max(count, 0) * (2 if kind in b"%|" else 1)
            # What an attribute belongs to follows it.
            outstanding -= kind != ord("|")
        else:
            raise Malformed("type")
    return position


def replies(stream: bytes) -> tuple[list[int], bool]:
    """Lengths of the complete replies of a stream, and whether what follows them is malformed."""
    lengths: list[int] = []
    position = 0
    try:
        while position < len(stream):
            end = _skip_value(stream, position)
            lengths.append(end - position)
            position = end
    except Incomplete:
        return lengths, False
    except Malformed:
        return lengths, True
    return lengths, False


class Unbalanced(Exception):
    """An inline request whose quotes do not close, or do not end a word."""


_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_BLANKS = re.compile(rb"[ \t\n\r\v\f]*")
# Possessive, so that a quote once read as escaped stays so. \v and \f stand between words, but do not end one.
_PIECE = re.compile(
    rb"""(?P<plain> [^ \t\n\r"']++ )
    | " (?P<double> (?: \\. | [^"\\] )*+ ) " (?= [ \t\n\r\v\f] | \Z )
    | ' (?P<single> (?: \\' | [^'] )*+ ) ' (?= [ \t\n\r\v\f] | \Z )""",
    re.VERBOSE | re.DOTALL,
)


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return _ESCAPES.get(match[2], match[2])


def words(line: bytes) -> list[bytes]:
    """Words of an inline request: Redis's ``sdssplitargs``, by regular expressions.

    Raises:
        Unbalanced: if its quotes do not match.
    """
    line = line.partition(b"\0")[0]
    found: list[bytes] = []
    position = _end(_BLANKS, line, 0)
    while position < len(line):
        word = b""
        while position < len(line) and line[position] not in b" \t\n\r":
            match = _PIECE.match(line, position)
            if match is None:
                raise Unbalanced
            position = match.end()
            if match["plain"] is not None:
                word += match["plain"]
                continue
            if match["double"] is not None:
                word += _ESCAPE.sub(_unescape, match["double"])
            else:
                word += match["single"].replace(b"\\'", b"'")
            break
        found.append(word)
        position = _end(_BLANKS, line, position)
    return found


def _end(pattern: re.Pattern[bytes], line: bytes, position: int) -> int:
    match = pattern.match(line, position)
    return position if match is None else match.end()
