"""Slot ranges as an operator writes them, ``0-511,700``, and as sentences name them."""

import re
from collections.abc import Collection, Iterable

MOST_RANGES, FIRST_RANGES = 8, 4
"""So many ranges of slots are all shown in a sentence; of more than these, the first."""

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
        if max(low, high) >= number_of_slots:
            raise RangeError(f"{part.strip()!r} is not within 0-{number_of_slots - 1}")
        if low > high:
            raise RangeError(f"{part.strip()!r} ends before it begins; write {high}-{low}")
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


def shortened(text: str) -> str:
    """Ranges of slots for a person: all, or of many the first and an ellipsis."""
    parts = text.split(",")
    return text if len(parts) <= MOST_RANGES else f"{', '.join(parts[:FIRST_RANGES])}, …"


def named(slots: Collection[int]) -> str:
    """Slots for a person: ``slot 7``, ``slots 0-9``, ``201 slots: 3, 7-12, …``."""
    text = show(slots)
    if (short := shortened(text)) != text:
        return f"{len(slots):,} slots: {short}"
    return f"slot {text}" if len(slots) == 1 else f"slots {text}"


def that(slots: Collection[int], one: str, many: str) -> str:
    """The beginning of a sentence about slots: ``slot 7 is``, ``slots 0-9 are``, ``201 slots (3, 7-12, …) are``."""
    if len(slots) == 1:
        return f"{named(slots)} {one}"
    text = show(slots)
    short = shortened(text)
    return f"slots {text} {many}" if short == text else f"{len(slots):,} slots ({short}) {many}"
