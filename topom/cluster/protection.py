"""Protection mode: when many members are lost at a time, topom does nothing about it by itself.

What looks like the loss of half of everything is more likely a cut network, or a fault of the one who looks. What topom
would do then by itself does more harm than the loss. An operator may *lift* the protection, so that topom acts all the
same. That is stored, so it holds for the next leader, too. It ends when the members are back, for the operator meant
this loss and not the next one.

Members that are lost together are neither found lost nor back at the same instant. So the caller also counts members
that are about to be found lost, and the loss lasts until enough members have been back for a while.

The caller brings what it sees.
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
"""How long the events of its begin and end wait for a write to take them along."""


class Protection:
    """Whether the cluster is protected from what topom does by itself.

    Args:
        share: the part of the members (servers and proxies) that may be lost at a time, from 0 to 1.
        ledger: where it is stored that an operator has lifted it.
        settle_seconds: how long no more than that share must be lost before the loss is over.
    """

    def __init__(self, share: float, ledger: Ledger, settle_seconds: float = 0.0) -> None:
        self._share = share
        self._ledger = ledger
        self._was_active = False
        self.lost = 0
        """How many members are lost."""
        self.members = 0
        """How many members there are."""
        self.since = 0.0
        """When it became active the last time, in seconds since 1970."""
        self.due = False
        """Whether more members are lost than may be, or were until a short while ago."""
        self._unsure = 0
        self._settle_seconds = settle_seconds
        self._now = 0.0
        self._better_since: float | None = None

    @property
    def lifted(self) -> Lifting | None:
        """The lifting by an operator for the present loss; None if there is none."""
        return self._ledger.state.protection_lifted

    @property
    def active(self) -> bool:
        """Whether topom does nothing by itself."""
        return self.due and self.lifted is None

    @property
    def reason(self) -> Reason | None:
        """Why topom does nothing by itself, and what to do; None if protection is not active."""
        if not self.active:
            return None
        what = f"{self.lost} of {self.members} members are lost at a time, so nothing is done by itself"
        return Reason(Kind.PROTECTED, what, self.since, "bring them back, or say 'slotferry protection off'")

    def look(self, lost: int, members: int, unsure: int = 0, now: float = 0.0) -> None:
        """Note how many of how many members are lost ``now``, which is in seconds of any clock.

        Args:
            unsure: how many of the other members may be lost without anybody knowing it yet. For a topom that has just
                come to lead these may be all. They do not count as lost, but the loss is not over before they are
                known.
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
                self.since = time.time()
                text = f"{lost} of {members} members are lost at a time, so topom does nothing about it by itself"
                self._ledger.note(What.PROTECTION_ON, text, wait=NOTE_SECONDS)
            elif not self.due:
                text = f"{lost} of {members} members are lost, which is no more than may be; topom sees to it again"
                self._ledger.note(What.PROTECTION_OVER, text, wait=NOTE_SECONDS)

    async def lift(self) -> None:
        """Have topom act by itself all the same, until the members that are lost now are back: an operator's order.

        Nothing changes when protection is not on.

        Raises:
            StoreError, LostPlace, NotLeading: as :meth:`topom.cluster.ledger.Ledger.change`; the protection is not
                lifted then.
        """

        def lift(state: ClusterState, epoch: int) -> ClusterState:
            if not self.due or state.protection_lifted is not None:
                return state
            by = actor.get() or "topom"
            return replace(state, protection_lifted=Lifting(by, time.time(), self.lost, self.members))

        await self._ledger.change(lift)
        self.look(self.lost, self.members, self._unsure, self._now)

    async def end_lifting(self) -> None:
        """If protection was lifted and the loss is over for sure, have it hold again for the next loss.

        If that cannot be stored, the next call tries again.
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
