"""Slot ranges as an operator writes them: ``0-511,700``."""

import re
from collections.abc import Iterable

_PART = re.compile(r"\s*(?P<low>[0-9]{1,9})\s*(-\s*(?P<high>[0-9]{1,9})\s*)?")


class RangeError(ValueError):
    """The text is not a list of slots and slot ranges, or names a slot that does not exist."""


def parse(text: str, number_of_slots: int) -> list[int]:
    """Slots named by ``text``, ascending, each once.

    Raises:
        RangeError: with a sentence that says which part is wrong.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise RangeError(f"{part.strip()!r} is not a slot or a range of slots; write for example 0-511,700")
        low = int(match["low"])
        high = int(match["high"] or low)
        if not low <= high < number_of_slots:
            raise RangeError(f"{part.strip()!r} is not within 0-{number_of_slots - 1}, lowest first")
        found.update(range(low, high + 1))
    return sorted(found)


def show(slots: Iterable[int]) -> str:
    """The shortest text that :func:`parse` reads as exactly these slots; empty for none."""
    runs: list[list[int]] = []
    for slot in sorted(set(slots)):
        if runs and runs[-1][1] == slot - 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
