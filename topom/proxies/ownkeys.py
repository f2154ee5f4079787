"""Puts aside anything else that stands at a master under the name of one of Slotferry's own keys.

Every proxy refuses such names to its clients, but a script, or a client that talks to a server directly, may write one.
A key of a wrong type is no mark of Slotferry's, and blocks all marks: no slot moves, no fence is stored. So topom
renames it and an event says so. The server then counts as one without fences (**one-owner**): fences that are not up
everywhere are set again.

**bounded**: one short script for each master and look.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

import structlog

from slots.reserved import ASIDE, FENCED
from topom.cluster import fences
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.periodic import Look, Loop, never_held
from topom.proxies.barrier import Barrier
from topom.reasons import Reason

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0


class Servers(Protocol):
    """What is needed of :class:`topom.servers.redis_servers.RedisServers`."""

    async def put_aside(self, address: str) -> list[bytes]:
        """Put aside what has a wrong type under one of Slotferry's names; gives the names. Does not raise."""


class OwnKeys(Loop):
    """Slotferry's own keys at one topom's masters.

    Args:
        hears: whether a server has answered this topom just now.
        held: as for :class:`topom.periodic.Loop`.
    """

    name = "own keys"
    first_seconds = LOOK_SECONDS

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        servers: Servers,
        hears: Callable[[str], bool],
        held: Callable[[], Reason | None] = never_held,
    ) -> None:
        super().__init__(held)
        self._ledger = ledger
        self._barrier = barrier
        self._servers = servers
        self._hears = hears

    async def look(self) -> Look:
        """Look at every master that answers. Raises as :meth:`topom.cluster.ledger.Ledger.change`."""
        groups = self._ledger.table.groups.values()
        masters = [group.master for group in groups if group.master is not None and self._hears(group.master)]
        found = await asyncio.gather(*(self._servers.put_aside(master) for master in masters))
        there = {master: names for master, names in zip(masters, found, strict=True) if names}
        for master, names in there.items():
            await self._tell(master, names)
        return Look(f"put aside what was under Slotferry's names at {', '.join(there)}" if there else "", LOOK_SECONDS)

    async def _tell(self, master: str, names: Collection[bytes]) -> None:
        shown = ", ".join(sorted(name.decode() for name in names))
        text = (
            f"{master} had something else than Slotferry's own under {shown}; it is under {ASIDE.decode()}... now: "
            "find out who writes to servers directly, or by which script, and delete it"
        )
        log.error("own_key_put_aside", server=master, names=shown)
        self._ledger.note(What.OWN_KEY_PUT_ASIDE, text)
        if FENCED in names:
            self._barrier.emptied(master)
            await self._ledger.change(lambda state, epoch: fences.emptied(state, master))
            await self._barrier.fence_removed([master])
