"""Events that tell of no change of the state, until a write takes them to the store.

The next write of the same actor takes the events along, so an urgent change does not wait for a write of theirs. If
there is no such write, they get their own. While the store fails they wait. After a write of unknown outcome its events
are *in doubt* until the outcome is known. So no event is stored twice, and none is lost as long as this topom leads.

**bounded**: :data:`MOST_NOTES` wait at the most.
"""

from collections.abc import Iterator, Sequence

from topom.cluster.events import Said

MOST_NOTES = 256
"""The most notes that wait to be stored. Further ones are only in the log."""


class Notes:
    """The notes of one ledger, the oldest first, each with the name of its actor, which is empty for topom itself."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Said]] = []
        self._in_doubt: list[tuple[str, Said]] = []

    def add(self, who: str, said: Said) -> bool:
        """Have one more note wait; False if too many wait already."""
        if len(self._waiting) + len(self._in_doubt) >= MOST_NOTES:
            return False
        self._waiting.append((who, said))
        return True

    def take(self, who: str) -> list[Said]:
        """The notes that this actor's next write takes along."""
        taken = [said for by, said in self._waiting if by == who]
        self._waiting = [(by, said) for by, said in self._waiting if by != who]
        return taken

    def put_back(self, who: str, taken: Sequence[Said]) -> None:
        """These notes were not stored after all."""
        self._waiting[:0] = [(who, said) for said in taken]

    def doubt(self, who: str, taken: Sequence[Said]) -> None:
        """It is not known whether these notes were stored."""
        self._in_doubt += [(who, said) for said in taken]

    def resolve(self, stored: bool) -> None:
        """Say whether the notes in doubt were stored, now that it is known."""
        if not stored:
            self._waiting[:0] = self._in_doubt
        self._in_doubt = []

    def first(self) -> str | None:
        """The actor of the first note; None if there is no note."""
        return next((who for who, _ in (*self._in_doubt, *self._waiting)), None)

    def are_waiting(self, who: str) -> bool:
        """Whether this actor's next write has notes to take along."""
        return any(by == who for by, _ in self._waiting)

    def drop(self) -> Iterator[Said]:
        """Give up all notes."""
        dropped = [*self._in_doubt, *self._waiting]
        self._in_doubt, self._waiting = [], []
        return (said for _, said in dropped)
