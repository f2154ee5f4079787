"""Leftovers: what a group still has of slots that left it, or did not come: old keys, or a permit to move keys.

When slots switch that were copied (:mod:`migrator.stream`), the group that they leave still has its keys of them. From
then on they are old. So it is stored with the switch whose they are, until a sweep of the group's master has found none
(:mod:`topom.migration.sweeping`). Meanwhile the slots do not come to that group in any way: the old keys would be alive
again (**owned**). They are swept also while nobody owns the slots. The same holds for the target of a copy that ends
without a switch: it has a part of the copy (**hidden**).

A slot whose keys move one by one leaves none (**complete**). But if its source did not answer in the end, the source
still has the permit, by which a step that lies in its socket may delete a key once the slot is back (**one-way**). That
is stored likewise, and the sweep withdraws the permit.

Pure functions of the state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slots import ranges
from slots.slot import Slot
from slots.states import SlotState
from topom.cluster.state import ClusterState
from topom.errors import OldKeysLeft


def noted(old: ClusterState, new: ClusterState) -> ClusterState:
    """``new``, with the leftovers of copies that switch or end, and without those of groups that are gone."""
    if new.table is old.table:
        return new
    found: dict[int, list[int]] = {}
    for before, after in zip(old.table.slots, new.table.slots, strict=True):
        if before is not after and (left_at := _left_at(before, after)) is not None:
            found.setdefault(left_at, []).append(after.id)
    for group_id, slots in found.items():
        new = added(new, group_id, slots, new.version)
    kept = {group_id: left for group_id, left in new.leftovers.items() if group_id in new.table.groups}
    return new if len(kept) == len(new.leftovers) else replace(new, leftovers=kept)


def added(state: ClusterState, group_id: int, slots: Iterable[int], version: int) -> ClusterState:
    """The state in which a group may have leftovers of these slots, since the write of this version."""
    left = {**state.leftovers.get(group_id, {}), **dict.fromkeys(slots, version)}
    return replace(state, leftovers={**state.leftovers, group_id: left})


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
            f"server {state.table.master_of(group_id)} of group {group_id} may still have old keys of "
            f"{ranges.named(wrong)}, from before these left for another group, or of a copy that was given up; they "
            "would be alive again",
            "try again once it is swept, which takes seconds if nothing is in the way ('slotferry status' says so), or "
            "choose another group",
        )


def _left_at(before: Slot, after: Slot) -> int | None:
    """The group that has keys of a slot left by this change; None if none has."""
    if _has_switched(after):
        return None if _has_switched(before) else after.group_id
    copied = before.action
    if copied is None or not copied.copy or _has_switched(before):
        return None
    goes_on = after.action is not None and after.action.copy == copied.copy
    return None if goes_on else copied.target_id


def _has_switched(slot: Slot) -> bool:
    return slot.action is not None and bool(slot.action.copy) and slot.action.state is SlotState.FINISHED
