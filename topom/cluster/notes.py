"""Events that tell of no change of the state, until a write takes them to the store.

The next write of whoever did it takes them along, so that what is urgent waits for no write of theirs; without one they
get their own. While the store fails they wait. Those of a write of unknown outcome are *in doubt* until it is known: so
none is stored twice, and none is lost as long as this topom leads.

**bounded**: :data:`MOST_NOTES` wait at the most.
"""

from collections.abc import Iterator, Sequence

from topom.cluster.events import Said

MOST_NOTES = 256
"""Notes that wait to be stored; what comes beyond is only in the log."""


class Notes:
    """The notes of one ledger, the oldest first; each with who did it, empty for topom itself."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Said]] = []
        self._in_doubt: list[tuple[str, Said]] = []

    def add(self, who: str, said: Said) -> bool:
        """Have one more wait; False if too many do."""
        if len(self._waiting) + len(self._in_doubt) >= MOST_NOTES:
            return False
        self._waiting.append((who, said))
        return True

    def take(self, who: str) -> list[Said]:
        """Those that somebody's write is to take along."""
        taken = [said for by, said in self._waiting if by == who]
        self._waiting = [(by, said) for by, said in self._waiting if by != who]
        return taken

    def put_back(self, who: str, taken: Sequence[Said]) -> None:
        """They were not stored after all."""
        self._waiting[:0] = [(who, said) for said in taken]

    def doubt(self, who: str, taken: Sequence[Said]) -> None:
        """It is not known whether they were stored."""
        self._in_doubt += [(who, said) for said in taken]

    def settle(self, stored: bool) -> None:
        """It is known now whether those in doubt were stored."""
        if not stored:
            self._waiting[:0] = self._in_doubt
        self._in_doubt = []

    def first(self) -> str | None:
        """Who did the first one; None without any."""
        return next((who for who, _ in (*self._in_doubt, *self._waiting)), None)

    def are_waiting(self, who: str) -> bool:
        """Whether somebody's write has any to take along."""
        return any(by == who for by, _ in self._waiting)

    def drop(self) -> Iterator[Said]:
        """Give all of them up."""
        dropped = [*self._in_doubt, *self._waiting]
        self._in_doubt, self._waiting = [], []
        return (said for _, said in dropped)
