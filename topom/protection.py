"""Protection mode: when many members are lost at a time, nothing is done about it by itself.

What looks like the loss of half of everything is more likely a cut network, or a fault of the one who looks; what would
be done by itself then does more harm than the loss. An operator may say that it is to be done all the same.

Pure: whoever uses it brings what it sees.
"""

import structlog

log = structlog.get_logger(__name__)


class Protection:
    """Whether the cluster is protected from what is done by itself.

    Args:
        share: of the members, servers and proxies, that may be lost at a time, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._lifted = False
        self.lost = 0
        """Members that are lost."""
        self.members = 0
        """All members."""

    @property
    def due(self) -> bool:
        """Whether more members are lost than may be."""
        return self.lost > self._share * self.members

    @property
    def active(self) -> bool:
        """Whether nothing is to be done by itself."""
        return self.due and not self._lifted

    def look(self, lost: int, members: int) -> None:
        """So many of so many members are lost now."""
        before = self.active
        self.lost, self.members = lost, members
        if not self.due:
            # They are back. What an operator has said was about this loss, not about the next one.
            self._lifted = False
        if self.active != before:
            log.warning("protection_on" if self.active else "protection_over", lost=lost, members=members)

    def lift(self) -> None:
        """An operator says that it is to be done all the same, until those that are lost now are back."""
        if self.due and not self._lifted:
            self._lifted = True
            log.warning("protection_lifted", lost=self.lost, members=self.members)
