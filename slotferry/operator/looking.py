"""Looks at groups, servers, proxies and migrators: ``list`` shows many as a table, ``show`` one with all about it."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.options import Address, GroupId
from slotferry.output import answer, fail, in_words, say, size, table
from slots.forms import Form


def list_groups(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """List the groups with their servers."""
    found = options.ask(topom, token, lambda client: client.groups())
    answer({"groups": found}, form, lambda: say_groups(found))


def show_group(
    group_id: GroupId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one group: its servers, and what is amiss with them."""
    known = options.ask(topom, token, lambda client: client.groups())
    found = the(known, "id", group_id, "group")

    def tell() -> None:
        say_groups([found])
        for sentence in reasons_of(found):
            say(sentence)

    answer(found, form, tell)


def list_servers(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """List the servers of all groups. `slotferry pool list` has those of no group."""
    found = list(_servers(options.ask(topom, token, lambda client: client.groups())))
    rows = [(server["address"], str(server["group_id"]), *_server_cells(server)) for server in found]
    answer(
        {"servers": found},
        form,
        lambda: table(("server", "group", *SERVER), rows, title="servers", spare=("datacenter", "node")),
    )


def show_server(
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one server of a group."""
    groups = options.ask(topom, token, lambda client: client.groups())
    found = the(list(_servers(groups)), "address", address, "server", "in a group")

    def tell() -> None:
        cells = dict(zip(SERVER, _server_cells(found), strict=True))
        fields({"server": found["address"], "group": str(found["group_id"]), **cells})
        for sentence in _reasons_of_server(found["group_id"], found):
            say(sentence)

    answer(found, form, tell)


def ask_of_server(
    topom: str, token: str, address: str, call: Callable[[TopomClient, int], Awaitable[Answer]]
) -> Answer:
    """The answer about a server, which is in one group at most: ``call`` is given the group's id, too."""

    async def work(client: TopomClient) -> Answer:
        servers = list(_servers(await client.groups()))
        return await call(client, the(servers, "address", address, "server", "in a group")["group_id"])

    return options.ask(topom, token, work)


SERVER = ("role", "state", "datacenter", "node", "keys", "memory")
"""What is shown of a server beside its address and group."""


def the(known: list[Answer], name: str, value: object, kind: str, where: str = "") -> Answer:
    """The one whose ``name`` is ``value``. Ends the command if there is none."""
    for one in known:
        if one[name] == value:
            return one
    there = ", ".join(str(one[name]) for one in known)
    place = f" {where}" if where else ""
    raise fail(f"there is no {kind} {value}{place}; " + (f"there are: {there}" if there else "there is none at all"))


def fields(values: Mapping[str, object]) -> None:
    """Print all about one thing, a line for each."""
    table(("what", "value"), list(values.items()))


def say_groups(groups: list[Answer]) -> None:
    """Groups with their servers as a table."""
    rows = []
    for group in groups:
        for place, server in enumerate(_in_roles(group) or [{}]):
            first = place == 0
            rows.append(
                (
                    str(group["id"]) if first else " ",
                    group["slots"] if first else " ",
                    server.get("address"),
                    *_server_cells(server),
                )
            )
    table(("group", "slots", "server", *SERVER), rows, title="groups", spare=("datacenter", "node"))


def _servers(groups: Iterable[Answer]) -> Iterator[Answer]:
    for group in groups:
        for server in _in_roles(group):
            yield {"group_id": group["id"], **server}


def _in_roles(group: Answer) -> list[Answer]:
    """Its servers. A master that says nothing of its role has the one of the table."""
    return [
        server if place or server.get("role") else {**server, "role": "master"}
        for place, server in enumerate(group["servers"])
    ]


def _server_cells(server: Answer) -> tuple[object, ...]:
    return (
        server.get("role"),
        _state(server) if server else None,
        server.get("datacenter"),
        server.get("node"),
        server.get("keys"),
        size(server.get("memory_bytes")),
    )


def reasons_of(group: Answer) -> Iterator[str]:
    """Sentences about what is amiss with a group and its servers."""
    if group.get("reason"):
        yield f"group {group['id']}: its master has failed and is not replaced yet: {in_words(group['reason'])}"
    for place, server in enumerate(group["servers"]):
        if not place and server.get("role") == "replica":
            yield (
                f"group {group['id']}: its master {server['address']} says that it is a replica; to do: if another of "
                f"its servers is the master now, slotferry group promote {group['id']} HOST:PORT --force"
            )
        yield from _reasons_of_server(group["id"], server)


def _reasons_of_server(group_id: int, server: Answer) -> Iterator[str]:
    waits = f": {in_words(server['not_whole'])}" if server.get("not_whole") else ""
    if server.get("joining"):
        yield f"server {server['address']} joins group {group_id} and is not whole yet{waits}"
    elif waits:
        yield f"server {server['address']} does not follow the master of group {group_id}{waits}"
    for reason in (server.get("not_used"), server.get("not_swept")):
        if reason:
            yield f"group {group_id}: {in_words(reason)}"


def _state(server: Answer) -> str:
    """Whether a server answers topom; if not all views have answers, the suspicion."""
    state = "up" if server.get("up") else "down"
    condition = server.get("condition", "alive")
    if condition == "alive":
        return state
    if condition == "unknown":
        return f"{state}, condition unknown"
    return f"{state}, {condition} ({server['silent']} of {server['views']})"


PROXY = ("proxy", "address", "host", "workers", "state", "epoch", "clients", "requests", "errors")


def say_proxies(proxies: list[Answer]) -> None:
    """Proxies as a table."""
    table(PROXY, [_proxy_cells(proxy) for proxy in proxies], title="proxies", spare=("host", "workers"))


def say_proxy(proxy: Answer) -> None:
    """All about one proxy."""
    fields(dict(zip(PROXY, _proxy_cells(proxy), strict=True)))


def _proxy_cells(proxy: Answer) -> tuple[object, ...]:
    return (
        str(proxy["id"]),
        proxy["address"],
        proxy["hostname"],
        proxy["workers"],
        "draining" if proxy.get("draining") and proxy["state"] == "online" else proxy["state"],
        proxy["epoch"],
        *(proxy.get("counters", {}).get(name) for name in ("clients", "requests", "errors")),
    )


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
    table(columns, rows, title="migrators", spare=("started by", "pid", "node", "datacenter"))
