"""Forgets lost proxies whose processes have gone, so that operators need not remove them, and no failover waits for
them.

A proxy that dies is started again as a new member. Its former identity stays a lost member. Lost members count for
protection mode, and a failed master cannot be replaced without their fences at it (:mod:`topom.masters.failover`). A
member is not fenced only because it is lost: topom may fail to hear proxies that serve well. But a living process has
connections to every master, and the connections of a dead one are ended by its computer. So a lost member of which no
server has a connection serves nobody. It is fenced off every server while all of them answer.

**one-owner** does not rest on that look. Like any other, such a member is forgotten by the write that stores its fence,
and no slot or group gets another master before the fence is up (:mod:`topom.proxies.barrier`). If the process lived all
the same, it would find itself fenced, and come back under a new identity.

**bounded**: one look at each server at a time, at :data:`MOST_LOOKED_AT` servers at most. While there is nothing to
forget, the looks come further and further apart.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

import structlog

from slots.backoff import Backoff
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.periodic import Look, Loop, never_held
from topom.proxies.barrier import Barrier
from topom.proxies.member import Member
from topom.proxies.members import Members
from topom.proxies.strangers import Connections
from topom.reasons import Reason

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks whether there are lost members."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 2.0, 60.0
"""Seconds between two looks at the servers for the same lost members."""
MOST_LOOKED_AT = 64
"""In how many servers' lists of connections lost members are looked for. Such a list may have thousands of lines, and a
living process has connections to all masters."""
MESSAGE = "the proxy was lost and had no connection to any server, so it was fenced off them and forgotten"


class Gone(Loop):
    """Looks for lost members of one topom whose processes have gone.

    Args:
        seconds: how long a member is silent before topom looks for its connections; with 0 it never looks.
        held: as for :class:`topom.periodic.Loop`.
    """

    name = "lost proxies"
    first_seconds = LOOK_SECONDS

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        barrier: Barrier,
        servers: Connections,
        seconds: float,
        held: Callable[[], Reason | None] = never_held,
    ) -> None:
        super().__init__(held)
        self._ledger = ledger
        self._members = members
        self._barrier = barrier
        self._servers = servers
        self._seconds = seconds
        self._backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        self._looked_for: set[int] = set()
        self._not_before = 0.0

    async def look(self) -> Look:
        """Forget the lost members that have gone; if the setting is 0, this is the last look."""
        if not self._seconds:
            return Look(over=True)
        lost = self._long_lost()
        ids = {member.record.id for member in lost}
        if ids - self._looked_for:
            self._backoff.reset()
            self._not_before = 0.0
        self._looked_for = ids
        now = asyncio.get_running_loop().time()
        if not lost:
            return Look("", LOOK_SECONDS)
        if now < self._not_before:
            return Look(self.says, LOOK_SECONDS)
        self._not_before = now + self._backoff.next()
        gone = await self.forget(lost)
        if staying := sorted(ids - {*gone}):
            return Look(f"looks again and again whether lost proxies {_listed(staying)} have gone", LOOK_SECONDS)
        return Look(f"forgot lost proxies {_listed(gone)}, of which no server had a connection", LOOK_SECONDS)

    async def forget(self, lost: Iterable[Member]) -> list[int]:
        """Fence and forget each of these lost members of which no server has a connection; gives their ids.

        Nothing is done while a server does not answer, or the loop is held.

        Raises:
            StoreError, LostPlace, NotLeading: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        servers = all_servers(self._ledger.table)
        by_instance = {member.record.instance: member.record.id for member in lost}
        asked = servers
        if len(servers) > MOST_LOOKED_AT:
            masters = [group.servers[0] for group in self._ledger.table.groups.values() if group.servers]
            asked = random.sample(masters, min(MOST_LOOKED_AT, len(masters)))
        found = await self._servers.connected(asked)
        # A server that does not answer may have connections of a lost member, and could not be given its fence.
        if self._held() is not None or set(asked) - found.keys():
            return []
        alive = {instance for there in found.values() for instance in there}
        gone = [proxy_id for instance, proxy_id in by_instance.items() if instance not in alive]
        if gone:
            await self._members.fence(gone, "fenced", MESSAGE, only_lost=True)
            # A member that was heard of meanwhile has stayed.
            gone = sorted({*gone} - self._ledger.state.proxies.keys())
        if gone:
            failures = await self._barrier.fence_removed(servers)
            log.warning("lost_proxies_forgotten", proxies=gone, not_fenced=failures)
        return gone

    def _long_lost(self) -> list[Member]:
        now = asyncio.get_running_loop().time()
        return [member for member in self._members.all() if member.lost and now - member.heard_at >= self._seconds]


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
