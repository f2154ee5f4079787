"""Puts up the fences of removed proxies at every server, so that they can be forgotten.

**bounded**: remembered fences would grow with every proxy that comes and goes.
"""

from slots.backoff import Backoff
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.periodic import Look, Loop
from topom.proxies.barrier import Barrier

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
"""Seconds between two attempts; with full jitter."""


class Fences(Loop):
    """The fences of one topom."""

    name = "fences"

    def __init__(self, ledger: Ledger, barrier: Barrier) -> None:
        super().__init__()
        self._ledger = ledger
        self._barrier = barrier
        self._backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS)

    async def look(self) -> Look:
        """Try to fence each removed proxy at the servers where it is not fenced yet."""
        if not self._ledger.state.fenced:
            self._backoff.reset()
        else:
            await self._barrier.fence_removed(all_servers(self._ledger.table))
        number = len(self._ledger.state.fenced)
        says = f"{number} removed proxies are not fenced off every server yet" if number else ""
        return Look(says, self._backoff.next())
