"""Checks the fields of a slot table where it comes in: each has its type and its bounds, or the table is refused.

A table comes from topom, from its store, or from a file. A value that is taken here is used all over the process, so a
wrong one would fail far from its cause.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from slots.address import split

LARGEST = 2**63 - 1
"""The largest epoch."""
LARGEST_GROUP_ID = 2**31 - 1
MOST_TEXT = 300
"""Characters of an address, of a name, or of a run id."""
MOST_ADDRESSES = 65_536
"""Addresses that are remembered as good: a table is read at each epoch, and its servers are mostly the same."""


def number(value: object, least: int = 0, most: int = LARGEST) -> int:
    """A whole number. Raises ValueError for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.50} is not a whole number from {least} to {most}")
    return value


def group_id(value: object) -> int:
    """The id of a group, or 0. Raises ValueError for anything else."""
    return number(value, 0, LARGEST_GROUP_ID)


def text(value: object) -> str:
    """A text of at most :data:`MOST_TEXT` characters. Raises ValueError for anything else."""
    if type(value) is not str or len(value) > MOST_TEXT:
        raise ValueError(f"{value!r:.50} is not a text of at most {MOST_TEXT} characters")
    return value


def flag(value: object) -> bool:
    """True or false. Raises ValueError for anything else."""
    if type(value) is not bool:
        raise ValueError(f"{value!r:.50} is neither true nor false")
    return value


def listed(value: object) -> list[Any]:
    """A list. Raises ValueError for anything else."""
    if type(value) is not list:
        raise ValueError(f"{value!r:.50} is not a list")
    return value


def server(value: object) -> str:
    """The address of a server. Raises ValueError for anything else."""
    address = text(value)
    _require_address(address)
    return address


def names(value: object) -> dict[str, str]:
    """Names by the address of a server. Raises ValueError for anything else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r:.50} is not names by address")
    return {server(address): text(name) for address, name in value.items()}


@lru_cache(maxsize=MOST_ADDRESSES)
def _require_address(address: str) -> None:
    split(address, lowest_port=1)
