"""Reads the database arguments of SELECT, COPY and MOVE as Redis reads them.

A database that the product does not have is an error here, even if the servers have it: no proxy reaches it.
"""

from collections.abc import Sequence

from proxy.commands.arguments import integer
from slots.keys import NOT_AN_INTEGER

INDEX_OUT_OF_RANGE = "ERR DB index is out of range"
NUMBER_OUT_OF_RANGE = "ERR value is out of range, value must between -2147483648 and 2147483647"


class DatabaseError(ValueError):
    """There is no such database. The message is the error reply to give, with its code."""


def number(text: bytes) -> int:
    """A number of a database. Raises :class:`DatabaseError` if it is not one, by Redis's rules."""
    value = integer(text)
    if value is None:
        raise DatabaseError(NOT_AN_INTEGER)
    if not -(2**31) <= value < 2**31:
        raise DatabaseError(NUMBER_OUT_OF_RANGE)
    return value


def index(text: bytes, count: int) -> int:
    """The index of one of ``count`` databases."""
    value = number(text)
    if not 0 <= value < count:
        raise DatabaseError(INDEX_OUT_OF_RANGE)
    return value


def target(argv: Sequence[bytes], count: int) -> int | None:
    """The database that COPY or MOVE takes a key to. None if there is none, or if the server will report an error."""
    return index(argv[2], count) if argv[0].upper() == b"MOVE" else _copied_to(argv, count)


def _copied_to(argv: Sequence[bytes], count: int) -> int | None:
    found = None
    place = 3
    while place < len(argv):
        option = argv[place].upper()
        if option == b"DB" and place + 1 < len(argv):
            # If there are several, the last one counts, and each is checked.
            found = index(argv[place + 1], count)
            place += 2
        elif option == b"REPLACE":
            place += 1
        else:
            return None
    return found
