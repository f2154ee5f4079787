"""How Sentinels treat the servers that hold copies: which ones they may elect, and which ones they must forget."""

from collections.abc import Callable

import structlog

from topom.cluster.ledger import Ledger
from topom.masters.sentinels.electable import Priorities, barred
from topom.masters.sentinels.errors import StillElectable
from topom.masters.sentinels.strangers import Strangers
from topom.periodic import Loop
from topom.servers.lastcopy import ServerFailed
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)


class Copies:
    """The copies of one topom, as Sentinels see them.

    Args:
        active: whether groups are left to Sentinels. If not, servers only get back the priorities that they had.
        strangers: knows the strangers that follow a master, which must not be elected.
        has_failed: as for :func:`~topom.masters.sentinels.electable.barred`.
    """

    def __init__(
        self,
        active: bool,
        ledger: Ledger,
        replication: ServerReplication,
        strangers: Strangers,
        has_failed: Callable[[str], bool],
    ) -> None:
        self._active = active
        self._ledger = ledger
        self._strangers = strangers
        self._has_failed = has_failed
        self._priorities = Priorities(ledger, replication, self.barred)
        strangers.changed = self.reconsider

    def barred(self) -> frozenset[str]:
        """Servers that must not be elected now."""
        if not self._active:
            return frozenset()
        state, following = self._ledger.state, self._strangers.following
        if not self._strangers.complete:
            # A server that is in no group and was barred before may still follow a master.
            grouped = {server for group in state.table.groups.values() for server in group.servers}
            following |= state.priorities.keys() - grouped
        return barred(state, self._has_failed, following)

    def reconsider(self) -> None:
        """Look anew which servers must not be elected."""
        self._priorities.wake()

    async def prepare(self, server: str, group_id: int) -> None:
        """Make sure that a server may be filled for a group.

        Raises:
            SentinelsRemember: Sentinels count it to another group.
            StillElectable: its configuration cannot be changed, and it is in no group yet.
            TopomError: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        if not self._active:
            return
        await self._strangers.require_forgotten(server, group_id)
        try:
            await self._priorities.bar(server)
        except ServerFailed as error:
            if server in self._ledger.state.pool:
                raise StillElectable(
                    f"Sentinels could elect {server} before it is whole, for its replica-priority cannot be set to 0 "
                    f"({error}); allow topom's user CONFIG GET and SET there"
                ) from error
            log.warning("server_may_be_elected", server=server, reason=str(error))

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops that run by themselves."""
        return (self._priorities, self._strangers) if self._active else (self._priorities,)
