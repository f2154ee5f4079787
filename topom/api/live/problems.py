"""What is wrong in a cluster now, since when, and what to do: one list, the worst first.

It is made of what the status says. What waits by an operator's order, or passes by itself, is told as well, but is not
*grave*.

**bounded**: :data:`MOST` problems; the rest are counted in one more.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from topom.api.group_models import Group, Server
from topom.api.status_models import Status
from topom.reasons import Kind, Reason

MOST = 100
"""How many problems are told one by one."""
PASSING = (Kind.PAUSED, Kind.HOURS, Kind.PACE, Kind.BUSY)
"""Kinds that an operator has ordered, or that pass by themselves."""


def problems(status: Status) -> dict[str, dict[str, Any]]:
    """By a name that stays the same while it lasts: ``{"about", "grave", "kind", "what", "since", "to_do"}``."""
    found: dict[str, dict[str, Any]] = {}
    more = 0
    every = sorted(_all(status), key=lambda entry: entry[1].kind in PASSING)  # grave ones first, else in order
    for about, reason in every:
        name = f"{about}: {reason.kind}"
        if name in found:
            continue
        if len(found) == MOST:
            more += 1
            continue
        found[name] = {"about": about, "grave": reason.kind not in PASSING, **reason.to_document()}
    if more:
        what = f"{more} more things are wrong or wait; `slotferry status` names all"
        found["more"] = {"about": "more", "grave": False, **Reason(Kind.OPERATOR, what).to_document()}
    return found


def _all(status: Status) -> Iterator[tuple[str, Reason]]:
    if status.reason is not None:
        yield "topom", status.reason
    yield from _protection(status)
    for topom in status.topoms:
        if topom.reason is not None:
            yield f"topom {topom.url}", topom.reason
        if topom.state == "silent":
            what = f"the topom at {topom.url} followed, and says nothing more"
            yield (
                f"topom {topom.url}",
                Reason(Kind.STORE, what, topom.silent_since or 0.0, "look at its process and its log"),
            )
    for group in status.groups:
        yield from _group(group)
    for proxy in status.proxies:
        if proxy.state == "lost":
            what = f"proxy {proxy.id} ({proxy.address} on {proxy.hostname}) is lost: nothing was heard of it"
            to_do = "look at its process; if it does not come back, remove it, or moves of slots wait for it"
            yield f"proxy {proxy.id}", Reason(Kind.PROXY, what, proxy.lost_since or 0.0, to_do)
    if not status.groups:
        what = "there is no group yet, so proxies refuse all commands"
        yield "groups", Reason(Kind.OPERATOR, what, status.slots.offline_since or 0.0, "add one: `slotferry group add`")
    elif status.slots.offline:
        offline = status.slots.offline
        many, them = ("1 slot is", "it") if offline == 1 else (f"{offline} slots are", "them")
        what = f"{many} offline: proxies refuse commands for {them}"
        to_do = "rebalance, or assign them: `slotferry slot assign`"
        yield "slots", Reason(Kind.OPERATOR, what, status.slots.offline_since or 0.0, to_do)
    yield from _migration(status)
    if status.sentinels is not None:
        yield "sentinels", status.sentinels
    yield from status.failing.items()
    for leaving in status.leaving:
        if leaving.reason is not None:
            yield f"{leaving.kind} {leaving.id}", leaving.reason
    if status.pause is not None:
        why = f": {status.pause.why}" if status.pause.why else ""
        what = f"topom does nothing by itself, for {status.pause.by} has paused it{why}"
        yield "topom", Reason(Kind.PAUSED, what, status.pause.at, "let it act again once that is over")


def _protection(status: Status) -> Iterator[tuple[str, Reason]]:
    protection = status.protection
    if protection.active:
        what = (
            f"{protection.lost} of {protection.members} servers and proxies are lost, so topom does nothing about it "
            "by itself"
        )
        to_do = "look whether the network is at fault; if they are lost indeed, lift the protection"
        yield "topom", Reason(Kind.PROTECTED, what, protection.since or 0.0, to_do)


def _group(group: Group) -> Iterator[tuple[str, Reason]]:
    about = f"group {group.id}"
    if group.reason is not None:
        what = f"its master has failed and is not replaced yet: {group.reason.what}"
        yield about, replace(group.reason, what=what)
    if not group.servers and group.slots:
        yield about, Reason(Kind.SERVER, f"group {group.id} owns slots and has no server", to_do="add a server to it")
    for place, server in enumerate(group.servers):
        called = f"{'master' if place == 0 else 'replica'} {server.address} of group {group.id}"
        silence = _silence(server, called)
        if silence is not None:
            yield f"server {server.address}", silence
        for reason in (server.not_used, server.not_swept, server.not_whole):
            if reason is not None:
                yield f"server {server.address}", reason


def _silence(server: Server, called: str) -> Reason | None:
    since = server.silent_since or 0.0
    if server.condition == "failed":
        what = f"{called} has failed: {server.silent} of {server.views} views have no answer from it"
        return Reason(Kind.SERVER, what, since, "look at the server's process, its machine and its network")
    if server.condition == "suspected":
        return Reason(Kind.SERVER, f"{called} does not answer at the moment", since)
    return None


def _migration(status: Status) -> Iterator[tuple[str, Reason]]:
    migration = status.migration
    if migration.halted is not None and (migration.slots_pending or migration.slots_moving or migration.paused):
        yield "migration", migration.halted
    for batch in migration.batches:
        if batch.reason is not None and (migration.halted is None or batch.reason.kind != migration.halted.kind):
            yield f"move from group {batch.source} to {batch.target}", batch.reason
    for skipped in migration.skipped:
        yield f"slots {skipped.slots[:80]}", skipped.reason
