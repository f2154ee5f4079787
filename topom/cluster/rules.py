"""The rules for every state that is stored: one list of rules, which the ledger runs at each write.

A rule gets the stored state and the one that is to replace it. It refuses the change, or gives the new state with what
follows from the change. So no writer can forget a rule, and no writer has to know the others.

The rules that refuse come first: for more than a store holds, for **owned** (a server at which keys are deleted gets no
slots, and no group those of which it may have old keys), for what is leaving (it gets nothing new), and for the pool
(no server is in it and in a group). A change that an operator's request has checked already, against an older state, is
checked once more here.
"""

from collections.abc import Callable
from dataclasses import replace

from slots import ranges
from slots.slot import OFFLINE, Slot
from slots.states import SlotState
from slots.table import SlotTable
from topom.cluster import differing, joins, leftovers
from topom.cluster.state import ClusterState, known_servers, leaving_groups, leaving_nodes
from topom.errors import GroupLeaving, InPool, NodeLeaving, RulesChanging, SweepUnderWay, TooMany

MOST_GROUPS = 1024
MOST_SERVERS = 4096
"""The most servers in groups and in the pool together."""
MOST_PROXIES = 2048
"""The most members, with lost ones that are not forgotten yet: all of a thousand proxies may start anew at a time."""

Rule = Callable[[ClusterState, ClusterState], ClusterState]
"""Gets the stored state and the new one, whose version is set. Gives the new state as it is to be stored.

Raises a TopomError for a change that is refused."""
UNLOCKED = (SlotState.PENDING, SlotState.PREPARING)
"""States in which the keys that the target has of the slot may be deleted there."""


def ruled(old: ClusterState, new: ClusterState) -> ClusterState:
    """The new state as it is stored. Raises what the first refusing rule raises; nothing is stored then."""
    for rule in RULES:
        new = rule(old, new)
    return new


def no_more_than_a_store_holds(old: ClusterState, new: ClusterState) -> ClusterState:
    """**bounded**: documents are written whole, and a store takes no large ones. Raises TooMany for what is new."""
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
    """The id of the group for which a slot was locked, or that gets a copy of it, until the slot has come there; None
    for other slots."""
    action = slot.action
    return action.target_id if action is not None and (action.copy or action.state not in UNLOCKED) else None


def no_slot_for_a_server_that_is_swept(old: ClusterState, new: ClusterState) -> ClusterState:
    """No slot is assigned to a server that is swept, or locked on its way there. Raises SweepUnderWay."""
    if not new.sweeping or new.table is old.table:
        return new
    for before, after in zip(old.table.slots, new.table.slots, strict=True):
        if old.table.master_of(before.group_id) is None:
            require_not_swept(new, new.table.master_of(after.group_id))
        if after is not before and locked_for(before) is None and (target := locked_for(after)) is not None:
            require_not_swept(new, new.table.master_of(target))
    return new


def no_slot_changes_while_its_rules_do(old: ClusterState, new: ClusterState) -> ClusterState:
    """Which group has which keys is settled, and no key is deleted, while the slot rules change
    (:mod:`topom.migration.rulechanges`). Raises RulesChanging."""
    if old.table.coming is not None is not new.table.coming and (
        new.table.slots != old.table.slots or new.sweeping.keys() - old.sweeping.keys()
    ):
        raise RulesChanging("the slot rules are being changed; try again in a moment")
    return new


def no_slot_for_a_group_with_old_keys_of_it(old: ClusterState, new: ClusterState) -> ClusterState:
    """**owned**: no slot comes to a group that may have old keys of it. Raises OldKeysLeft."""
    if not new.leftovers or new.table is old.table:
        return new
    for group_id, left in new.leftovers.items():
        changed = [after for slot in left if (after := new.table.slots[slot]) is not old.table.slots[slot]]
        come = (slot.id for slot in changed if group_id in (slot.owner_id, locked_for(slot)))
        leftovers.require_none(new, group_id, come)
    return new


def nothing_new_for_a_group_that_leaves(old: ClusterState, new: ClusterState) -> ClusterState:
    """No slot sets out for a leaving group, or is assigned to it. Raises GroupLeaving."""
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
        named = ranges.shortened(ranges.show(wrong))
        raise GroupLeaving(
            f"group {group_id} is on its way out and gets no slots ({named}); choose another group, or "
            f"have it stay: slotferry group drain {group_id} --cancel"
        )
    return new


def nothing_new_on_a_node_that_leaves(old: ClusterState, new: ClusterState) -> ClusterState:
    """No server comes into a group on a leaving node, neither a new one nor one from elsewhere. Raises NodeLeaving."""
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
    """No server is in a group and in the pool. Raises InPool."""
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
    """Servers that were in no group, or in another one, are ``unwatched``; those that are in none any more are not."""
    if new.table.groups is old.table.groups:
        return new
    came: set[str] = set()
    left: set[str] = set()
    for group_id in old.table.groups.keys() | new.table.groups.keys():
        before, after = old.table.groups.get(group_id), new.table.groups.get(group_id)
        if before is not after:
            were, are = (set(one.servers) if one is not None else set() for one in (before, after))
            came |= are - were
            left |= were - are
    if not came | left:
        return new
    fences = {**new.came, **dict.fromkeys(came, new.last_fence)} if new.fenced else new.came
    # A server that went from one group to another came.
    return replace(new, unwatched=(new.unwatched - left) | came, came=fences)


def data_is_known_while_slots_leave_it_empty(old: ClusterState, new: ClusterState) -> ClusterState:
    """A group's data id is forgotten once the group may have keys of slots that left it without their keys.

    Such a group is each one whose slots were taken offline. Once a slot is offline, the group that it came from is not
    known. So when it is assigned, every group but the new one counts. What was written to a server while it was in no
    group is not known either, though the server may still have its mark from when it was this group's master.
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


def only_replicas_join(old: ClusterState, new: ClusterState) -> ClusterState:
    """A server that is no replica of a group any more does not join one."""
    if not new.joining or (new.table.groups is old.table.groups and new.joining is old.joining):
        return new
    return joins.without(new, set())


def run_ids_of_known_servers(old: ClusterState, new: ClusterState) -> ClusterState:
    """The run ids of servers that are neither in a group nor in the pool are forgotten."""
    if new.table.groups is old.table.groups and new.pool is old.pool and new.run_ids is old.run_ids:
        return new
    known = set(known_servers(new))
    if known >= new.run_ids.keys():
        return new
    return replace(new, run_ids={address: one for address, one in new.run_ids.items() if address in known})


RULES: tuple[Rule, ...] = (
    no_more_than_a_store_holds,
    no_slot_for_a_server_that_is_swept,
    no_slot_changes_while_its_rules_do,
    no_slot_for_a_group_with_old_keys_of_it,
    nothing_new_for_a_group_that_leaves,
    nothing_new_on_a_node_that_leaves,
    in_a_group_or_in_the_pool,
    assigned_once,
    unwatched_since_they_came,
    data_is_known_while_slots_leave_it_empty,
    leftovers.noted,
    only_replicas_join,
    run_ids_of_known_servers,
    differing.kept,
)


def _nodes(table: SlotTable) -> dict[str, str]:
    return {server: group.node_of(server) for group in table.groups.values() for server in group.servers}
