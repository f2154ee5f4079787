"""Where the keys stand in a command whose arguments tell it: the rules of the command table's ``keys`` column.

A key that is missed is sent to a server that does not own its slot, and nothing would notice (**one-owner**,
**absent-first**). So a rule reads the arguments as Redis does, and what it cannot read it refuses, with the
error that Redis itself would give.

A rule is one or more parts joined by ``+``, whose keys follow each other:

``at:P``
    The argument at P; the command's name is at 0.
``count:P:KIND``
    The argument at P is a number, and as many keys follow it. KIND is one of :data:`KINDS`, which differ in
    what they allow and in the errors they give.
``store:P``
    The argument after each STORE and STOREDIST, from P on. There may be none. (Redis uses the last of them; the
    others are taken for keys all the same, as Redis Cluster does.)
``streams``
    The first half of what follows STREAMS, among the options of XREAD and XREADGROUP.
``sort``, ``sort_ro``
    The key and the STORE of SORT. A BY or GET pattern names keys that nobody can know beforehand: refused.
``copy``
    Source and destination of COPY. Its DB option is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

NOT_AN_INTEGER = "ERR value is not an integer or out of range"
SYNTAX_ERROR = "ERR syntax error"

INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
"""The integers Redis reads: no sign but a minus, no leading zero, no blanks."""


class KeysError(ValueError):
    """The keys of a command cannot be found. The message is the error reply to give, with its code."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of commands that state the number of their keys: what is allowed, and the errors they give.

    ``following`` is how many arguments there have to be after the keys. ``{name}`` in a text is the command's name.
    """

    minimum: int
    not_an_integer: str
    too_few: str
    too_many: str
    following: int = 0


_GREATER_THAN_ARGS = "ERR Number of keys can't be greater than number of args"
_NEGATIVE = "ERR Number of keys can't be negative"
_GREATER_THAN_ZERO = "ERR numkeys should be greater than 0"

KINDS = {
    "script": Kind(0, NOT_AN_INTEGER, _NEGATIVE, _GREATER_THAN_ARGS),
    "function": Kind(0, "ERR Bad number of keys provided", _NEGATIVE, _GREATER_THAN_ARGS),
    "sorted": Kind(1, NOT_AN_INTEGER, "ERR at least 1 input key is needed for '{name}' command", SYNTAX_ERROR),
    "set": Kind(1, _GREATER_THAN_ZERO, _GREATER_THAN_ZERO, _GREATER_THAN_ARGS),
    "pop": Kind(1, _GREATER_THAN_ZERO, _GREATER_THAN_ZERO, SYNTAX_ERROR, following=1),
}

Finder = Callable[[Sequence[bytes]], list[int]]


def _integer(text: bytes) -> int | None:
    if not INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _at(position: int) -> Finder:
    return lambda argv: [position]


def _count(position: int, kind: Kind) -> Finder:
    def find(argv: Sequence[bytes]) -> list[int]:
        count = _integer(argv[position])
        if count is None:
            raise KeysError(kind.not_an_integer)
        if count < kind.minimum:
            raise KeysError(kind.too_few.format(name=argv[0].decode("ascii", "replace").lower()))
        if count > len(argv) - position - 1 - kind.following:
            raise KeysError(kind.too_many)
        return list(range(position + 1, position + 1 + count))

    return find


def _store(position: int) -> Finder:
    def find(argv: Sequence[bytes]) -> list[int]:
        found: list[int] = []
        index = position
        while index < len(argv) - 1:
            if argv[index].upper() in (b"STORE", b"STOREDIST"):
                index += 1
                found.append(index)
            index += 1
        return found

    return find


def _streams(argv: Sequence[bytes]) -> list[int]:
    # The options are stepped over one by one: a group, a consumer or a key may be called STREAMS.
    arguments_of = {b"BLOCK": 1, b"COUNT": 1, b"GROUP": 2, b"NOACK": 0}
    index = 1
    while index < len(argv):
        word = argv[index].upper()
        if word == b"STREAMS" and index + 1 < len(argv):
            first = index + 1
            keys, odd = divmod(len(argv) - first, 2)
            if odd:
                raise KeysError(
                    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified."
                )
            return list(range(first, first + keys))
        if word not in arguments_of or index + arguments_of[word] >= len(argv):
            raise KeysError(SYNTAX_ERROR)
        index += 1 + arguments_of[word]
    raise KeysError(SYNTAX_ERROR)


def _sort(writes: bool) -> Finder:
    arguments_of = {b"ASC": 0, b"DESC": 0, b"ALPHA": 0, b"LIMIT": 2, b"BY": 1, b"GET": 1}
    if writes:
        arguments_of[b"STORE"] = 1

    def find(argv: Sequence[bytes]) -> list[int]:
        stored: list[int] = []
        index = 2
        while index < len(argv):
            word = argv[index].upper()
            if word not in arguments_of or index + arguments_of[word] >= len(argv):
                raise KeysError(SYNTAX_ERROR)
            # absent-first: the keys that a pattern stands for are not known before the server has read the list.
            if word in (b"BY", b"GET") and b"*" in argv[index + 1]:
                raise KeysError(
                    f"ERR SORT with a {word.decode()} pattern is refused: its keys may be of other slots, "
                    "or on their way to another server"
                )
            if word == b"STORE":
                stored = [index + 1]
            index += 1 + arguments_of[word]
        return [1, *stored]

    return find


def _copy(argv: Sequence[bytes]) -> list[int]:
    # absent-first: while the slot moves, it is one database's keys that are looked for at the source.
    if any(word.upper() == b"DB" for word in argv[3:]):
        raise KeysError("ERR COPY with the DB option is refused: the slot may be on its way to another server")
    return [1, 2]


@cache
def _finders(rule: str) -> tuple[Finder, ...]:
    found: list[Finder] = []
    for part in rule.split("+"):
        match part.split(":"):
            case ["at", position]:
                found.append(_at(int(position)))
            case ["count", position, kind]:
                found.append(_count(int(position), KINDS[kind]))
            case ["store", position]:
                found.append(_store(int(position)))
            case ["streams"]:
                found.append(_streams)
            case ["sort"]:
                found.append(_sort(writes=True))
            case ["sort_ro"]:
                found.append(_sort(writes=False))
            case ["copy"]:
                found.append(_copy)
            case _:
                raise ValueError(f"{part!r} is not a rule for finding keys")
    return tuple(found)


def positions(rule: str, argv: Sequence[bytes]) -> list[int]:
    """Places in ``argv`` of the keys that ``rule`` finds. ``argv`` has at least as many arguments as its arity asks.

    Raises:
        KeysError: when the arguments do not hold together, with Redis's own error.
        ValueError: when ``rule`` is not a rule.
    """
    return [position for find in _finders(rule) for position in find(argv)]
