"""The first layout: if no slot ever had a group, topom lays all slots out by itself once there are enough groups.

Each group with a reachable master that holds no keys gets one range of slots. All ranges come in one change and are as
even as possible. A master that holds keys stops the layout: only the operator knows in which slots they should be.

**one-owner**: no slot was ever assigned, so all slots are offline in every table that a proxy of this product can have.
There is no former owner that a proxy could still use, so topom waits for no proxy.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from slots.slot import Slot
from topom.cluster import topology
from topom.cluster.events import Said, What
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import all_servers
from topom.errors import TopomError
from topom.periodic import Look, Loop, never_held
from topom.reasons import Reason
from topom.servers.redis_servers import RedisServers

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks at the groups."""


def even_ranges(number_of_slots: int, group_ids: Sequence[int]) -> list[Slot]:
    """Every slot in one of these groups: one range for each, in their order; the lengths differ by at most one."""
    count = len(group_ids)
    return [Slot(slot, group_ids[slot * count // number_of_slots]) for slot in range(number_of_slots)]


class FirstLayout(Loop):
    """Lays out the slots once ``min_groups`` groups can take them; never if that is 0."""

    name = "first layout"

    def __init__(
        self,
        ledger: Ledger,
        servers: RedisServers,
        min_groups: int,
        require_apart: Callable[..., None] = lambda *servers: None,
        held: Callable[[], Reason | None] = never_held,
    ) -> None:
        """
        Args:
            require_apart: raises a TopomError if two of these names may be one server.
            held: as for :class:`topom.periodic.Loop`.
        """
        super().__init__(held)
        self._require_apart = require_apart
        self._ledger = ledger
        self._servers = servers
        self._min_groups = min_groups

    async def look(self) -> Look:
        """Lay out the slots if possible; the last look is when they are laid out, by this loop or by an operator."""
        if not self._min_groups or self._ledger.state.assigned:
            return Look(over=True)
        waits_for = await self.lay_out()
        return Look(waits_for or "laid the slots out", LOOK_SECONDS)

    async def lay_out(self) -> str:
        """Lay out the slots if that is possible now; else gives a sentence about what is missing.

        Raises:
            StoreError, LostPlace: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        table = self._ledger.table
        found = await self._servers.status(all_servers(table))
        said = {server: reading for server, reading in found.items() if reading is not None}
        masters = {group_id: group.master for group_id, group in sorted(table.groups.items()) if group.master}
        ready = {
            group_id: master
            for group_id, master in masters.items()
            if master in said and said[master].replication.is_master
        }
        if len(ready) < self._min_groups:
            missing = [f"group {group_id}" for group_id in masters if group_id not in ready]
            absent = f"; no reachable master: {', '.join(missing)}" if missing else ""
            return f"{len(ready)} of min_groups = {self._min_groups} groups have a reachable master{absent}"
        try:
            self._require_apart(*ready.values())
        except TopomError as error:
            return str(error)
        filled = [f"{master} of group {group_id}" for group_id, master in ready.items() if said[master].keys]
        if filled:
            return (
                f"{', '.join(filled)} holds keys, and nobody but you knows their slots: assign the slots with "
                "'slotferry slot assign', or empty the server"
            )

        def lay_out(state: ClusterState, epoch: int) -> ClusterState:
            if state.assigned or any(state.table.master_of(group_id) != master for group_id, master in ready.items()):
                return state
            new = topology.with_slots(state.table, epoch, even_ranges(len(state.table.slots), list(ready)))
            return replace(state, table=new)

        text = f"the first layout: {len(table.slots)} slots over {len(ready)} groups"
        state = await self._ledger.change(lay_out, [Said(What.FIRST_LAYOUT, text)])
        if not state.assigned:
            return "the groups changed meanwhile"
        log.info("first_layout", groups=list(ready), epoch=state.table.epoch)
        return ""
