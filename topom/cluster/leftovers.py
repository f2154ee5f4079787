"""Leftovers: old keys of slots that were copied away (:mod:`migrator.stream`), at the group that they left.

When such slots switch, the group that they leave still has its keys of them. From then on they are old. So it is stored
with the switch whose they are, until a sweep of the group's master has found none (:mod:`topom.migration.sweeping`).
Meanwhile the slots do not come to that group in any way: the old keys would be alive again (**owned**). They are swept
also while nobody owns the slots.

A slot whose keys move one by one leaves none (**complete**).

Pure functions of the state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slots import ranges
from slots.states import SlotState
from slots.table import Slot
from topom.cluster.state import ClusterState
from topom.errors import OldKeysLeft


def noted(old: ClusterState, new: ClusterState) -> ClusterState:
    """``new``, with the leftovers of slots that switch, and without those of groups that are gone."""
    if new.table is old.table:
        return new
    switched: dict[int, dict[int, int]] = {}
    for before, after in zip(old.table.slots, new.table.slots, strict=True):
        if before is not after and _has_switched(after) and not _has_switched(before):
            switched.setdefault(after.group_id, {})[after.id] = new.version
    gone = new.leftovers.keys() - new.table.groups.keys()
    if not switched and not gone:
        return new
    kept = {group_id: slots for group_id, slots in new.leftovers.items() if group_id not in gone}
    return replace(new, leftovers=kept | {id: {**kept.get(id, {}), **slots} for id, slots in switched.items()})


def without(state: ClusterState, group_id: int, slots: Mapping[int, int]) -> ClusterState:
    """The state without leftovers of these slots at a group, as far as they are those of the same switch."""
    known = state.leftovers.get(group_id, {})
    kept = {slot: switch for slot, switch in known.items() if slots.get(slot) != switch}
    if len(kept) == len(known):
        return state
    others = {id: other for id, other in state.leftovers.items() if id != group_id}
    return replace(state, leftovers={**others, group_id: kept} if kept else others)


def require_none(state: ClusterState, group_id: int, slots: Iterable[int]) -> None:
    """Raises OldKeysLeft if a group may still have old keys of one of these slots."""
    left = state.leftovers.get(group_id, {})
    wrong = sorted(left.keys() & set(slots)) if left else []
    if wrong:
        raise OldKeysLeft(
            f"server {state.table.master_of(group_id)} of group {group_id} may still have old keys of slots "
            f"{ranges.show(wrong)}, from before these left for another group; they would be alive again",
            "try again once they are removed, which takes seconds if nothing is in the way ('slotferry status' says "
            "so), or choose another group",
        )


def _has_switched(slot: Slot) -> bool:
    return slot.action is not None and bool(slot.action.copy) and slot.action.state is SlotState.FINISHED
