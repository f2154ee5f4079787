"""Puts up the fences of removed proxies at every server, so that they can be forgotten.

Servers that are alive get them at once, because a failover waits for them (:mod:`topom.masters.failover`). Others are
asked less and less often.

**bounded**: remembered fences would grow with every proxy that comes and goes.
"""

import asyncio
from collections.abc import Callable

from slots.backoff import Backoff
from slots.counting import counted
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import all_servers
from topom.periodic import Look, Loop
from topom.proxies.barrier import Barrier

LOOK_SECONDS = 1.0
"""Between two attempts at servers that are alive."""
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
"""Seconds between two attempts at all other servers; with full jitter."""


class Fences(Loop):
    """The fences of one topom.

    Args:
        is_alive: whether a server answers everybody (:mod:`topom.servers.detector`).
    """

    name = "fences"

    def __init__(self, ledger: Ledger, barrier: Barrier, is_alive: Callable[[str], bool]) -> None:
        super().__init__()
        self._ledger = ledger
        self._barrier = barrier
        self._is_alive = is_alive
        self._backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS)
        self._others_at = 0.0
        ledger.listen(self._changed)

    async def look(self) -> Look:
        """Try to fence each removed proxy at the servers where it is not fenced yet."""
        if not self._ledger.state.fenced:
            self._backoff.reset()
            return Look()
        servers = all_servers(self._ledger.table)
        await self._barrier.fence_removed([server for server in servers if self._is_alive(server)])
        now = asyncio.get_running_loop().time()
        if now >= self._others_at:
            await self._barrier.fence_removed([server for server in servers if not self._is_alive(server)])
            self._others_at = now + self._backoff.next()
        number = len(self._ledger.state.fenced)
        return Look(
            f"{counted(number, 'removed proxy is', 'removed proxies are')} not fenced off every server yet"
            if number
            else "",
            LOOK_SECONDS,
        )

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if new.fenced.keys() - old.fenced.keys():
            self._others_at = 0.0
            self.wake()
