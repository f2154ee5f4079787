"""Sets deadlines of a hash's fields. Redis 7.4 and Valkey 9 take the same words for it."""

from __future__ import annotations

from migrator.connection import pack
from migrator.errors import CannotBeCut


def deadline_commands(name: bytes, fields_of: dict[int, list[bytes]]) -> list[bytes]:
    """Commands that give fields of hash ``name`` their deadlines, in milliseconds since 1970."""
    return [pack("HPEXPIREAT", name, deadline, "FIELDS", len(some), *some) for deadline, some in fields_of.items()]


def no_deadlines(name: bytes, target: str) -> CannotBeCut:
    """The error for a target that has no deadlines of fields."""
    return CannotBeCut(
        f"fields of hash {name!r} have deadlines, which {target} knows nothing of",
        "upgrade it to a Redis at least as new as the source",
    )
