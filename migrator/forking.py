"""Whether a server has the memory for a snapshot of its data, by its own figures.

A server forks for a snapshot. While that lasts, each page of memory that is written is copied first, so in the worst
case the server takes as much memory again as it has. If the machine does not have it, the system may kill the server.

What the figures do not tell is said, and not guessed: the limit of a container, and what else the machine runs.
"""

from __future__ import annotations

from migrator.errors import MigrationError
from migrator.facts import Facts, shown
from slots.kinds import Kind

MOST_OF_MACHINE = 0.95
"""The share of a machine's memory that servers can have; the rest is the system's."""
MARGIN = 2
"""A snapshot may copy so many times what the last one did: more may be written meanwhile."""


class NoMemoryForSnapshot(MigrationError):
    """A server may not have the memory that a snapshot of its data takes."""

    kind = Kind.OPERATOR
    passing = False


def require_memory(server: Facts) -> str:
    """See whether a server can make a snapshot; gives what its figures leave open, as a clause, or "".

    Raises:
        NoMemoryForSnapshot: it may lack the memory.
    """
    has = max(server.resident_bytes or 0, server.used_bytes)  # some of it may be swapped out
    machine, last = server.machine_bytes, server.copied_bytes
    if not has or not machine:
        return f"{server.address} does not tell how much memory it, or its machine, has"
    if has > machine:
        return f"{server.address} gives its machine less memory than it has itself"
    copied = has if last is None else min(has, MARGIN * last)
    if has + copied <= machine * MOST_OF_MACHINE:
        return ""
    why = "how much one copies is not known yet" if last is None else f"the last one copied {shown(last)}"
    more = "give the group a replica with more memory"
    raise NoMemoryForSnapshot(
        f"{server.address} may lack the memory for a snapshot: it has {shown(has)} of the {shown(machine)} of its "
        f"machine, and a snapshot may copy {shown(copied)} ({why})",
        f"run BGSAVE there at a quiet hour, after which it is known, or {more}" if last is None else more,
    )
