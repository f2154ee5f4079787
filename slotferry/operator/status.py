"""``slotferry status``: everything at a glance."""

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.operator.migration import say_migration
from slotferry.operator.protection import say_protection
from slotferry.output import answer, run, say, size, table


def status(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", as_json: options.Json = False
) -> None:
    """Show the product: groups with their servers, proxies, slots, and what is moving."""

    async def work() -> Answer:
        async with options.connect(topom, token) as client:
            return await client.status()

    found = run(work())
    answer(found, as_json, lambda: _say_status(found))


def _say_status(found: Answer) -> None:
    slots = found["slots"]
    if found.get("problem"):
        say(f"NOTHING CAN BE CHANGED NOW: {found['problem']}")
    say(
        f"product {found['product']}, epoch {found['epoch']}, {found['databases']} databases, "
        f"{found['number_of_slots']} slots by {found['slot_function']}: "
        f"{slots['assigned']} assigned, {slots['offline']} offline, {slots['moving']} moving"
    )
    if found.get("topoms"):
        say_topoms(found["topoms"])
    say_groups(found["groups"])
    for entry in found.get("leaving", []):
        waits = f"; {entry['waits_for']}" if entry.get("waits_for") else ""
        say(f"{entry['kind']} {entry['id']} leaves: {entry['why']}{waits}")
    for group in found["groups"]:
        for server in group["servers"]:
            waits = f": {server['waits_for']}" if server.get("waits_for") else ""
            if waits and not server.get("joining"):
                say(f"server {server['address']} does not follow the master of group {group['id']}{waits}")
            elif server.get("joining"):
                say(f"server {server['address']} joins group {group['id']} and is not whole yet{waits}")
            for problem in (server.get("problem"), server.get("foreign")):
                if problem:
                    say(f"group {group['id']}: {problem}")
    say_proxies(found["proxies"])
    say_migration(found["migration"])
    for group in found["groups"]:
        if group.get("trouble"):
            say(f"group {group['id']}: its master has failed and is not replaced yet: {group['trouble']}")
    for name, why in found.get("failing", {}).items():
        say(f"topom: {name} failed and was started again: {why}; its log says more")
    if found.get("sentinels"):
        say(f"Sentinels: {found['sentinels']}")
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
        if topom.get("problem"):
            say(f"topom {topom['url']}: {topom['problem']}")


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
    """Whether a server answers topom, and what is thought of it if it does not answer everybody."""
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
