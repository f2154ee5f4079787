"""Finds the keys of a command whose arguments say where they are: the rules of the command table's ``keys`` column.

If a key is missed, its command goes to a server that does not own its slot, and nothing would notice (**one-owner**,
**absent-first**). So a rule reads the arguments as Redis does. Arguments that it cannot read are refused, with the
error that Redis itself would give.

A rule is one or more parts joined by ``+``, whose keys follow each other:

``at:P``
    The argument at P; the command's name is at 0.
``count:P:KIND``
    The argument at P is a number, and as many keys follow it. KIND is one of :data:`KINDS`, which differ in
    what they allow and in the errors they give.
``store:P``
    The argument after each STORE and STOREDIST, from P on. There may be none. (Redis uses the last of them; the
    others are still taken for keys, as in Redis Cluster.)
``streams``
    The first half of what follows STREAMS, among the options of XREAD and XREADGROUP.
``sort``, ``sort_ro``
    The key and the STORE of SORT. What a BY or GET pattern names is not among them (:mod:`slots.sorting`).
``spec:BEGIN:FIND``
    A key specification as a server declares it: BEGIN is ``index:P`` or ``keyword:WORD:FROM``, FIND is
    ``range:LAST:STEP:LIMIT`` or ``keynum:INDEX:FIRST:STEP``, with Redis's meanings. The keys
    that it describes may be absent.
``asked``
    Only a server can tell, by COMMAND GETKEYS; here it is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

NOT_AN_INTEGER = "ERR value is not an integer or out of range"
SYNTAX_ERROR = "ERR syntax error"
INVALID_ARGUMENTS = "ERR Invalid arguments specified for command"
"""The reply of COMMAND GETKEYS to inconsistent arguments."""

INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
"""The integers Redis reads: no sign but a minus, no leading zero, no blanks."""


class KeysError(ValueError):
    """The keys of a command cannot be found. The message is the error reply to give, with its code."""


class KeysRefused(KeysError):
    """A server would take the command, but its keys cannot be known."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of commands that state the number of their keys: which numbers are allowed, and the errors for others.

    ``following`` is the least number of arguments after the keys. ``{name}`` in a text is the command's name.
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
    # Each option is stepped over by itself, because a group, a consumer or a key may be called STREAMS.
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
            if word == b"LIMIT" and None in (_integer(argv[index + 1]), _integer(argv[index + 2])):
                raise KeysError(NOT_AN_INTEGER)
            if word == b"STORE":
                stored = [index + 1]
            index += 1 + arguments_of[word]
        return [1, *stored]

    return find


def _behind(word: bytes, start: int, argv: Sequence[bytes]) -> list[int]:
    """The places behind a keyword, looked for from ``start`` on; backwards from the end where that is negative."""
    # The last argument is not a keyword, because nothing follows it.
    places = range(start, len(argv) - 1) if start > 0 else range(len(argv) + start, 1, -1)
    return [place + 1 for place in places if 0 < place < len(argv) and argv[place].upper() == word]


def _specified(begin: tuple[str, ...], find: tuple[str, ...]) -> Finder:
    """The keys of one key specification."""
    kind, one, two, three = find[0], *map(int, find[1:])
    if kind not in ("range", "keynum") or begin[0] not in ("index", "keyword"):
        raise ValueError(f"{begin} {find} is not a key specification")
    word = begin[1].encode()
    start = int(begin[-1])

    def found(argv: Sequence[bytes]) -> list[int]:
        if begin[0] == "index":
            return keys_from(start, argv)
        places = _behind(word, start, argv)
        # Redis looks at the first occurrence. A command may use a later one, or the word may be something else there.
        # Where a keyword does not settle the meaning of all that follows, no occurrence is left out.
        return [
            key for place in (places if kind == "range" and one >= 0 else places[:1]) for key in keys_from(place, argv)
        ]

    def keys_from(first: int, argv: Sequence[bytes]) -> list[int]:
        if first >= len(argv):
            return []
        if kind == "range":
            step = two
            # A negative place is counted from the end, or from the end of one part in `three` of what follows.
            end = first + (len(argv) - first) // three if three else len(argv)
            last = one + (first if one >= 0 else end)
        else:
            step = three
            count = _integer(argv[first + one]) if first + one < len(argv) else None
            if count is None or count < 0:
                raise KeysError(INVALID_ARGUMENTS)
            if count == 0:
                return []
            first += two
            last = first + (count - 1) * step
        if not first <= last < len(argv):
            raise KeysError(INVALID_ARGUMENTS)
        return list(range(first, last + 1, step))

    return found


def _asked(argv: Sequence[bytes]) -> list[int]:
    name = argv[0].decode("ascii", "replace").upper()
    raise KeysRefused(f"ERR {name} cannot be used here: only a server can tell which of its arguments are keys")


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
            case ["spec", "index", *rest] if len(rest) == 5:
                found.append(_specified(("index", rest[0]), tuple(rest[1:])))
            case ["spec", "keyword", *rest] if len(rest) == 6:
                found.append(_specified(("keyword", rest[0], rest[1]), tuple(rest[2:])))
            case ["asked"]:
                found.append(_asked)
            case _:
                raise ValueError(f"{part!r} is not a rule for finding keys")
    return tuple(found)


def positions(rule: str, argv: Sequence[bytes]) -> list[int]:
    """Places in ``argv`` of the keys that ``rule`` finds. ``argv`` has at least as many arguments as its arity asks.

    Raises:
        KeysError: the arguments are inconsistent. The message is Redis's own error.
        ValueError: when ``rule`` is not a rule.
    """
    return [position for find in _finders(rule) for position in find(argv)]
