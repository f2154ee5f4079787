"""``slotferry status``: an overview of the whole cluster."""

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.operator.migration import say_migration
from slotferry.operator.pausing import say_pause
from slotferry.operator.protection import say_protection
from slotferry.output import answer, in_words, say, size, table


def status(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show the product: groups with their servers, proxies, slots, and slots that move."""
    found = options.ask(topom, token, lambda client: client.status())
    answer(found, as_json, lambda: _say_status(found))


def _say_status(found: Answer) -> None:
    slots = found["slots"]
    if found.get("reason"):
        say(f"NOTHING CAN BE CHANGED NOW: {in_words(found['reason'])}")
    if found.get("pause"):
        say_pause(found["pause"])
    say(
        f"product {found['product']}, epoch {found['epoch']}, {found['databases']} databases, "
        f"{found['number_of_slots']} slots by {found['slot_function']}: "
        f"{slots['assigned']} assigned, {slots['offline']} offline, {slots['moving']} moving"
    )
    if found.get("topoms"):
        say_topoms(found["topoms"])
    say_groups(found["groups"])
    for entry in found.get("leaving", []):
        waits = f"; {in_words(entry['reason'])}" if entry.get("reason") else ""
        say(f"{entry['kind']} {entry['id']} leaves: {entry['why']}{waits}")
    for group in found["groups"]:
        for server in group["servers"]:
            waits = f": {in_words(server['not_whole'])}" if server.get("not_whole") else ""
            if waits and not server.get("joining"):
                say(f"server {server['address']} does not follow the master of group {group['id']}{waits}")
            elif server.get("joining"):
                say(f"server {server['address']} joins group {group['id']} and is not whole yet{waits}")
            for reason in (server.get("not_used"), server.get("not_swept")):
                if reason:
                    say(f"group {group['id']}: {in_words(reason)}")
    say_proxies(found["proxies"])
    if found.get("migrators"):
        say_migrators(found["migrators"])
    say_migration(found["migration"])
    for group in found["groups"]:
        if group.get("reason"):
            say(f"group {group['id']}: its master has failed and is not replaced yet: {in_words(group['reason'])}")
    for name, reason in found.get("failing", {}).items():
        say(f"topom: {name} failed and was started again: {in_words(reason)}; its log says more")
    for loop in found.get("loops", []):
        say(f"topom: {loop['name']}: {loop['says']}")
    if found.get("sentinels"):
        say(f"Sentinels: {in_words(found['sentinels'])}")
    protection = found.get("protection", {})
    if protection.get("active") or protection.get("lifted"):
        say_protection(found["protection"])


def say_topoms(topoms: list[Answer]) -> None:
    """The topoms as a table, the leader first."""
    rows = [
        (
            topom["url"],
            topom["instance"][:8],
            topom["state"],
            topom.get("term"),
            topom.get("epoch"),
            topom.get("version") or None,
        )
        for topom in topoms
    ]
    table(("topom", "instance", "state", "term", "epoch", "version"), rows, title="topoms")
    for topom in topoms:
        if topom.get("reason"):
            say(f"topom {topom['url']}: {in_words(topom['reason'])}")


def say_groups(groups: list[Answer]) -> None:
    """Groups with their servers as a table."""
    rows = []
    for group in groups:
        for place, server in enumerate(group["servers"] or [{}]):
            first = place == 0
            rows.append(
                (
                    str(group["id"]) if first else " ",
                    group["slots"] if first else " ",
                    server.get("address"),
                    "master" if first and server else server.get("role"),
                    _state(server) if server else None,
                    server.get("datacenter"),
                    server.get("node"),
                    server.get("keys"),
                    size(server.get("used_memory")),
                )
            )
    table(("group", "slots", "server", "role", "state", "datacenter", "node", "keys", "memory"), rows, title="groups")


def _state(server: Answer) -> str:
    """Whether a server answers topom; if not all views have answers, the suspicion."""
    state = "up" if server.get("up") else "down"
    condition = server.get("condition", "alive")
    if condition == "alive":
        return state
    if condition == "unknown":
        return f"{state}, condition unknown"
    return f"{state}, {condition} ({server['silent']} of {server['views']})"


def say_proxies(proxies: list[Answer]) -> None:
    """Proxies as a table."""
    rows = [
        (
            str(proxy["id"]),
            proxy["address"],
            proxy["hostname"],
            str(proxy["pid"]),
            proxy["workers"],
            "draining" if proxy.get("draining") and proxy["state"] == "online" else proxy["state"],
            proxy["epoch"],
            *(proxy.get("counters", {}).get(name) for name in ("clients", "requests", "errors")),
        )
        for proxy in proxies
    ]
    columns = ("proxy", "address", "host", "pid", "workers", "state", "epoch", "clients", "requests", "errors")
    table(columns, rows, title="proxies")


def say_migrators(migrators: list[Answer]) -> None:
    """Migrators as a table."""
    rows = [
        (
            str(one["id"]),
            one["hostname"],
            str(one["pid"]),
            "topom" if one["own"] else None,
            one["node"] or None,
            one["datacenter"] or None,
            len(one["copies"]),
            round(one["keys_per_second"]),
            size(one.get("disk_bytes")),
        )
        for one in migrators
    ]
    columns = ("migrator", "host", "pid", "started by", "node", "datacenter", "copies", "keys/s", "free disk")
    table(columns, rows, title="migrators")
