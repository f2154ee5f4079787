"""Sets the marks by which lost proxies stand down from a group whose master has failed, and says whether they have
(:mod:`topom.proxies.standdown`).

All that can be done without the group's lock is done before the lock, so that the group is locked for milliseconds.
"""

import math

from slots.group import Group
from topom.cluster import fences
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import Fenced
from topom.errors import NotReady
from topom.proxies.members import Members
from topom.proxies.standdown import Marker, Marks, all_watched
from topom.reasons import Kind

MESSAGE = "nothing was heard of the proxy for longer than its lease, so it was fenced off the servers"


class StandingDown(NotReady):
    """A proxy has perhaps not stood down yet. Nobody has to do anything about it. Try again in ``seconds``."""

    kind = Kind.PROXY

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class LostProxies:
    """The lost proxies of one topom. It is :class:`topom.masters.promotions.StoodDown`.

    Args:
        marker: sets marks at servers.
        suspect_seconds: after so long, a proxy that is not heard is about to be lost.
    """

    def __init__(self, ledger: Ledger, members: Members, marker: Marker, suspect_seconds: float) -> None:
        self._ledger = ledger
        self._members = members
        self._marker = marker
        self._marks = Marks(marker)
        self._suspect_seconds = suspect_seconds

    async def note_watched(self) -> None:
        """If every proxy has the table, remember that its servers are watched. Raises as :meth:`Ledger.change`."""
        if self._ledger.state.unwatched and not self._members.missing(self._ledger.table.epoch):
            await self._ledger.change(
                lambda state, epoch: state if self._members.missing(state.table.epoch) else all_watched(state)
            )

    async def prepare(self, group: Group) -> None:
        """Fence lost proxies. Set, at the group's replicas, the marks of those that are not fenced off its master.

        Raises:
            StandingDown: a proxy is silent, and not lost yet.
            StoreError, LostPlace, NotLeading: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        for member in self._members.all():
            if not member.lost and self._members.missed(member, self._suspect_seconds):
                raise StandingDown(f"{member.named} is silent; it is waited for until its lease ends", 0.2)
        lost = [member.record.id for member in self._members.all() if member.lost]
        if lost:
            await self._members.fence(lost, "fenced", MESSAGE, only_lost=True)
        self._marks.keep_only(self._ledger.state.fenced)
        await self._marks.set(group, self._concerned(group))

    async def confirm(self, group: Group, server: str) -> None:
        """Look whether the marks are still there. Does not raise: :meth:`require` does."""
        await self._marks.confirm(server, self._concerned(group))

    def require(self, group: Group, server: str) -> None:
        """Raises :class:`StandingDown` or NotReady if a proxy may still use the master once ``server`` replaces it."""
        longest: tuple[float, str] | None = None
        for entry in self._concerned(group):
            named = f"proxy {entry.proxy_id}, which is lost and may still write to {group.master},"
            otherwise = (
                f"bring that proxy or {group.master} back; if it is sure that the proxy does not run, say 'slotferry "
                f"group promote {group.id} {server} --force'"
            )
            if entry.stand_down is None:
                raise NotReady(
                    f"{named} was not known to stand down by itself when it was lost", otherwise, kind=Kind.PROXY
                )
            if not fences.watches(self._ledger.state, entry, server):
                raise NotReady(
                    f"{named} is not sure to know {server}, which was new in its group", otherwise, kind=Kind.PROXY
                )
            left = self._marks.left(entry, server)
            if left == math.inf:
                raise NotReady(
                    f"{named} cannot be fenced at {server}: {self._marks.refusal(entry, server)}",
                    otherwise,
                    kind=Kind.PROXY,
                )
            if left > 0 and (longest is None or left > longest[0]):
                longest = left, f"{named} stands down: that is sure in {left:.1f} s"
        if longest is not None:
            raise StandingDown(longest[1], longest[0])

    async def replaced(self, group: Group, server: str) -> None:
        """``server`` has taken the place of the group's master: tell which proxies were relied on to have stood down.

        While the server was a replica it could be given only one of the two marks, which it would forget with its
        process. So the fences are set again.
        """
        for entry in self._concerned(group):
            text = f"proxy {entry.proxy_id} has stood down from group {group.id}: {group.master} was not asked"
            self._ledger.note(What.PROXY_STOOD_DOWN, text)
        await self._marker.fence({server: [entry.instance for entry in self._concerned(group)]})

    def _concerned(self, group: Group) -> list[Fenced]:
        """Removed proxies that are not known to be fenced off the group's master."""
        return fences.lacking(self._ledger.state, group.master) if group.master is not None else []
