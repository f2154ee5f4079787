"""How what a user may ask for in a second is shared out: by topom over proxies, and by a proxy over its workers.

A share is a number of parts of :data:`WHOLE`. Who asks for more has the larger share. Each has a small part in any
case, so that a client that comes there may begin. All shares together are the whole, at most.
"""

from collections.abc import Mapping
from typing import TypeVar

WHOLE = 1_000_000
FLOOR = WHOLE // 50
"""What goes to all in even parts. The rest goes by demand."""
BEGINNING = WHOLE // 10
"""The share of a proxy that topom has not told any."""

Name = TypeVar("Name")


def share(demand: int, all_demands: int, parties: int) -> int:
    """The share of one of several that ask for so much, alone and together."""
    if not all_demands:
        return WHOLE // parties
    floor = FLOOR // parties
    return floor + (WHOLE - floor * parties) * demand // all_demands


def floor(parties: int) -> int:
    """The share that each of several has in any case."""
    return FLOOR // parties


def shared_out(demands: Mapping[Name, int], whole: int) -> dict[Name, int]:
    """The parts of a share, by who asks for how much."""
    together = sum(demands.values())
    return {name: share(demand, together, len(demands)) * whole // WHOLE for name, demand in demands.items()}
