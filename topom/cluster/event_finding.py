"""Which events a change is told by: found by comparing the state before it with the state after it.

The code that makes a change does not have to think of its events, so none is forgotten. The comparison tells a change
that it has no special event for as ``state_changed``. A test looks at every field of the state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from slots import ranges
from slots.group import Group
from slots.slot import OFFLINE, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from topom.cluster import fences
from topom.cluster.events import MOST_TEXT, NAMED_BY, Event, Said, What, shortened
from topom.cluster.state import ClusterState, Leaving

MOST_EVENTS = 32
"""Events of one change; the last one says how many more there were."""
MOST_NAMED = 8
"""Servers that the event of a fence names."""
MOST_DROPPED = 256
"""The most old events that one change drops. Their documents leave the store by the same write, which has a limit."""

UNTOLD = frozenset(
    {
        "version",
        "next_proxy_id",
        "moved",
        "departures",
        "speed",
        "promotions",
        "events",
        "assigned",
        "joining",
        "priorities",
        "data_ids",
        "sweeping",
        "leftovers",
        "term",
        "differing",
        "last_plan",
        "offline_since",
        "users_version",
        "offsets",
        "unwatched",
        "fenced",
        "marked",
        "last_fence",
        "came",
        "run_ids",
        "cluster_id",
        "starts",
        "older",
    }
)
"""Fields of the state that get no event of their own: they change along with others, or nobody's step changes them.

The events about them come from elsewhere. The writer and its term are told when another topom takes the lead. A fence
is told with its proxy, and with the servers where it is up. A promotion is told by the events of its group, which is
locked, gets another master and is unlocked. A server that joins is told when it is added, or by
:mod:`topom.copies.strays` when it joins again, and by :mod:`topom.copies.joining` when it is whole.
:mod:`topom.servers.identities` tells that two addresses lead to one server. :mod:`topom.copies.digests` tells what
becomes of replicas that differ. A plan is told by :mod:`topom.balance.rebalancing`.
"""

_OF_STATE = {
    SlotState.PENDING: (What.SLOTS_PENDING, "wait to move"),
    SlotState.COPYING: (What.SLOTS_COPYING, "are being copied, to move"),
    SlotState.PREPARING: (What.SLOTS_PREPARING, "are about to be locked, to move"),
    SlotState.PREPARED: (What.SLOTS_LOCKED, "are locked, to move"),
    SlotState.MIGRATING: (What.SLOTS_MOVING, "are being moved, with their keys,"),
    SlotState.FINISHED: (What.SLOTS_FINISHED, "have all their keys moved"),
}


def recorded(
    old: ClusterState | None,
    new: ClusterState,
    who: str,
    at: float,
    kept: int,
    said: Sequence[Said] = (),
    url: str = "",
) -> ClusterState:
    """``new`` with the events of the change from ``old`` added to those that ``old`` has.

    Args:
        old: None for a store that was empty.
        at: now, in seconds since 1970, UTC.
        kept: how many events are kept; the oldest are dropped, at most :data:`MOST_DROPPED` at a time.
        said: further events of this change, in front of those that are found.
        url: of the topom that writes.
    """
    found = [*said, *tell(old, new, url)]
    if len(found) > MOST_EVENTS:
        rest = len(found) - MOST_EVENTS + 1
        found[MOST_EVENTS - 1 :] = [Said(What.STATE_CHANGED, f"and {rest} more things changed at the same time")]
    before = old.events if old else ()
    last = before[-1].id if before else 0
    epochs = (old.table.epoch if old else 0, new.table.epoch)
    added = tuple(
        Event(last + place, round(one.at or at, 3), who, one.what, shortened(one.text, MOST_TEXT), *epochs, one.reason)
        for place, one in enumerate(found, 1)
    )
    events = before + added
    return replace(new, events=events[min(MOST_DROPPED, max(0, len(events) - kept)) :] if added else before)


def tell(old: ClusterState | None, new: ClusterState, url: str = "") -> Iterator[Said]:
    """What happened between two states, in the order in which an operator would tell it."""
    if old is None or old.writer != new.writer:
        named = f"topom {new.writer[:NAMED_BY]}{f' at {url}' if url else ''}"
        if new.term:
            yield Said(What.TOPOM_LEADS, f"{named} leads in term {new.term}")
        else:
            yield Said(What.TOPOM_STARTED, f"{named} started and took the store's lead")
    if old is None:
        return
    for name, teller in _TELLERS.items():
        if getattr(old, name) is not getattr(new, name):
            yield from teller(old, new)
    if old.fenced is not new.fenced or old.marked is not new.marked:
        yield from _cut_off(old, new)
    for field in fields(ClusterState):
        if field.name in UNTOLD or field.name in _TELLERS or field.name == "writer":
            continue
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before is not after and before != after:
            yield Said(What.STATE_CHANGED, f"{field.name.replace('_', ' ')} changed")


def _table(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    yield from _groups(old.table.groups, new.table.groups)
    yield from _slots(old.table, new.table)


def _groups(old: Mapping[int, Group], new: Mapping[int, Group]) -> Iterator[Said]:
    for group_id in sorted(old.keys() | new.keys()):
        before, after = old.get(group_id), new.get(group_id)
        if before is None:
            assert after is not None
            servers = f"with {', '.join(after.servers)}" if after.servers else "without servers"
            yield Said(What.GROUP_ADDED, f"group {group_id} was added, {servers}")
        elif after is None:
            yield Said(What.GROUP_REMOVED, f"group {group_id} was removed")
        elif before != after:
            yield from _group(before, after)


def _group(before: Group, after: Group) -> Iterator[Said]:
    for server in after.servers:
        if server not in before.servers:
            yield Said(What.SERVER_ADDED, f"server {server} was added to group {after.id}")
    for server in before.servers:
        if server not in after.servers:
            yield Said(What.SERVER_REMOVED, f"server {server} was removed from group {after.id}")
    if before.master and before.master != after.master:
        text = f"the master of group {after.id} is {after.master or 'nobody'}, and was {before.master}"
        yield Said(What.MASTER_CHANGED, text)
    if before.locked != after.locked:
        if after.locked:
            why = "its master has failed" if after.lost else "another server is to be its master"
            yield Said(What.GROUP_LOCKED, f"group {after.id} was locked, for {why}")
        else:
            yield Said(What.GROUP_UNLOCKED, f"group {after.id} was unlocked; its master is {after.master}")
    for server in after.servers:
        if server in before.servers and before.datacenter_of(server) != after.datacenter_of(server):
            where = after.datacenter_of(server)
            text = f"server {server} of group {after.id} is in {f'datacenter {where}' if where else 'no datacenter'}"
            yield Said(What.SERVER_CHANGED, text)
        if server in before.servers and before.node_of(server) != after.node_of(server):
            yield Said(What.SERVER_CHANGED, f"server {server} of group {after.id} is on node {after.node_of(server)}")


def _slots(old: SlotTable, new: SlotTable) -> Iterator[Said]:
    together: dict[tuple[What, str], dict[tuple[int, int], list[int]]] = {}
    for before, after in zip(old.slots, new.slots, strict=True):
        if before is not after and before != after:
            action = after.action or before.action
            way = (before.group_id if after.action is None else after.group_id, action.target_id if action else 0)
            together.setdefault(_kind(before, after), {}).setdefault(way, []).append(after.id)
    for (what, verb), ways in together.items():
        text = "; ".join(_way(what, way, slots, verb) for way, slots in ways.items())
        yield Said(what, text)


def _kind(before: Slot, after: Slot) -> tuple[What, str]:
    """The kind of event, and what happened to the slot, in words."""
    was, now = before.action, after.action
    if now is None:
        if was is None:
            offline = after.group_id == OFFLINE
            return (What.SLOTS_OFFLINE, "are offline") if offline else (What.SLOTS_ASSIGNED, f"{after.group_id}")
        if was.state is SlotState.FINISHED:
            return What.SLOTS_MOVED, "are at rest, moved"
        return What.SLOTS_CANCELLED, "stay where they are, and do not move"
    if was is not None:
        if now.course is Course.TURNING and was.course is Course.FORWARD:
            return What.SLOTS_CANCELLED, "are to go back, having been on their way"
        # This lock is given up. After a lock that held, the slot gets another owner.
        given_up = now.state is SlotState.PREPARING or now.course is Course.TURNING
        if was.state is SlotState.PREPARED and given_up:
            return What.SLOTS_UNLOCKED, "are unlocked again, and still to move"
    what, verb = _OF_STATE[now.state]
    return what, f"{verb} back" if now.course is Course.BACK else verb


def _way(what: What, way: tuple[int, int], slots: Sequence[int], verb: str) -> str:
    source, target = way
    named = f"slots {ranges.show(slots)}"
    if len(named) > MOST_TEXT // 4:
        named = f"{len(slots)} slots ({shortened(named.removeprefix('slots '), MOST_TEXT // 4)})"
    if what is What.SLOTS_ASSIGNED:
        return f"{named} were assigned to group {verb}"
    if what is What.SLOTS_OFFLINE:
        return f"{named} {verb}; they were in group {source}"
    if source == OFFLINE:
        return f"{named} {verb} to group {target}, having been offline"
    return f"{named} {verb} from group {source} to group {target}"


def _proxies(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    for proxy_id in sorted(old.proxies.keys() | new.proxies.keys()):
        before, after = old.proxies.get(proxy_id), new.proxies.get(proxy_id)
        if after is None:
            assert before is not None
            named = f"proxy {proxy_id} ({before.address} on {before.hostname})"
            if before.instance in new.fenced:
                yield Said(What.PROXY_FENCED, f"{named} is no member any more, and to be cut off the servers")
            else:
                yield Said(What.PROXY_LEFT, f"{named} has left; it had nothing under way")
        elif before != after:
            named = f"proxy {proxy_id} ({after.address} on {after.hostname}, process {after.pid})"
            if before is not None and replace(before, stand_down=after.stand_down) == after:
                continue
            if before is not None and replace(before, draining=True) == after:
                yield Said(What.PROXY_DRAINS, f"{named} lets its clients go, and then leaves")
                continue
            yield Said(What.PROXY_REGISTERED, f"{named} {'registered' if before is None else 'came back changed'}")


def _cut_off(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    # A fence that is up everywhere is forgotten at once. When all are, the marks of the servers are forgotten, too.
    everywhere = frozenset(server for group in new.table.groups.values() for server in group.servers)
    for instance, entry in old.fenced.items():
        after = fences.cut_off(new, entry) if instance in new.fenced else everywhere
        servers = sorted(after - fences.cut_off(old, entry))
        if servers:
            more = f" and {len(servers) - MOST_NAMED} more" if len(servers) > MOST_NAMED else ""
            yield Said(What.PROXY_CUT_OFF, f"proxy {entry.proxy_id} is cut off {', '.join(servers[:MOST_NAMED])}{more}")


def _migration(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    before, after = old.migration_changes, new.migration_changes
    changed = [name for name in after if name not in before or before[name] != after[name]]
    changes = [_setting(name, after[name]) for name in changed] + [
        f"{name} is as configured" for name in before if name not in after
    ]
    if changes:
        yield Said(What.MIGRATION_SET, ", ".join(changes))


def _setting(name: str, value: object) -> str:
    if name == "paused":
        return "moving is paused" if value else "moving is resumed"
    return f"{name} = {value!r}"


def _skipped(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    skipped = [slot for slot in new.skipped if slot not in old.skipped]
    # Slots whose action is over have the event of its end.
    retried = [slot for slot in old.skipped if slot not in new.skipped and new.table.slots[slot].action is not None]
    if skipped:
        yield Said(What.SLOTS_SKIPPED, f"slots {ranges.show(skipped)} step aside until they are retried")
    if retried:
        yield Said(What.SLOTS_RETRIED, f"slots {ranges.show(retried)} are tried again")


def _leaving(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    for key in sorted(old.leaving.keys() | new.leaving.keys()):
        before, after = old.leaving.get(key), new.leaving.get(key)
        if before is None and after is not None:
            why = f": {after.why}" if after.why else ""
            yield Said(What.LEAVING, f"{after.kind} {after.id} is on its way out{why}")
        elif after is None and before is not None:
            if _is_gone(before, new.table):
                yield Said(What.LEFT, f"{before.kind} {before.id} has left")
            else:
                yield Said(What.STAYING, f"{before.kind} {before.id} stays; it is not on its way out any more")


def _is_gone(leaving: Leaving, table: SlotTable) -> bool:
    """Whether what was on its way out is in the table no more."""
    if leaving.kind == "group":
        return int(leaving.id) not in table.groups
    groups = table.groups.values()
    if leaving.kind == "server":
        return all(leaving.id not in group.servers for group in groups)
    return leaving.id not in {group.node_of(server) for group in groups for server in group.servers}


def _pool(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    for address in sorted(old.pool.keys() | new.pool.keys()):
        before, after = old.pool.get(address), new.pool.get(address)
        if before is None and after is not None:
            yield Said(What.POOL_ADDED, f"server {address} was added to the pool, on node {after.node_name}")
        elif after is None:
            yield Said(What.POOL_REMOVED, f"server {address} was removed from the pool")
        elif before != after:
            yield Said(What.POOL_CHANGED, f"server {address} of the pool was changed; it is on node {after.node_name}")


def _placement(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    before, after = old.placement, new.placement
    if before.auto != after.auto:
        yield Said(What.PLACEMENT_AUTO, f"placement is {'' if after.auto else 'not '}applied by itself from now on")
    if before.run is not None and after.run is None:
        undone = sum(not step.over for step in before.run.steps)
        not_done = sum(step.state == "dropped" for step in before.run.steps)
        how = f"was cancelled, with {undone} steps not done" if undone else f"is over; {not_done} steps were not done"
        yield Said(What.PLACEMENT_ENDED, f"the placement of {len(before.run.steps)} steps {how}")
    elif before.run is None and after.run is not None:
        texts = "; ".join(step.text for step in after.run.steps)
        yield Said(What.PLACEMENT_BEGUN, f"a placement of {len(after.run.steps)} steps is applied: {texts}")
    elif before.run is not None and after.run is not None:
        for was, now in zip(before.run.steps, after.run.steps, strict=False):
            if was.state != now.state:
                yield Said(
                    What.PLACEMENT_STEP, f"{_PLACED[now.state]}: {now.text}{f' ({now.refusal})' if now.refusal else ''}"
                )


_PLACED = {
    "waiting": "waits",
    "copying": "begun, and being filled",
    "joined": "whole, and in its group",
    "done": "done",
    "dropped": "not done",
}


def _sentinels(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    before, after = old.sentinels, new.sentinels
    if before == after:
        return
    if before is None or after is None:
        # Those in the settings counted until then, and are not in the state to be compared.
        named = "those in the settings" if after is None else ", ".join(after) or "none"
        yield Said(What.SENTINELS_SET, f"the Sentinels from now on: {named}")
        return
    for address in after:
        if address not in before:
            yield Said(What.SENTINEL_ADDED, f"Sentinel {address} was added")
    for address in before:
        if address not in after:
            yield Said(What.SENTINEL_REMOVED, f"Sentinel {address} was removed")


def _users(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    for name, entry in new.users.items():
        before = old.users.get(name)
        if before is None:
            yield Said(What.USER_SET, f"user {name} was added")
        elif before != entry:
            # Names of fields only: no password, and no digest of one.
            changed = sorted(field for field in before.keys() | entry.keys() if before.get(field) != entry.get(field))
            yield Said(What.USER_SET, f"user {name} was changed: {', '.join(changed)}")
    for name in old.users:
        if name not in new.users:
            yield Said(What.USER_REMOVED, f"user {name} was removed")


def _protection(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    if (lifted := new.protection_lifted) is not None:
        yield Said(
            What.PROTECTION_LIFTED, f"protection was lifted for this loss, of {lifted.lost} of {lifted.members} members"
        )
    elif old.protection_lifted is not None:
        yield Said(What.PROTECTION_RESTORED, "enough members are back, so protection holds again for the next loss")


def _pause(old: ClusterState, new: ClusterState) -> Iterator[Said]:
    if new.pause is not None:
        why = f": {new.pause.why}" if new.pause.why else ""
        yield Said(What.PAUSED, f"topom does nothing by itself from now on{why}")
    else:
        yield Said(What.RESUMED, "topom acts by itself again")


_TELLERS: Mapping[str, Callable[[ClusterState, ClusterState], Iterator[Said]]] = {
    "table": _table,
    "proxies": _proxies,
    "migration_changes": _migration,
    "skipped": _skipped,
    "leaving": _leaving,
    "pool": _pool,
    "placement": _placement,
    "sentinels": _sentinels,
    "users": _users,
    "protection_lifted": _protection,
    "pause": _pause,
}
"""By the field of the state that changed."""
