"""The operations on groups, servers and slots: pure functions from one slot table to the next.

Each takes the table as it is and the ``epoch`` that the outcome would have. It returns the new table, or the very same
object when there is nothing to change. Nothing here waits, stores or tells anybody. The ledger runs these functions one
at a time against what is stored. So two operators, or an operator and a running batch, never work from the same table
(**epochs**).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from slots import ranges
from slots.address import AddressError, split
from slots.group import Group
from slots.slot import OFFLINE, Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.errors import (
    GroupEmpty,
    GroupExists,
    GroupInUse,
    GroupLocked,
    GroupNotFound,
    InvalidAddress,
    InvalidDatacenter,
    InvalidGroup,
    InvalidNode,
    InvalidSlots,
    ServerInUse,
    ServerNotFound,
    SlotsInAction,
    SlotsOffline,
    SlotsOwned,
)

MAXIMUM_GROUP_ID = 9999
DATACENTER = re.compile(r"[A-Za-z0-9._-]{0,64}")
NODE = re.compile(r"[A-Za-z0-9._:-]{0,64}")
"""The host of an address can be the name of a node, also an IPv6 one."""


@dataclass(frozen=True, slots=True)
class Move:
    """One slot's way from ``source`` (a group id, :data:`OFFLINE` for a slot without an owner) to group ``target``."""

    slot: int
    source: int
    target: int

    def to_wire(self) -> dict[str, int]:
        """``{"slot", "from", "to"}``."""
        return {"slot": self.slot, "from": self.source, "to": self.target}


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` (an IPv6 host in square brackets). Raises :class:`InvalidAddress`."""
    try:
        return split(address, lowest_port=1)
    except AddressError as error:
        raise InvalidAddress(str(error)) from None


def leads_elsewhere(address: str, reader: str) -> str:
    """Why an address would lead the server at ``reader`` to itself, or to its own machine; empty if it does not.

    A server hears of another one by its address, and each reader takes 127.0.0.1 for its own machine.
    """
    if not is_loopback(address) or is_loopback(reader):
        return ""
    return (
        f"{address} would lead {reader} to its own machine, if it is told to follow that; give {address} by an address "
        "that the others reach"
    )


def is_loopback(address: str) -> bool:
    """Whether an address leads every reader to its own machine."""
    host, _ = parse_address(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # The system reads 127.1 as an address, too.
        return host.rstrip(".").lower() == "localhost" or re.fullmatch(r"127(\.\d+)+", host, re.ASCII) is not None


def parse_slots(text: str, number_of_slots: int) -> list[int]:
    """Slots that an operator wrote as ranges, ascending. Raises :class:`InvalidSlots`."""
    try:
        return ranges.parse(text, number_of_slots)
    except ranges.RangeError as error:
        raise InvalidSlots(str(error)) from error


def changed_slots(old: SlotTable, new: SlotTable) -> list[int]:
    """Ids of the slots that differ between two tables, ascending."""
    return [after.id for before, after in zip(old.slots, new.slots, strict=True) if before is not after]


def all_servers(table: SlotTable) -> list[str]:
    """Every server of every group."""
    return [server for group in table.groups.values() for server in group.servers]


def group_of(table: SlotTable, group_id: int) -> Group:
    """The group of that id. Raises :class:`GroupNotFound`."""
    group = table.groups.get(group_id)
    if group is None:
        known = f"there are {ranges.show(sorted(table.groups))}" if table.groups else "add one first"
        raise GroupNotFound(f"there is no group {group_id}; {known}")
    return group


def add_group(
    table: SlotTable, epoch: int, group_id: int, servers: Sequence[str] = (), datacenter: str = "", node: str = ""
) -> SlotTable:
    """A new group with these servers, the master first, all in one datacenter and, if it is named, on one node."""
    if not 1 <= group_id <= MAXIMUM_GROUP_ID:
        raise InvalidGroup(f"{group_id} is not a group id; take one from 1 to {MAXIMUM_GROUP_ID}")
    if group_id in table.groups:
        raise GroupExists(f"group {group_id} exists already; add servers to it, or take another id")
    table = table.changed(epoch, groups=[Group(group_id)])
    for server in servers:
        table = _with_server(table, epoch, group_id, server, datacenter, node)
    return table


def remove_group(table: SlotTable, epoch: int, group_id: int) -> SlotTable:
    """The table without a group that owns nothing and is the target of nothing."""
    group_of(table, group_id)
    _require_unlocked(table, group_id)
    _require_unused(table, group_id, "removed")
    return table.changed(epoch, removed_groups=[group_id])


def add_server(
    table: SlotTable, epoch: int, group_id: int, address: str, datacenter: str = "", node: str = ""
) -> SlotTable:
    """A server at the end of a group: its master when the group was empty, else a replica."""
    group_of(table, group_id)
    return _with_server(table, epoch, group_id, address, datacenter, node)


def set_datacenter(table: SlotTable, epoch: int, group_id: int, address: str, datacenter: str) -> SlotTable:
    """The table in which a server is in a datacenter; an empty name takes back what was said."""
    return set_place(table, epoch, group_id, address, datacenter, None)


def set_place(
    table: SlotTable, epoch: int, group_id: int, address: str, datacenter: str | None, node: str | None
) -> SlotTable:
    """The table in which a server is in a datacenter and on a node. None leaves either as it is; "" takes it back."""
    new = group = _group_with(table, group_id, address)
    if datacenter is not None:
        new = _in_datacenter(new, address, datacenter)
    if node is not None:
        new = _on_node(new, address, node)
    return table if new == group else table.changed(epoch, groups=[new])


def remove_server(table: SlotTable, epoch: int, group_id: int, address: str) -> SlotTable:
    """The table without this server.

    The master of a group that is in use stays, for nobody else has its data. A master with replicas stays, too: the
    table would name the first replica the master, and a replica takes no writes.
    """
    group = _group_with(table, group_id, address)
    _require_unlocked(table, group_id)
    if address == group.master:
        using = _users(table, group_id)
        if using:
            raise ServerInUse(
                f"{address} is the master of group {group_id}, which {ranges.that(using, 'needs', 'need')}; have a "
                f"replica take its place (slotferry server drain {address}), or move them to another group first"
            )
        if group.replicas:
            raise ServerInUse(
                f"{address} is the master of group {group_id}, and {', '.join(group.replicas)} follow it and take no "
                f"writes; have one take its place (slotferry server drain {address}), or remove these "
                f"first, or the whole group (slotferry group remove {group_id})"
            )
    placeless = _on_node(_in_datacenter(group, address, ""), address, "")
    without = replace(placeless, servers=tuple(server for server in group.servers if server != address))
    return table.changed(epoch, groups=[without])


def lock_group(table: SlotTable, epoch: int, group_id: int, lost: bool = False) -> SlotTable:
    """A group locked, so that another of its servers can become its master. None of its slots may be in motion.

    If the master is ``lost``, slots may be in motion, for then nobody waits for replies that it owes.
    """
    _require_unlocked(table, group_id)
    if not lost:
        _require_rest(table.slots[slot] for slot in _users(table, group_id))
    return table.changed(epoch, groups=[replace(group_of(table, group_id), locked=True, lost=lost)])


def unlock_group(table: SlotTable, epoch: int, group_id: int) -> SlotTable:
    """A group unlocked, its master the one that it has."""
    group = group_of(table, group_id)
    return table.changed(epoch, groups=[replace(group, locked=False, lost=False)]) if group.locked else table


def promote(table: SlotTable, epoch: int, group_id: int, address: str) -> SlotTable:
    """A replica made its group's master, in front of the former one, and the group unlocked.

    The caller makes sure that the servers agree, and that no proxy uses the former master.
    """
    group = _group_with(table, group_id, address)
    if address == group.master:
        return unlock_group(table, epoch, group_id)
    servers = (address, *(server for server in group.servers if server != address))
    in_action = _with_other_master(table.slots, group_id, epoch)
    return table.changed(epoch, in_action, [replace(group, servers=servers, locked=False, lost=False)])


def _with_other_master(slots: Iterable[Slot], group_id: int, epoch: int) -> list[Slot]:
    """The slots among these that are on their way from or to a group that gets another master."""
    return _changed(
        (
            slot
            for slot in slots
            if slot.action is not None
            and slot.action.state is not SlotState.PENDING
            and group_id in (slot.group_id, slot.action.target_id)
        ),
        lambda slot: slot.with_other_master(group_id, epoch),
    )


def assign(table: SlotTable, epoch: int, slots: Iterable[int], group_id: int) -> SlotTable:
    """Offline slots given to a group at once. The caller makes sure that no proxy uses a former owner."""
    chosen = [table.slots[slot] for slot in slots]
    _require_servers(table, group_id)
    owned = [
        slot.id for slot in chosen if slot.group_id != OFFLINE and (slot.group_id, slot.action) != (group_id, None)
    ]
    if owned:
        raise SlotsOwned(f"{ranges.that(owned, 'has an owner', 'have an owner')}; move instead, or take offline first")
    _require_rest(chosen)
    return with_slots(table, epoch, [slot.assign(group_id) for slot in chosen])


def move(table: SlotTable, epoch: int, slots: Iterable[int], group_id: int) -> SlotTable:
    """Slots put on their way to a group. A slot that only waits to be moved gets the new target, or comes to rest."""
    chosen = [table.slots[slot] for slot in slots]
    _require_servers(table, group_id)
    offline_ids = [slot.id for slot in chosen if slot.group_id == OFFLINE]
    if offline_ids:
        raise SlotsOffline(f"{ranges.that(offline_ids, 'is', 'are')} offline; assign instead")
    _require_rest(slot for slot in chosen if slot.action is not None and slot.destination_id != group_id)
    other = (slot for slot in chosen if slot.action is None or slot.destination_id != group_id)
    return with_slots(table, epoch, _changed(other, lambda slot: slot.send(group_id)))


def offline(table: SlotTable, epoch: int, slots: Iterable[int]) -> SlotTable:
    """Slots taken from their group: their keys stay where they are, and nobody serves them."""
    chosen = [table.slots[slot] for slot in slots]
    _require_rest(chosen)
    return with_slots(table, epoch, [slot.take_offline() for slot in chosen])


def apply_moves(table: SlotTable, epoch: int, moves: Iterable[Move]) -> SlotTable:
    """A planner's moves as pending actions. An offline slot gets one too: it passes the barrier as the others do."""
    return with_slots(table, epoch, [table.slots[one.slot].send(one.target) for one in moves])


def begin(
    table: SlotTable,
    epoch: int,
    slots: Iterable[int],
    min_replicas: int = 0,
    source_run_id: str = "",
    target_run_id: str = "",
    copy: str = "",
) -> SlotTable:
    """Pending slots put in ``preparing``, or with a copy in ``copying``; the rest is as in
    :class:`slots.slot.Action`. Raises as :func:`advance`."""
    chosen = _in_state(table, slots, SlotState.PENDING)
    _require_unlocked_ends(table, chosen)
    return with_slots(
        table, epoch, _changed(chosen, lambda slot: slot.begin(epoch, min_replicas, source_run_id, target_run_id, copy))
    )


def begin_anew(table: SlotTable, epoch: int, slots: Iterable[int], before: SlotState) -> SlotTable:
    """Slots in state ``before``, up to ``preparing``, put back to ``pending``. No key of theirs has moved. Raises as
    :func:`advance`."""
    chosen = _in_state(table, slots, before)
    return with_slots(table, epoch, _changed(chosen, Slot.begin_anew))


def advance(table: SlotTable, epoch: int, slots: Iterable[int], before: SlotState, after: SlotState) -> SlotTable:
    """Slots whose actions are all in state ``before``, put in state ``after``.

    Raises:
        SlotsInAction: when a slot is in another state, so that a step that came too late changes nothing.
        SlotStateError: on this course a slot cannot go from ``before`` to ``after``.
        GroupLocked: for a lock, when a server of one of the groups is being made its master.
    """
    chosen = _in_state(table, slots, before)
    if after is SlotState.PREPARED:
        _require_unlocked_ends(table, chosen)
    return with_slots(table, epoch, _changed(chosen, lambda slot: slot.advance(after)))


def come_to_rest(table: SlotTable, epoch: int, slots: Iterable[int]) -> SlotTable:
    """Finished slots come to rest at their target. Raises :class:`SlotsInAction` as :func:`advance` does."""
    return with_slots(table, epoch, [slot.come_to_rest() for slot in _in_state(table, slots, SlotState.FINISHED)])


def turn(table: SlotTable, epoch: int, slots: Iterable[int]) -> SlotTable:
    """Migrating slots that are to be turned round, locked for that, with source and target exchanged.

    Raises:
        SlotsInAction, GroupLocked: as :func:`advance` does; SlotsInAction also for slots that nobody cancelled.
    """
    chosen = _in_state(table, slots, SlotState.MIGRATING)
    _require_unlocked_ends(table, chosen)
    for slot in chosen:
        if slot.action is None or slot.action.course is not Course.TURNING:
            raise SlotsInAction(f"slot {slot.id} is not being cancelled")
    return with_slots(table, epoch, _changed(chosen, lambda slot: slot.turn(epoch)))


def unlock(table: SlotTable, epoch: int, slots: Iterable[int]) -> SlotTable:
    """Locked slots as they were before the lock: in ``preparing``, or, to be turned round, in ``migrating``.

    Raises:
        SlotsInAction: as :func:`advance` does.
    """
    chosen = _in_state(table, slots, SlotState.PREPARED)
    return with_slots(table, epoch, _changed(chosen, lambda slot: slot.unlock(epoch)))


def unlock_all(table: SlotTable, epoch: int) -> SlotTable:
    """Every locked slot unlocked, and a change of the slot rules taken back: for a topom that starts and does not know
    who acknowledged."""
    if table.coming is not None:
        table = replace(table, unknown=(), coming=None)
    locked = [slot.id for slot in table.slots if slot.action is not None and slot.action.state == SlotState.PREPARED]
    return unlock(table, epoch, locked)


def _in_state(table: SlotTable, slots: Iterable[int], state: SlotState) -> list[Slot]:
    chosen = [table.slots[slot] for slot in slots]
    wrong = [slot.id for slot in chosen if slot.action is None or slot.action.state != state]
    if wrong:
        raise SlotsInAction(f"{ranges.that(wrong, 'is', 'are')} not in state {state}; the action went on without this")
    return chosen


def _changed(slots: Iterable[Slot], change: Callable[[Slot], Slot]) -> list[Slot]:
    """Each of these slots as ``change`` makes it. Slots that change in the same way go on sharing an action."""
    known: dict[tuple[int, Action | None], Slot] = {}
    new: list[Slot] = []
    before: Slot | None = None
    after: Slot | None = None
    for slot in slots:
        # Neighbours mostly share one action; comparing that costs less than hashing it.
        if before is None or slot.group_id != before.group_id or slot.action is not before.action:
            after = known.get((slot.group_id, slot.action))
            if after is None:
                after = known[slot.group_id, slot.action] = change(slot)
        assert after is not None
        new.append(after.numbered(slot.id))
        before = slot
    return new


def with_slots(table: SlotTable, epoch: int, new: Iterable[Slot]) -> SlotTable:
    """The table with these slots in it; the same object if they are in it already."""
    different = [slot for slot in new if slot != table.slots[slot.id]]
    return table.changed(epoch, different) if different else table


def _group_with(table: SlotTable, group_id: int, address: str) -> Group:
    group = group_of(table, group_id)
    if address not in group.servers:
        raise ServerNotFound(f"group {group_id} has no server {address}; it has {', '.join(group.servers) or 'none'}")
    return group


def require_place(datacenter: str, node: str) -> None:
    """Raise :class:`InvalidDatacenter` or :class:`InvalidNode` for a name that is not allowed.

    An empty name means none.
    """
    if not DATACENTER.fullmatch(datacenter):
        raise InvalidDatacenter(
            f"{datacenter!r} is no name for a datacenter; take up to 64 letters, digits, dots, hyphens and underscores"
        )
    if not NODE.fullmatch(node):
        raise InvalidNode(
            f"{node!r} is no name for a node; take up to 64 letters, digits, dots, colons, hyphens and underscores"
        )


def _in_datacenter(group: Group, address: str, datacenter: str) -> Group:
    require_place(datacenter, "")
    named = {server: name for server, name in group.datacenters.items() if server != address}
    return replace(group, datacenters={**named, address: datacenter} if datacenter else named)


def _on_node(group: Group, address: str, node: str) -> Group:
    require_place("", node)
    named = {server: name for server, name in group.nodes.items() if server != address}
    return replace(group, nodes={**named, address: node} if node else named)


def _with_server(table: SlotTable, epoch: int, group_id: int, address: str, datacenter: str, node: str) -> SlotTable:
    parse_address(address)
    for other in table.groups.values():
        if address in other.servers:
            raise ServerInUse(f"{address} belongs to group {other.id} already; remove it there first")
    # A table's epoch has to grow with each change; a group and its servers are one change to the caller.
    group = table.groups[group_id]
    group = _in_datacenter(replace(group, servers=(*group.servers, address)), address, datacenter)
    group = _on_node(group, address, node)
    if wrong := leads_elsewhere(group.servers[0], address):
        raise InvalidAddress(wrong)
    return replace(table, epoch=epoch, groups={**table.groups, group_id: group})


def _users(table: SlotTable, group_id: int) -> list[int]:
    """Slots that a group owns, or that are on their way to or from it."""
    return [
        slot.id
        for slot in table.slots
        if slot.group_id == group_id or (slot.action is not None and slot.action.target_id == group_id)
    ]


def _require_unused(table: SlotTable, group_id: int, what: str) -> None:
    using = _users(table, group_id)
    if using:
        raise GroupInUse(
            f"group {group_id} cannot be {what}: {ranges.that(using, 'is', 'are')} in it or on the way to it; "
            f"move what is there to another group first, as slotferry rebalance --drain {group_id} does"
        )


def _require_unlocked(table: SlotTable, group_id: int) -> None:
    """A locked group's servers and slots stay as they are until it is decided who its master is."""
    group = table.groups.get(group_id)
    if group is not None and group.locked:
        raise GroupLocked(f"a server of group {group_id} is being made its master; try again in a moment")


def _require_unlocked_ends(table: SlotTable, slots: Iterable[Slot]) -> None:
    """**drained**: nobody waits for replies of a lost master, so a lock of its group's slots would prove nothing."""
    ends = {id for slot in slots for id in (slot.group_id, slot.action.target_id if slot.action else slot.group_id)}
    for group_id in ends:
        _require_unlocked(table, group_id)


def _require_servers(table: SlotTable, group_id: int) -> None:
    if not group_of(table, group_id).servers:
        raise GroupEmpty(f"group {group_id} has no server; add one first")


def _require_rest(slots: Iterable[Slot]) -> None:
    """Raise for slots that proxies may know to be in motion. No proxy knows of a pending one, so that may change."""
    busy = [slot.id for slot in slots if slot.action is not None and slot.action.state != SlotState.PENDING]
    if busy:
        raise SlotsInAction(f"{ranges.that(busy, 'is', 'are')} being moved; wait until that is done")
