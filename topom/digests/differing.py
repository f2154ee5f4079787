"""Replicas that were found to differ from their masters: they are not promoted until they were filled anew.

Kept in the memory of the topom that leads: one that comes to lead later knows of none before it has checked, itself.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """That a replica differs in so many keys, as a check found that ended at ``at``, in seconds since 1970."""

    server: str
    differences: int
    at: float


class Differing:
    """Marks by server. **bounded**: whoever adds one says which servers there are, and others are forgotten.

    Args:
        changed: called when another server is marked, or none any more.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._marks: dict[str, Mark] = {}

    def mark(self, found: Mark, servers: Collection[str]) -> None:
        """Remember a replica; those that are not among ``servers`` any more are forgotten."""
        self._marks[found.server] = found
        self._marks = {server: mark for server, mark in self._marks.items() if server in servers}
        self._changed()

    def clear(self, server: str) -> None:
        """It was filled anew, or a later check found it whole."""
        if self._marks.pop(server, None) is not None:
            self._changed()

    def of(self, server: str) -> Mark | None:
        """The mark of a server, if it has one."""
        return self._marks.get(server)

    @property
    def marks(self) -> Collection[Mark]:
        """All marks."""
        return self._marks.values()

    def problem(self, server: str) -> str | None:
        """Why a server is not to be promoted; None if nothing is known against it."""
        mark = self._marks.get(server)
        if mark is None:
            return None
        return (
            f"{server} differs from its master in {mark.differences} keys, as a digest check found; fill it anew with "
            "'slotferry digest GROUP --resync', then promote it"
        )
