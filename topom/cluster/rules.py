"""What holds of every state that is stored, whoever changes it: one list of rules, which the ledger runs at each write.

A rule gets the state that is stored and the one that is to replace it. It refuses the change, or gives the new state,
with what follows from the change. So no writer can forget one, and nobody has to know who else writes.

Refusals come first: of more than a store holds, of **owned** (a server at which keys are deleted gets no slots), of
what is on its way out (it gets nothing new), and of the pool (no server is in it and in a group). A change that was
checked by an operator's request already, against an older state, is checked once more here.
"""

from collections.abc import Callable
from dataclasses import replace

from slots import ranges
from slots.states import SlotState
from slots.table import OFFLINE, Slot, SlotTable
from topom.cluster import differing
from topom.cluster.state import ClusterState, known_servers, leaving_groups, leaving_nodes
from topom.errors import GroupLeaving, InPool, NodeLeaving, SweepUnderWay, TooMany

MOST_GROUPS = 1024
MOST_SERVERS = 4096
"""In groups and in the pool."""
MOST_PROXIES = 2048
"""Members, with those that are lost and not forgotten yet: of a thousand, all may be started anew at a time."""

Rule = Callable[[ClusterState, ClusterState], ClusterState]
"""From the stored state and the new one, whose version is set, to the new one as it is stored.

Raises a TopomError for a change that is refused."""
UNLOCKED = (SlotState.PENDING, SlotState.PREPARING)


def ruled(old: ClusterState, new: ClusterState) -> ClusterState:
    """The new state as it is stored. Raises what the first rule raises that refuses it; nothing is stored then."""
    for rule in RULES:
        new = rule(old, new)
    return new


def no_more_than_a_store_holds(old: ClusterState, new: ClusterState) -> ClusterState:
    """**bounded**: documents are written whole, and a store takes no large ones. Raises TooMany for newcomers."""
    groups, proxies = len(new.table.groups), len(new.proxies)
    if groups > MOST_GROUPS and groups > len(old.table.groups):
        raise TooMany(f"there are {MOST_GROUPS} groups already, which is as many as there may be; remove one first")
    if proxies > MOST_PROXIES and proxies > len(old.proxies):
        raise TooMany(
            f"there are {MOST_PROXIES} proxies already, which is as many as there may be; "
            "stop some, or remove lost ones first"
        )
    if new.table.groups is not old.table.groups or new.pool is not old.pool:
        servers = len(known_servers(new))
        if servers > MOST_SERVERS and servers > len(known_servers(old)):
            raise TooMany(
                f"there are {MOST_SERVERS} servers in groups and pool already, which is as many as there may be; "
                "remove some first"
            )
    return new


def require_not_swept(state: ClusterState, server: str | None) -> None:
    """Raises SweepUnderWay for a server at which keys may be deleted (:mod:`topom.migration.sweeping`)."""
    if server in state.sweeping:
        raise SweepUnderWay(f"keys of slots that {server} did not own are being removed there; try again in a moment")


def locked_for(slot: Slot) -> int | None:
    """The id of the group that a slot was locked for, until it has come there; None for other slots."""
    return slot.action.target_id if slot.action is not None and slot.action.state not in UNLOCKED else None


def no_slot_for_a_server_that_is_swept(old: ClusterState, new: ClusterState) -> ClusterState:
    """No slot is assigned to such a server, nor locked on its way there. Raises SweepUnderWay."""
    if not new.sweeping or new.table is old.table:
        return new
    for before, after in zip(old.table.slots, new.table.slots, strict=True):
        if old.table.master_of(before.group_id) is None:
            require_not_swept(new, new.table.master_of(after.group_id))
        if after is not before and locked_for(before) is None and (target := locked_for(after)) is not None:
            require_not_swept(new, new.table.master_of(target))
    return new


def nothing_new_for_a_group_that_leaves(old: ClusterState, new: ClusterState) -> ClusterState:
    """No slot sets out for it, or is assigned to it. Raises GroupLeaving."""
    leaving = leaving_groups(new)
    if not leaving or new.table is old.table:
        return new
    wrong = [
        after.id
        for before, after in zip(old.table.slots, new.table.slots, strict=True)
        if before is not after
        and after.destination_id in leaving
        and after.destination_id not in (before.destination_id, before.group_id)
    ]
    if wrong:
        group_id = new.table.slots[wrong[0]].destination_id
        raise GroupLeaving(
            f"group {group_id} is on its way out and gets no slots ({ranges.show(wrong)}); choose another group, or "
            f"have it stay: slotferry group drain {group_id} --cancel"
        )
    return new


def nothing_new_on_a_node_that_leaves(old: ClusterState, new: ClusterState) -> ClusterState:
    """No server of a group comes to be there, a new one or one that was elsewhere. Raises NodeLeaving."""
    nodes = leaving_nodes(new)
    if not nodes or new.table.groups is old.table.groups:
        return new
    before = _nodes(old.table)
    for server, node in _nodes(new.table).items():
        if node in nodes and before.get(server) != node:
            raise NodeLeaving(
                f"{server} would be on node {node}, which is on its way out; take a server elsewhere, or have the "
                f"node stay: slotferry node drain {node} --cancel"
            )
    return new


def in_a_group_or_in_the_pool(old: ClusterState, new: ClusterState) -> ClusterState:
    """No server is in both. Raises InPool."""
    if not new.pool or (new.table.groups is old.table.groups and new.pool is old.pool):
        return new
    for group in new.table.groups.values():
        for server in group.servers:
            if server in new.pool:
                raise InPool(
                    f"{server} is in the pool; remove it there first (slotferry pool remove {server}), or let "
                    "placement take it"
                )
    return new


def assigned_once(old: ClusterState, new: ClusterState) -> ClusterState:
    """``assigned`` says whether any slot ever had a group."""
    return new.with_assigned()


def unwatched_since_they_came(old: ClusterState, new: ClusterState) -> ClusterState:
    """Servers that were in no group, or in another one, are ``unwatched``."""
    if new.table.groups is old.table.groups:
        return new
    came: set[str] = set()
    for group_id, group in new.table.groups.items():
        before = old.table.groups.get(group_id)
        if before is not group:
            came |= set(group.servers) - set(before.servers if before is not None else ())
    if not came:
        return new
    fences = {**new.came, **dict.fromkeys(came, new.last_fence)} if new.fenced else new.came
    return replace(new, unwatched=new.unwatched | came, came=fences)


def data_is_known_while_slots_leave_it_empty(old: ClusterState, new: ClusterState) -> ClusterState:
    """The data ids of groups are forgotten that may have keys of slots which they have lost unemptied.

    Those are all that slots were taken from by going offline. Where slots come from is not known once they are
    offline, so when they are assigned it is every group but their new one. Nor is it known what was written to a
    server while it was in no group, though it has the mark still of when it was the master of this one.
    """
    if new.table is old.table or not new.data_ids:
        return new
    lost = new.data_ids.keys() - new.table.groups.keys()
    for group_id, group in new.table.groups.items():
        former = old.table.groups.get(group_id)
        if former is not None and former is not group and group.master not in (None, *former.servers):
            lost.add(group_id)
    for before, after in zip(old.table.slots, new.table.slots, strict=True):
        if before is after or before.group_id == after.group_id:
            continue
        if after.group_id == OFFLINE:
            lost.add(before.group_id)
        elif before.group_id == OFFLINE:
            lost |= new.data_ids.keys() - {after.group_id}
    kept = {group_id: data for group_id, data in new.data_ids.items() if group_id not in lost}
    return new if len(kept) == len(new.data_ids) else replace(new, data_ids=kept)


def run_ids_of_known_servers(old: ClusterState, new: ClusterState) -> ClusterState:
    """The run ids of servers that are neither in a group nor in the pool any more are forgotten."""
    if new.table.groups is old.table.groups and new.pool is old.pool and new.run_ids is old.run_ids:
        return new
    known = set(known_servers(new))
    if known >= new.run_ids.keys():
        return new
    return replace(new, run_ids={address: one for address, one in new.run_ids.items() if address in known})


RULES: tuple[Rule, ...] = (
    no_more_than_a_store_holds,
    no_slot_for_a_server_that_is_swept,
    nothing_new_for_a_group_that_leaves,
    nothing_new_on_a_node_that_leaves,
    in_a_group_or_in_the_pool,
    assigned_once,
    unwatched_since_they_came,
    data_is_known_while_slots_leave_it_empty,
    run_ids_of_known_servers,
    differing.kept,
)


def _nodes(table: SlotTable) -> dict[str, str]:
    return {server: group.node_of(server) for group in table.groups.values() for server in group.servers}
