"""Groups that leave: they get nothing new, their slots move away while they serve, and then they are gone.

The list of what leaves is stored, so that the next leader goes on with it. Each entry says why, and since when. A group
that should stay after all is taken off the list: moves of its slots that only wait are cancelled, those under way go
on.

**epochs**: each step is a change of the newest state, made anew if the table has changed meanwhile.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from slots import ranges
from slots.states import SlotState
from topom.balance.rebalancing import Rebalancing
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Leaving, leaving_groups
from topom.errors import Conflict, GroupNotFound
from topom.periodic import Look, Loop, never_held
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)

DRAINED = "an operator drains it"
"""Why something leaves, if the operator gave no reason."""


class LastGroup(Conflict):
    """No other group could take what this one has."""

    kind = Kind.OPERATOR


def with_group(state: ClusterState, epoch: int, group_id: int, why: str, now: float) -> ClusterState:
    """The state with a group on the list. Slots that only wait to move to it stay where they are.

    Raises:
        GroupNotFound: there is no such group.
        LastGroup: no other group with a server stays.
    """
    topology.group_of(state.table, group_id)
    leaving = leaving_groups(state)
    if group_id in leaving:
        return state
    if not any(group.servers and group.id not in leaving | {group_id} for group in state.table.groups.values()):
        raise LastGroup(f"no other group could take what group {group_id} has; add one with a server first")
    entry = Leaving("group", str(group_id), why, now)
    called_off = [
        slot.cancel()
        for slot in state.table.slots
        if slot.action is not None and slot.action.state is SlotState.PENDING and slot.action.target_id == group_id
    ]
    table = topology.with_slots(state.table, epoch, called_off)
    return replace(interventions.with_table(state, table), leaving={**state.leaving, entry.key: entry})


def without_group(state: ClusterState, epoch: int, group_id: int) -> ClusterState:
    """The state with a group off the list; its slots that only wait to move away are at rest. Raises GroupNotFound."""
    if group_id not in state.table.groups:
        raise GroupNotFound(f"there is no group {group_id}; it may have left already: slotferry events")
    if group_id not in leaving_groups(state):
        return state
    staying = [
        slot.cancel()
        for slot in state.table.slots
        if slot.group_id == group_id and slot.action is not None and slot.action.state is SlotState.PENDING
    ]
    table = topology.with_slots(state.table, epoch, staying)
    return off_the_list(interventions.with_table(state, table), Leaving.key_of("group", str(group_id)))


def without_empty(state: ClusterState, epoch: int) -> ClusterState:
    """The state without the groups on the list that own nothing and get nothing.

    A locked group stays until it is decided which of its servers is the master.
    """
    table = state.table
    used = {id for slot in table.slots for id in (slot.group_id, slot.destination_id, slot.owner_id)}
    listed = leaving_groups(state)
    empty = [id for id in sorted(listed & table.groups.keys()) if id not in used and not table.groups[id].locked]
    new = replace(state, table=table.changed(epoch, removed_groups=empty)) if empty else state
    for group_id in sorted(listed - new.table.groups.keys()):
        new = off_the_list(new, Leaving.key_of("group", str(group_id)))
    return new


def off_the_list(state: ClusterState, key: str) -> ClusterState:
    """The state without the entry of this key: it does not leave, or has left."""
    if key not in state.leaving:
        return state
    return replace(state, leaving={name: entry for name, entry in state.leaving.items() if name != key})


class Departures(Loop):
    """Plans moves for the groups on the list, and removes those that are empty."""

    name = "leaving groups"

    def __init__(
        self, ledger: Ledger, rebalancing: Rebalancing, held: Callable[[], Reason | None] = never_held
    ) -> None:
        super().__init__(held)
        self._ledger = ledger
        self._rebalancing = rebalancing
        ledger.listen(self._changed)

    async def drain(self, group_id: int, why: str) -> None:
        """Put a group on the list. Raises as :func:`with_group`, and StoreError."""
        await self._ledger.change(lambda state, epoch: with_group(state, epoch, group_id, why, time.time()))
        log.info("group_leaves", group=group_id, why=why)

    async def keep(self, group_id: int) -> None:
        """Take a group off the list. Raises as :func:`without_group`, and StoreError."""
        await self._ledger.change(lambda state, epoch: without_group(state, epoch, group_id))
        log.info("group_stays", group=group_id)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        # Every step of a batch changes the state.
        self.wake()

    async def look(self) -> Look:
        """Plan moves for the groups on the list, and remove empty ones. Raises as ``empty`` of the rebalancing."""
        leaving = leaving_groups(self._ledger.state)
        if not leaving:
            return Look()
        state = await self._ledger.change(without_empty)
        if gone := leaving - leaving_groups(state):
            log.info("groups_gone", groups=ranges.show(gone))
        resting = {slot.group_id for slot in state.table.slots if slot.action is None}
        if resting & leaving_groups(state):
            await self._rebalancing.empty(leaving_groups(state))
        left = leaving_groups(state)
        return Look(f"groups {ranges.show(left)} leave as their slots move away" if left else "")
