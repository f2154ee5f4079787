"""Operators' changes of groups and servers in the slot table: the only way in which operators bring servers into a
group.

Each is a pure function of :mod:`topom.cluster.topology`. What follows from a change is stored by the same write: new
replicas are joining, and have their run ids (**run-id**).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from slots import ranges
from slots.table import SlotTable
from topom.cluster import topology
from topom.cluster.cancelling import with_table
from topom.cluster.joins import with_new
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.servers.identities import Identities, with_run_ids

log = structlog.get_logger(__name__)

NOBODY_NEW: Mapping[str, str] = MappingProxyType({})

TableChange = Callable[[SlotTable, int], SlotTable]
"""Gets the table, and the epoch for a changed one. Gives the next table, or the same object for no change."""


class Edits:
    """The changes of one topom's table that operators ask for."""

    def __init__(self, ledger: Ledger, identities: Identities) -> None:
        self._ledger = ledger
        self._identities = identities

    async def edit(self, make: TableChange, wipe: bool = False, run_ids: Mapping[str, str] = NOBODY_NEW) -> SlotTable:
        """Change the table as ``make`` says; gives the table that then holds.

        Args:
            wipe: whether the keys that new replicas hold may be lost.
            run_ids: the run ids of new servers, by address (:meth:`topom.servers.identities.Identities.admit`).

        Raises:
            SameServer: topom has a new server already, by another name.
            TopomError: as ``make`` and :meth:`topom.cluster.ledger.Ledger.change`.
        """

        def change(state: ClusterState, epoch: int) -> ClusterState:
            table = make(state.table, epoch)
            self._identities.require_new(state, run_ids)
            return with_run_ids(with_new(state, with_table(state, table), wipe), run_ids)

        return (await self._ledger.change(change)).table

    async def edit_slots(self, make: TableChange) -> tuple[int, list[int]]:
        """As :meth:`edit`; gives the epoch that then holds, and ids of the slots that changed."""
        changed: list[int] = []

        def tracked(table: SlotTable, epoch: int) -> SlotTable:
            new = make(table, epoch)
            changed[:] = topology.changed_slots(table, new)
            return new

        table = await self.edit(tracked)
        if changed:
            log.info("slots_changed", slots=ranges.show(changed), epoch=table.epoch)
        return table.epoch, changed
