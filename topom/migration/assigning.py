"""Assigns offline slots to a group at once: no group serves them, so there is nothing to move.

**one-owner**: every proxy has acknowledged a table in which the slots are offline, and lost proxies are fenced off
every server. So no proxy sends to a former owner.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from slots.table import SlotTable
from topom.cluster import leftovers, topology
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.errors import ProxiesNotReady, SweepUnderWay
from topom.migration.sweeping import Sweeps
from topom.proxies.barrier import Barrier
from topom.servers.edits import Edits
from topom.servers.identities import Identities

ASSIGN_SECONDS = 5.0
"""How long an assignment waits until all proxies acknowledge that the slots are offline."""


class Assignments:
    """The assignments of one topom, one at a time.

    Args:
        use: leaves the mark of a topom that changes the owner of slots at these servers (**newest-store**).
    """

    def __init__(
        self,
        ledger: Ledger,
        edits: Edits,
        identities: Identities,
        barrier: Barrier,
        sweeps: Sweeps,
        use: Callable[[Iterable[str]], Awaitable[object]],
    ) -> None:
        self._ledger = ledger
        self._edits = edits
        self._identities = identities
        self._barrier = barrier
        self._sweeps = sweeps
        self._use = use
        self._one_at_a_time = asyncio.Lock()

    async def assign(self, text: str, group_id: int) -> tuple[int, list[int]]:
        """Assign offline slots to a group; gives the epoch that then holds, and the ids of the slots that changed.

        Args:
            text: the slots, as :func:`topom.cluster.topology.parse_slots` reads them.

        Raises:
            InvalidSlots: ``text`` is not a list of slots.
            SameServer: the group's master is a server that topom has by another name.
            ProxiesNotReady: the proxies take longer than :data:`ASSIGN_SECONDS`.
            OldKeysLeft: the group may have old keys of the slots.
            SweepUnderWay: the end of a sweep of the master takes longer than that.
            TopomError: as :func:`topom.cluster.topology.assign`.
        """
        slots = topology.parse_slots(text, self._ledger.state.product.number_of_slots)
        deadline = asyncio.get_running_loop().time() + ASSIGN_SECONDS
        async with self._one_at_a_time:
            while True:
                # Check first, so that what can never be assigned is refused at once.
                topology.assign(self._ledger.table, self._ledger.state.version + 1, slots, group_id)
                leftovers.require_none(self._ledger.state, group_id, slots)
                self._identities.require_one_name(topology.group_of(self._ledger.table, group_id).servers[0])
                await self._sweeps.stop(self._ledger.table.master_of(group_id))
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                await self._barrier.everyone_current(all_servers(self._ledger.table), left)
                waited = False

                def assign(table: SlotTable, epoch: int) -> SlotTable:
                    nonlocal waited
                    # Nothing changes the table while this runs, so what holds here holds when the change is stored.
                    waited = self._barrier.passed(table.epoch, all_servers(table))
                    return topology.assign(table, epoch, slots, group_id) if waited else table

                try:
                    outcome = await self._edits.edit_slots(assign)
                except SweepUnderWay:
                    # This sweep began after the one before was stopped.
                    if not left:
                        raise
                    continue
                if waited:
                    # newest-store: only what is stored has a state to name. Clients are told of the slots meanwhile.
                    master = self._ledger.table.master_of(group_id)
                    await self._use([master] if master is not None else [])
                    return outcome
                if not left:
                    raise ProxiesNotReady("the table changes faster than proxies acknowledge it; try again in a while")
