"""Groups and their servers."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import structlog
from fastapi import Depends, Query

from slots.group import Group
from slots.table import SlotTable
from topom.api import group_models as models
from topom.api import leaving_models
from topom.api.access import ServedTopom, refuse_body
from topom.api.routers import resource
from topom.cluster import topology
from topom.cluster.state import known_servers
from topom.errors import SentinelsDecide, ServersUnreachable, TakesNoWrites
from topom.leaving.groups import DRAINED
from topom.reasons import Kind, Reason
from topom.servers.detector import Condition
from topom.servers.edits import TableChange
from topom.servers.lastcopy import HoldsKeys
from topom.servers.readings import Reading
from topom.term.service import Topom

log = structlog.get_logger(__name__)

router = resource("/groups", "groups")

Why = Annotated[str, Query(max_length=200, description="Shown with it.")]


class Looked(NamedTuple):
    """What servers that will be in a group say: those that do not answer now, and how many keys the new master has."""

    silent: list[str]
    held: int


NOT_LOOKED = Looked([], 0)


async def describe(topom: Topom) -> list[models.Group]:
    """Every group with its servers' status, by id."""
    table = topom.ledger.table
    # Ask all servers together: otherwise each question would close the connections of the one before it.
    status = await topom.servers.status(known_servers(topom.ledger.state))
    return [describe_one(topom, table, group_id, status) for group_id in sorted(table.groups)]


def describe_one(topom: Topom, table: SlotTable, group_id: int, status: Mapping[str, Reading | None]) -> models.Group:
    """A group of a table.

    Args:
        status: what its servers have said, None for one that has not answered. One that is missing was not asked: it is
            up if it answers topom's other questions.
    """
    group = table.groups[group_id]
    return models.Group(
        id=group_id,
        servers=[_describe_server(topom, group, address, status) for address in group.servers],
        slots=len(table.by_group[group_id]),
        locked=group.locked,
        reason=_reason(topom, group),
    )


def _describe_server(topom: Topom, group: Group, address: str, status: Mapping[str, Reading | None]) -> models.Server:
    known = topom.leads()
    said = status.get(address)
    judged = topom.health.of(address)
    return models.Server(
        address=address,
        up=said is not None or (address not in status and topom.health.hears(address)),
        role=None if said is None else said.role,
        keys=None if said is None else said.keys,
        memory_bytes=None if said is None else said.used_memory,
        datacenter=group.datacenter_of(address),
        node=group.node_of(address),
        condition=judged.condition.value if known else "unknown",
        silent=judged.silent,
        views=judged.views,
        silent_since=_silent_since(topom, address) if known else None,
        lag_bytes=_lag(status.get(group.servers[0]), said),
        joining=address in topom.ledger.state.joining,
        not_used=topom.identities.conflict(address)
        or topom.differing.reason(address)
        or topom.sentinels.reason_known_otherwise(address),
        not_swept=topom.sweeps.reasons.get(address),
        not_whole=topom.joins.reasons.get(address)
        or topom.strays.reasons.get(address)
        or topom.promotions.endings.followers.reasons.get(address),
    )


def _silent_since(topom: Topom, address: str) -> float | None:
    if topom.health.condition_of(address) not in (Condition.SUSPECTED, Condition.FAILED):
        return None
    return round(time.time() - topom.health.silence(address))


def _lag(master: Reading | None, said: Reading | None) -> int | None:
    """How many bytes a replica is behind its master, which was asked at about the same time."""
    if master is None or said is None or said.replication.is_master:
        return None
    if said.replication.stream != master.replication.stream:
        return None
    return max(0, master.replication.offset - said.replication.offset)


def _reason(topom: Topom, group: Group) -> Reason | None:
    known = topom.masters.reasons.get(group.id)
    if known is None and topom.leads() and group.master is not None and topom.health.has_failed(group.master):
        since = time.time() - topom.health.silence(group.master)
        return topom.sentinels.reason_failed(group.id, since) or _nobody_replaces(topom, group, since)
    return known


def _nobody_replaces(topom: Topom, group: Group, since: float) -> Reason | None:
    """Why no other server takes the place of a failed master by itself, ever; None if one may."""
    if not group.replicas:
        what = "the group has no replica that could take its place"
        return Reason(Kind.SERVER, what, since, "start it again: nobody else has its keys")
    if topom.settings.ha == "off":
        to_do = (
            "start it again, or have a replica take its place, which loses what the master had not sent to it: "
            f"slotferry group promote {group.id} {group.replicas[0]} --force"
        )
        return Reason(Kind.OPERATOR, 'topom replaces no master by itself: its setting ha is "off"', since, to_do)
    return None


def describe_leaving(topom: Topom) -> list[leaving_models.Leaving]:
    """What leaves, in the order in which it began to leave."""
    entries = sorted(topom.ledger.state.leaving.values(), key=lambda entry: entry.since)
    waits_for = topom.server_departures.waits_for
    return [
        leaving_models.Leaving(kind=entry.kind, id=entry.id, why=entry.why, since=entry.since, reason=waits_for(entry))
        for entry in entries
    ]


@router.get("")
async def list_groups(topom: ServedTopom) -> models.Groups:
    """All groups, with the status of their servers."""
    epoch = topom.ledger.table.epoch
    return models.Groups(epoch=epoch, groups=await describe(topom))


@router.post("", status_code=201)
async def add_group(topom: ServedTopom, new: models.NewGroup) -> models.GroupChanged:
    """Make a group."""

    def add(table: SlotTable, epoch: int) -> SlotTable:
        return topology.add_group(table, epoch, new.id, new.servers, new.datacenter, new.node)

    _require_possible(topom, add)
    looked = await _look(topom, new.servers, new.servers[1:], new.wipe, new.offline_ok)
    run_ids = await topom.identities.admit(new.servers, new.servers[1:], new.id, new.wipe)
    strangers = await _strangers(topom, new.servers[:1])
    table = await topom.edits.edit(add, new.wipe, run_ids)
    return _changed(new.id, table, looked, strangers)


@router.delete("/{group_id}")
async def remove_group(topom: ServedTopom, group_id: int) -> models.Changed:
    """Remove a group that owns no slot and is no slot's target."""
    table = await topom.edits.edit(lambda table, epoch: topology.remove_group(table, epoch, group_id))
    return models.Changed(epoch=table.epoch)


@router.post("/{group_id}/drain", dependencies=[Depends(refuse_body)])
async def drain_group(topom: ServedTopom, group_id: int, why: Why = DRAINED) -> leaving_models.LeavingList:
    """Let a group leave: it gets nothing new, its slots move to the others, and then it is removed."""
    await topom.departures.drain(group_id, why)
    return leaving_models.LeavingList(leaving=describe_leaving(topom))


@router.delete("/{group_id}/drain")
async def keep_group(topom: ServedTopom, group_id: int) -> leaving_models.LeavingList:
    """Let a group stay after all. What has moved or is moving does not come back by itself."""
    await topom.departures.keep(group_id)
    return leaving_models.LeavingList(leaving=describe_leaving(topom))


@router.post("/{group_id}/servers", status_code=201)
async def add_server(topom: ServedTopom, group_id: int, new: models.NewServer) -> models.GroupChanged:
    """Add a server to a group: as its master if the group was empty, else as a replica, which the master fills."""

    def add(table: SlotTable, epoch: int) -> SlotTable:
        return topology.add_server(table, epoch, group_id, new.address, new.datacenter, new.node)

    _require_possible(topom, add)
    replicas = [new.address] if topology.group_of(topom.ledger.table, group_id).servers else []
    looked = await _look(topom, [new.address], replicas, new.wipe, new.offline_ok)
    run_ids = await topom.identities.admit([new.address], replicas, group_id, new.wipe)
    # Look before these keys are put aside.
    strangers = await _strangers(topom, [] if replicas else [new.address])
    table = await topom.edits.edit(add, new.wipe, run_ids)
    return _changed(group_id, table, looked, strangers)


@router.post("/{group_id}/promote")
async def promote(topom: ServedTopom, group_id: int, new: models.NewMaster) -> models.GroupChanged:
    """Make a replica the master of its group; nothing that was acknowledged is lost, unless by force."""
    if new.force and topom.settings.ha == "sentinel":
        raise SentinelsDecide(
            "Redis Sentinels say who replaces a master that is gone; have them do it, with SENTINEL FAILOVER"
        )
    if new.force:
        table = await topom.promotions.force(group_id, new.server)
    else:
        table = await topom.promotions.promote(group_id, new.server)
    return _changed(group_id, table)


@router.patch("/{group_id}/servers/{address}")
async def change_server(
    topom: ServedTopom, group_id: int, address: str, change: models.ServerChange
) -> models.GroupChanged:
    """Set in which datacenter a server is, and on which node."""
    table = await topom.edits.edit(
        lambda table, epoch: topology.set_place(table, epoch, group_id, address, change.datacenter, change.node)
    )
    return _changed(group_id, table)


@router.delete("/{group_id}/servers/{address}")
async def remove_server(topom: ServedTopom, group_id: int, address: str) -> models.GroupChanged:
    """Remove a server from a group. The master of a group that is in use must stay."""
    table = await topom.edits.edit(lambda table, epoch: topology.remove_server(table, epoch, group_id, address))
    return _changed(group_id, table)


@router.post("/{group_id}/servers/{address}/drain", dependencies=[Depends(refuse_body)])
async def drain_server(topom: ServedTopom, group_id: int, address: str, why: Why = DRAINED) -> models.GroupChanged:
    """Let a server leave: a replica is removed at once, a master once a replica has taken its place."""
    table = await topom.server_departures.drain(group_id, address, why)
    return _changed(group_id, table)


@router.delete("/{group_id}/servers/{address}/drain")
async def keep_server(topom: ServedTopom, group_id: int, address: str) -> models.GroupChanged:
    """Let a server stay after all. A master whose place was taken stays as a replica."""
    table = await topom.server_departures.keep(group_id, address)
    return _changed(group_id, table)


@router.post("/{group_id}/servers/{address}/sweep", dependencies=[Depends(refuse_body)])
async def sweep_server(topom: ServedTopom, group_id: int, address: str) -> models.ServerSwept:
    """Delete all keys of slots that other groups own from a group's master, whatever they are."""
    removed = await topom.sweeps.allow(group_id, address)
    return models.ServerSwept(id=group_id, server=address, removed=removed)


def _require_possible(topom: Topom, change: TableChange) -> None:
    """Raises what the change itself would, before any server is asked. It is made later, of the table that is then."""
    table = topom.ledger.table
    change(table, table.epoch + 1)


async def _look(topom: Topom, servers: Sequence[str], replicas: Sequence[str], wipe: bool, offline_ok: bool) -> Looked:
    """Look at servers that will be in a group, some of them as replicas.

    Raises:
        InvalidAddress: one is not the address of a server.
        NoRedisServer: a proxy, a Sentinel, a node of a Redis Cluster or another program answers at an address.
        ServersUnreachable: some do not answer now, and the operator did not say that they need not (``offline_ok``).
        HoldsKeys: a new replica is a master with keys of its own, and the operator did not say that it may be wiped. A
            server that does not answer now is checked again before it is filled.
        TakesNoWrites: the new master is a replica.
    """
    for address in servers:
        topology.parse_address(address)

    held = 0

    async def silence(address: str) -> ServersUnreachable | None:
        nonlocal held
        try:
            content = await topom.pool.content(address)
        except ServersUnreachable as error:
            return error
        if address in replicas and not wipe and content.keys and not content.following:
            raise HoldsKeys(
                f"{content.why_not_wipe(address)}; empty it first, or say that its keys may be lost (--wipe)"
            )
        if address not in replicas and content.following:
            raise TakesNoWrites(
                f"{address} is a replica of {content.following} and takes no writes, so it is no master of a group; "
                "name its master, or detach it first (redis-cli REPLICAOF NO ONE)"
            )
        if address not in replicas:
            held = content.keys
        return None

    found = await asyncio.gather(*(silence(address) for address in servers))
    silent = {address: error for address, error in zip(servers, found, strict=True) if error is not None}
    if silent and not offline_ok:
        whats, to_dos = [
            dict.fromkeys(said) for said in zip(*((e.what, e.to_do) for e in silent.values()), strict=True)
        ]
        raise ServersUnreachable(
            "; ".join(whats), f"{'; '.join(to_dos)}; or say that it may be added as it is (--offline-ok)"
        )
    return Looked(list(silent), held)


async def _strangers(topom: Topom, masters: Sequence[str]) -> list[str]:
    """Keys that others have put at new masters under Slotferry's own names. The log tells of them, too."""
    found = []
    for master in masters:
        names = [name.decode() for name in await topom.servers.strangers(master)]
        if names:
            log.warning("own_names_in_use", server=master, names=", ".join(names))
        found += names
    return found


def _changed(
    group_id: int, table: SlotTable, looked: Looked = NOT_LOOKED, strangers: Sequence[str] = ()
) -> models.GroupChanged:
    owned_elsewhere = any(slots for owner, slots in table.by_group.items() if owner != group_id)
    return models.GroupChanged(
        epoch=table.epoch,
        id=group_id,
        servers=list(table.groups[group_id].servers),
        silent=looked.silent,
        strangers=list(strangers),
        keys_held=looked.held if owned_elsewhere else 0,
    )
