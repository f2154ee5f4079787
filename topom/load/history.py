"""Minutes that have ended, as series: one for each of the busiest names.

Of users and slots, a minute keeps the busiest only. A series has no value where nothing is kept of its name.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Generic, NamedTuple

from topom.load.measured import KEPT_COLUMNS, Minute, Name

RANKED_MINUTES = 60
"""Minutes by which names are ranked, at most: evenly spaced, and the newest is one of them."""


class Series(NamedTuple, Generic[Name]):
    """One name over time: requests, bytes of requests and of replies a second, each with a value for each minute."""

    name: Name
    columns: tuple[list[float | None], ...]


def series(minutes: Sequence[Minute[Name]], most: int) -> list[Series[Name]]:
    """The series of the names with the most requests, the busiest first."""
    sums: Counter[Name] = Counter()
    step = -(-len(minutes) // RANKED_MINUTES) or 1
    for minute in minutes[::-step]:
        for name, requests in zip(minute.names, minute.values[::KEPT_COLUMNS], strict=True):
            sums[name] += requests  # type: ignore[assignment]
    found = [Series(name, tuple([] for _ in range(KEPT_COLUMNS))) for name, _ in sums.most_common(most)]
    names: Sequence[Name] = ()
    place: dict[Name, int] = {}
    for minute in minutes:
        if minute.names is not names:
            names, place = minute.names, {name: index for index, name in enumerate(minute.names)}
        for one in found:
            index = place.get(one.name)
            for column, values in enumerate(one.columns):
                values.append(None if index is None else minute.values[KEPT_COLUMNS * index + column])
    return found
