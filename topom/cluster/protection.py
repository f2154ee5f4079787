"""Protection mode: when many members are lost at a time, nothing is done about it by itself.

What looks like the loss of half of everything is more likely a cut network, or a fault of the one who looks; what would
be done by itself then does more harm than the loss. An operator may say that it is to be done all the same. That is
stored, so that it holds for whoever leads next, and it ends when the members are back: what was said was about this
loss, not about the next one.

Members that are lost together are neither found nor back at the same instant. So whoever looks counts those as lost,
too, that are about to be found so; and the loss lasts until enough have been back for a while.

Whoever uses it brings what it sees.
"""

import time
from dataclasses import replace

import structlog

from topom.cluster.events import What, actor
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Lifting
from topom.errors import TopomError
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)

NOTE_SECONDS = 1.0
"""How long the events that it is on, or over, wait for a write to take them along."""


class Protection:
    """Whether the cluster is protected from what is done by itself.

    Args:
        share: of the members, servers and proxies, that may be lost at a time, from 0 to 1.
        ledger: where it is stored that an operator has lifted it.
        settle_seconds: for which no more than that may have been lost before the loss is over.
    """

    def __init__(self, share: float, ledger: Ledger, settle_seconds: float = 0.0) -> None:
        self._share = share
        self._ledger = ledger
        self._was_active = False
        self.lost = 0
        """Members that are lost."""
        self.members = 0
        """All members."""
        self.due = False
        """Whether more members are lost than may be, or were until just now."""
        self._unsure = 0
        self._settle_seconds = settle_seconds
        self._now = 0.0
        self._better_since: float | None = None

    @property
    def lifted(self) -> Lifting | None:
        """That an operator has lifted it for the present loss, if one has."""
        return self._ledger.state.protection_lifted

    @property
    def active(self) -> bool:
        """Whether nothing is to be done by itself."""
        return self.due and self.lifted is None

    @property
    def reason(self) -> Reason | None:
        """Why nothing is to be done by itself, and what to do; None if it is not active."""
        if not self.active:
            return None
        what = f"{self.lost} of {self.members} members are lost at a time, so nothing is done by itself"
        return Reason(Kind.PROTECTED, what, to_do="bring them back, or say 'slotferry protection off'")

    def look(self, lost: int, members: int, unsure: int = 0, now: float = 0.0) -> None:
        """So many of so many members are lost ``now``, in seconds of any clock.

        Args:
            unsure: of the others, how many may be lost without anybody knowing it yet, as all may be for a topom that
                has just come to lead. They do not count as lost, but neither is the loss over before they are known.
        """
        self.lost, self.members, self._unsure, self._now = lost, members, unsure, now
        if lost > self._share * members:
            self.due, self._better_since = True, None
        elif self.due:
            if self._better_since is None:
                self._better_since = now
            self.due = now - self._better_since < self._settle_seconds
        if self.active != self._was_active:
            self._was_active = self.active
            log.warning("protection_on" if self.active else "protection_over", lost=lost, members=members)
            if self.active:
                text = f"{lost} of {members} members are lost at a time, so topom does nothing about it by itself"
                self._ledger.note(What.PROTECTION_ON, text, wait=NOTE_SECONDS)
            elif not self.due:
                text = f"{lost} of {members} members are lost, which is no more than may be; topom sees to it again"
                self._ledger.note(What.PROTECTION_OVER, text, wait=NOTE_SECONDS)

    async def lift(self) -> None:
        """An operator says that it is to be done all the same, until those that are lost now are back.

        Nothing is changed when protection is not on.

        Raises:
            StoreError, LostPlace, NotLeading: as :meth:`topom.cluster.ledger.Ledger.change`; it is not lifted then.
        """

        def lift(state: ClusterState, epoch: int) -> ClusterState:
            if not self.due or state.protection_lifted is not None:
                return state
            by = actor.get() or "topom"
            return replace(state, protection_lifted=Lifting(by, time.time(), self.lost, self.members))

        await self._ledger.change(lift)
        self.look(self.lost, self.members, self._unsure, self._now)

    async def end_lifting(self) -> None:
        """If it was lifted and the loss is over for sure, have it hold again for the next one.

        What cannot be stored is tried again by the next call.
        """
        if self.lifted is None or self._may_be_due():
            return

        def end(state: ClusterState, epoch: int) -> ClusterState:
            return state if state.protection_lifted is None else replace(state, protection_lifted=None)

        try:
            await self._ledger.change(end)
        except TopomError as error:
            log.warning("lifting_not_ended", reason=str(error))

    def _may_be_due(self) -> bool:
        return self.due or self.lost + self._unsure > self._share * self.members
