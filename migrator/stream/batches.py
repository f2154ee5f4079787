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
        deadlines: of keys that the commands write: milliseconds since 1970, and the key.
    """

    copy: int
    database: int
    commands: bytes
    count: int  # type: ignore[assignment]
    deadlines: list[tuple[int, bytes]]
