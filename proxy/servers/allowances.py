"""The time until which a worker may use each server: the supervisor's grant, combined with the worker's table.

**one-owner**: a group with replicas may get another master while this proxy hears no topom. So its servers are used
only as long as the supervisor knows that the proxy was not fenced (:mod:`proxy.supervisor.standdown.evidence`). Each
connection checks its own limit (:mod:`proxy.engine.allowance`), so the limit holds even if the supervisor dies or this
process is paused. If a group has no replica, no other server can become its master, and there is no limit.

**final-fence**: once any process has seen the proxy fenced, no server is used under that identity any more, with or
without replicas, until there is another identity.
"""

import math
from collections.abc import Mapping

from proxy.engine.allowance import Allowance, clock
from slots.messages.channel import Grant
from slots.table import SlotTable

UNLIMITED = Grant(all=None)
"""The grant when no topom has told the proxy to stand down."""


class Allowances:
    """The limits of one worker's servers. There is no limit before the first call of :meth:`take`."""

    def __init__(self) -> None:
        self._by_server: dict[str, Allowance] = {}
        self._table: SlotTable | None = None
        self._all = math.inf
        self.ended = False
        """Whether the identity has ended, so that no server may be used under it."""
        self._by_group: Mapping[int, float] = {}
        self._groups: dict[int, float] = {}

    def of(self, server: str) -> Allowance:
        """The limit of a server. The object changes when the limit does."""
        found = self._by_server.get(server)
        if found is None:
            found = self._by_server[server] = Allowance(self._limit(self._group_of(server)))
        return found

    @property
    def limited(self) -> bool:
        """Whether the grant has any limit."""
        return self._all < math.inf

    def renew(self, grant: Grant) -> None:
        """Take the grant of a new identity."""
        self.ended = False
        self.take(grant)

    def end(self) -> None:
        """final-fence: the identity was fenced. No grant to it counts any more."""
        self.ended = True
        self._refresh()

    def take(self, grant: Grant) -> None:
        """Take a grant. Its times are those of :func:`proxy.engine.allowance.clock`."""
        self.ended = self.ended or grant.ended
        self._all = math.inf if grant.all is None else grant.all
        self._by_group = grant.groups
        self._refresh()

    def applied(self, table: SlotTable) -> None:
        """From now on this table says which servers belong to which group."""
        self._table = table
        self._refresh()

    def over(self) -> frozenset[int]:
        """Groups that may not be used now."""
        now = clock()
        return frozenset(group for group, until in self._groups.items() if until <= now)

    def seconds_left(self) -> float:
        """Seconds until the next group may not be used any more; infinity if no group is limited."""
        now = clock()
        return min((until for until in self._groups.values() if until > now), default=math.inf) - now

    def _refresh(self) -> None:
        groups = self._table.groups if self._table is not None else {}
        self._groups = {group: self._limit(group) for group in groups}
        known = {server: group.id for group in groups.values() for server in group.servers}
        for server, allowance in self._by_server.items():
            allowance.until = self._limit(known.get(server))

    def _group_of(self, server: str) -> int | None:
        groups = self._table.groups.values() if self._table is not None else ()
        return next((group.id for group in groups if server in group.servers), None)

    def _limit(self, group_id: int | None) -> float:
        if self.ended:
            return 0.0
        if self._table is not None and group_id is not None and not self._table.groups[group_id].replicas:
            return math.inf
        # A server that is in no group any more may have been in one that has another master by now.
        return self._all if group_id is None else max(self._all, self._by_group.get(group_id, 0.0))
