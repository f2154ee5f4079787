"""What is applied at a target in one step."""

from __future__ import annotations

from typing import NamedTuple


class Batch(NamedTuple):
    """Commands for one database of one copy's target.

    Attributes:
        copy: the number of the copy.
        database: in which the commands run.
        commands: packed in RESP, ready to be sent.
        count: how many commands there are.
        keys: how many keys they make.
        deadlines: that the commands set and that are noted: milliseconds since 1970, and the key.
        withheld: keys that have the placeholder in the commands, in place of their deadlines.
        looks: whether the first command deletes the keys, and tells how many were there. There may be none: else
            something is wrong. RESTORE tells so by itself.
    """

    copy: int
    database: int
    commands: bytes
    count: int  # type: ignore[assignment]
    keys: int
    deadlines: list[tuple[int, bytes]]
    withheld: list[bytes]
    looks: bool = False
