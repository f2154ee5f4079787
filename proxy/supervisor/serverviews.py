"""Which servers do not answer this proxy, as its heartbeats say it (:mod:`topom.servers.detector`).

Only what is not well is said, so that a heartbeat stays small however many servers there are.
"""

from proxy.channel import Message
from slots.access import ServerAccess
from slots.probing import UNANSWERED_SECONDS, Probing, Seen
from slots.table import SlotTable

PROBE_SECONDS = 0.5
"""Between two questions to a server whether it answers."""
PROBE_LIMIT_SECONDS = 1.0
"""How long it may take to answer."""
QUIET_SECONDS = 2.0
"""For how long a server has been silent that is named, until topom says otherwise."""


class ServerViews:
    """The servers of one proxy (:class:`proxy.supervisor.control.Listener`).

    Args:
        access: how to get in at the servers.
        seen: told of each server that answers, and its run id.
    """

    def __init__(self, access: ServerAccess, seen: Seen) -> None:
        self._probing = Probing(access, PROBE_SECONDS, PROBE_LIMIT_SECONDS, seen)
        self._asked: int | None = None
        self._quiet_seconds = QUIET_SECONDS

    def keep(self, table: SlotTable) -> None:
        """Ask the servers of this table."""
        self._probing.keep(server for group in table.groups.values() for server in group.servers)
        self._asked = table.epoch

    def heartbeat(self) -> Message:
        """The fields of ``heartbeat``."""
        silent, unanswered = self._probing.silent(self._quiet_seconds, UNANSWERED_SECONDS)
        return {"asked": self._asked, "silent": silent, "unanswered": unanswered}

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._probing.close()

    # -- what topom says (proxy.supervisor.control.Listener) ----------------------------------------------------------

    def registration(self) -> Message:
        """No more fields."""
        return {}

    def registered(self, answer: Message) -> None:
        """topom says by what a server counts as silent."""
        self._quiet_seconds = float(answer.get("quiet_seconds", QUIET_SECONDS))

    def heard(self, message: Message) -> bool:
        """Nothing else is meant for it."""
        return False

    def lost(self) -> None:
        """The servers are asked on."""
