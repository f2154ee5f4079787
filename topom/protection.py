"""Protection mode: when many members are lost at a time, nothing is done about it by itself.

What looks like the loss of half of everything is more likely a cut network, or a fault of the one who looks; what would
be done by itself then does more harm than the loss. An operator may say that it is to be done all the same.

Members that are lost together are neither found nor back at the same instant. So whoever looks counts those that are
about to be found lost, too; and protection lasts until enough have been back for a while.

Pure: whoever uses it brings what it sees.
"""

import structlog

log = structlog.get_logger(__name__)


class Protection:
    """Whether the cluster is protected from what is done by itself.

    Args:
        share: of the members, servers and proxies, that may be lost at a time, from 0 to 1.
        settle_seconds: for which no more may have been lost before protection ends.
    """

    def __init__(self, share: float, settle_seconds: float = 0.0) -> None:
        self._share = share
        self._settle_seconds = settle_seconds
        self._lifted = False
        self._better_since: float | None = None
        self.due = False
        """Whether more members are lost than may be, or were until just now."""
        self.lost = 0
        """Members that are lost."""
        self.members = 0
        """All members."""

    @property
    def active(self) -> bool:
        """Whether nothing is to be done by itself."""
        return self.due and not self._lifted

    def look(self, lost: int, members: int, now: float = 0.0) -> None:
        """So many of so many members are lost ``now``, in seconds of any clock."""
        before = self.active
        self.lost, self.members = lost, members
        if lost > self._share * members:
            self.due = True
            self._better_since = None
        elif self.due:
            if self._better_since is None:
                self._better_since = now
            if now - self._better_since >= self._settle_seconds:
                # They are back. What an operator has said was about this loss, not about the next one.
                self.due = self._lifted = False
                self._better_since = None
        if self.active != before:
            log.warning("protection_on" if self.active else "protection_over", lost=lost, members=members)

    def lift(self) -> None:
        """An operator says that it is to be done all the same, until those that are lost now are back."""
        if self.due and not self._lifted:
            self._lifted = True
            log.warning("protection_lifted", lost=self.lost, members=self.members)
