"""Plans which parts of a Codis dump go into topom, and says why others do not. It is a pure function of the dump and of
topom's state.

**one-owner**: a slot is taken only if all its keys are known to be in one group, and only if topom has it in no other
group. So a dump that disagrees with topom changes nothing, and a dump that was already brought in has nothing left to
do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotferry.codis.dump import NUMBER_OF_SLOTS, SLOT_FUNCTION, CodisGroup, CodisSlot, Dump
from slots import ranges
from topom.cluster.topology import DATACENTER

UNDER_WAY = ("preparing", "prepared", "migrating")
"""States in which Codis is about to move a slot's keys, or moves them."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A part of the dump that is left out, and why."""

    what: str
    why: str


@dataclass
class Plan:
    """The steps, in their order, and the sentences to show.

    Attributes:
        groups: groups to make.
        servers: servers to add: group, address, datacenter; a group's master before its replicas.
        datacenters: datacenters to set, for servers that topom has: group, address, name.
        slots: slots to assign, by group.
        there: slots that topom already has in the right group.
        not_taken: parts of the dump that are left out.
        left: slots that have a group in Codis and are not taken. Clients can use them only after they are taken.
        conflicts: sentences about differences between topom and the dump; if there are any, nothing is done.
        notes: sentences about things to check.
    """

    groups: list[int] = field(default_factory=list)
    servers: list[tuple[int, str, str]] = field(default_factory=list)
    datacenters: list[tuple[int, str, str]] = field(default_factory=list)
    slots: dict[int, list[int]] = field(default_factory=dict)
    there: list[int] = field(default_factory=list)
    not_taken: list[NotTaken] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_import(dump: Dump, status: Mapping[str, Any], slots: Sequence[Mapping[str, Any]]) -> Plan:
    """Plan the steps that bring the dump into topom.

    Args:
        status: as ``GET /status`` gives it.
        slots: as ``GET /slots`` gives them.
    """
    plan = Plan()
    if (status["slot_function"], status["number_of_slots"]) != (SLOT_FUNCTION, NUMBER_OF_SLOTS):
        plan.conflicts.append(
            f"Codis has {NUMBER_OF_SLOTS} slots by {SLOT_FUNCTION}, and this topom {status['number_of_slots']} by "
            f"{status['slot_function']}, so keys would be looked for in other slots; start a topom with "
            f"number_of_slots = {NUMBER_OF_SLOTS} and slot_function = {SLOT_FUNCTION!r}"
        )
        return plan
    if status["slot_rules"]:
        plan.conflicts.append(
            "this topom has slot rules, and Codis has put every key where its hash tag says, so keys would be looked "
            "for in other slots; remove the rules ('slotferry rules list' shows them), and add them after the import"
        )
        return plan
    taken = _plan_groups(plan, dump.groups, status["groups"])
    _plan_slots(plan, dump.slots, taken, slots)
    _say_the_rest(plan, dump, status["product"])
    return plan


def _plan_groups(plan: Plan, groups: Iterable[CodisGroup], known: Iterable[Mapping[str, Any]]) -> dict[int, CodisGroup]:
    """Plan groups and servers; the groups that slots may be in."""
    servers_of = {one["id"]: {server["address"]: server["datacenter"] for server in one["servers"]} for one in known}
    group_of = {address: group_id for group_id, servers in servers_of.items() for address in servers}
    taken: dict[int, CodisGroup] = {}
    for group in groups:
        named = f"group {group.id}"
        if group.promoting:
            why = f"Codis is making another server its master ({group.promoting}); let it finish, and dump again"
            plan.not_taken.append(NotTaken(named, why))
            continue
        taken[group.id] = group
        there = servers_of.get(group.id)
        if there is None:
            plan.groups.append(group.id)
            there = {}
        if there and group.servers and next(iter(there)) != group.servers[0].address:
            plan.conflicts.append(
                f"the master of {named} is {group.servers[0].address} in Codis and {next(iter(there))} in topom"
            )
        for server in group.servers:
            elsewhere = group_of.get(server.address, group.id)
            if elsewhere != group.id:
                plan.conflicts.append(
                    f"server {server.address} is in {named} in Codis and in group {elsewhere} in topom"
                )
                continue
            _plan_server(plan, group.id, server.address, server.datacenter, there)
            if server.syncing:
                plan.notes.append(
                    f"{server.address} of {named}: Codis was making it a replica ({server.syncing}); see that it is"
                )
            if server.replica_reads:
                why = "proxies are told whether they read from replicas: their setting replica_reads"
                plan.not_taken.append(NotTaken(f"replica_group of {server.address}", why))
        extra = there.keys() - {server.address for server in group.servers}
        if extra:
            plan.notes.append(f"topom has more servers in {named} than Codis: {', '.join(sorted(extra))}; they stay")
        if group.out_of_sync and group.servers:
            plan.notes.append(
                f"{named} is marked out_of_sync in Codis; see that its proxies use {group.servers[0].address} as master"
            )
    return taken


def _plan_server(plan: Plan, group_id: int, address: str, datacenter: str, there: Mapping[str, str]) -> None:
    if not DATACENTER.fullmatch(datacenter):
        plan.not_taken.append(
            NotTaken(f"datacenter {datacenter!r} of {address}", "up to 64 letters, digits, dots, hyphens, underscores")
        )
        datacenter = ""
    if address not in there:
        plan.servers.append((group_id, address, datacenter))
    elif datacenter and not there[address]:
        plan.datacenters.append((group_id, address, datacenter))
    elif datacenter != there[address]:
        plan.notes.append(f"{address} is in datacenter {there[address]} in topom, and stays there")


def _plan_slots(
    plan: Plan, slots: Iterable[CodisSlot], groups: Mapping[int, CodisGroup], known: Sequence[Mapping[str, Any]]
) -> None:
    why_not: dict[str, list[int]] = {}
    moves: dict[int, list[int]] = {}
    conflicts: dict[tuple[str, str], list[int]] = {}
    for slot in slots:
        owner, reason = _owner(slot, groups)
        if slot.state == "pending":
            moves.setdefault(slot.target_id, []).append(slot.id)
        has = known[slot.id]
        if has["action"]:
            conflicts.setdefault((_in_group(owner), f"moving, from group {has['group_id']}"), []).append(slot.id)
        elif has["group_id"] and has["group_id"] != owner:
            where = f"being moved by Codis ({slot.state})" if slot.state in UNDER_WAY else _in_group(owner)
            conflicts.setdefault((where, _in_group(has["group_id"])), []).append(slot.id)
        elif reason:
            why_not.setdefault(reason, []).append(slot.id)
            plan.left.append(slot.id)
        elif has["group_id"]:
            plan.there.append(slot.id)
        elif owner:
            plan.slots.setdefault(owner, []).append(slot.id)
        else:
            why_not.setdefault("they have no group in Codis", []).append(slot.id)
    for (codis, topom), ids in conflicts.items():
        plan.conflicts.append(f"slots {ranges.show(ids)} are {codis} in Codis, and {topom} in topom")
    for reason, ids in why_not.items():
        plan.not_taken.append(NotTaken(f"slots {ranges.show(ids)}", reason))
    for target, ids in sorted(moves.items()):
        why = "Codis has not begun it, and they are taken where they are; plan it with 'slotferry slot move'"
        plan.not_taken.append(NotTaken(f"move of slots {ranges.show(ids)} to group {target}", why))


def _owner(slot: CodisSlot, groups: Mapping[int, CodisGroup]) -> tuple[int, str]:
    """The group that has all keys of a slot, 0 for none; and why the slot cannot be taken, empty if it can."""
    if slot.state in UNDER_WAY:
        return 0, f"Codis is moving them to group {slot.target_id} ({slot.state}); let it finish, and dump again"
    # In `finished`, all keys are at the target; Codis only has to write that down.
    owner = slot.target_id if slot.state == "finished" else slot.group_id
    if owner and owner not in groups:
        return 0, f"their group {owner} is not taken, or not in the dump"
    if owner and not groups[owner].servers:
        return 0, f"their group {owner} has no server"
    return owner, ""


def _in_group(group_id: int) -> str:
    return f"in group {group_id}" if group_id else "in no group that is taken"


def _say_the_rest(plan: Plan, dump: Dump, product: str) -> None:
    for proxy in dump.proxies:
        why = "it is Codis's: point its clients to a proxy of Slotferry, and stop it before slots move here"
        plan.not_taken.append(NotTaken(f"proxy {proxy.address} (administered at {proxy.admin})", why))
    for name in sorted({proxy.product for proxy in dump.proxies} - {"", product}):
        plan.notes.append(f"the product is {name} in Codis and {product} in topom; nothing depends on the name")
    for name in dump.others:
        plan.not_taken.append(NotTaken(f"{name} of the dump", "this version takes groups and slots only"))
