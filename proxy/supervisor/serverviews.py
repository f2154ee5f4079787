"""Which servers do not answer this proxy, as its heartbeats say it (:mod:`topom.servers.detector`).

Only what is not well is said, so that a heartbeat stays small however many servers there are.
"""

from slots.access import ServerAccess
from slots.messages.control import News, Registered
from slots.probing import UNANSWERED_SECONDS, Probing, Seen
from slots.table import SlotTable

PROBE_LIMIT_SECONDS = 1.0
"""How long a server may take to answer."""
QUIET_SECONDS = 2.0
"""For how long a server has been silent that is named, until topom says otherwise."""


class ServerViews:
    """The servers of one proxy (:class:`proxy.supervisor.control.Listener`).

    Args:
        access: how to get in at the servers.
        seen: told of each server that answers, and its run id.
    """

    def __init__(self, access: ServerAccess, seen: Seen) -> None:
        self._probing = Probing(access, PROBE_LIMIT_SECONDS, seen)
        self.asked: int | None = None
        """The epoch of the table whose servers are asked."""
        self._quiet_seconds = QUIET_SECONDS

    def keep(self, table: SlotTable) -> None:
        """Ask the servers of this table."""
        self._probing.keep(server for group in table.groups.values() for server in group.servers)
        self.asked = table.epoch

    def silent(self) -> tuple[dict[str, float], list[str]]:
        """Servers that do not answer, as a heartbeat has them: for how many seconds, and those that never did."""
        return self._probing.silent(self._quiet_seconds, UNANSWERED_SECONDS)

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._probing.close()

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registered(self, answer: Registered) -> None:
        """topom says by what a server counts as silent."""
        self._quiet_seconds = answer.quiet_seconds

    def heard(self, message: News) -> None:
        """Nothing else is meant for it."""

    def lost(self) -> None:
        """The servers are asked on."""
