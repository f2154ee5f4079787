"""Which server topom takes for a group's master: the one that a majority of all known Sentinels name.

A majority of those that answer would not do: if five Sentinels are cut in two, the two on one side would agree. Pure
functions.
"""

from collections import Counter
from collections.abc import Iterable


def majority_of(known: int) -> int:
    """How many of so many Sentinels are a majority."""
    return known // 2 + 1


def elected(named: Iterable[str | None], known: int) -> str | None:
    """The server that a majority of ``known`` Sentinels name; None if there is none.

    ``named`` has an entry for each Sentinel that answered: the server, or None if it does not watch the group.
    """
    found = Counter(address for address in named if address is not None).most_common(1)
    if found and found[0][1] >= majority_of(known):
        return found[0][0]
    return None
