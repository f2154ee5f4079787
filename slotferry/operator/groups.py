"""``slotferry group`` and ``slotferry server``: changes groups and the Redis servers in them."""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import draining, looking, options
from slotferry.operator.options import Address, GroupId, NewAddress
from slotferry.output import answer, say
from slots.counting import counted
from slots.forms import Form

group = typer.Typer(no_args_is_help=True, help="See, add and remove groups. A group is a master with its replicas.")
server = typer.Typer(no_args_is_help=True, help="See, add and remove the Redis servers of groups.")
group.command("list")(looking.list_groups)
group.command("show")(looking.show_group)
server.command("list")(looking.list_servers)
server.command("show")(looking.show_server)
group.command("drain")(draining.drain_group)
server.command("drain")(draining.drain_server)

Datacenter = Annotated[
    str,
    typer.Option(
        "--datacenter", metavar="NAME", help="Its datacenter. Proxies first read from replicas in their own datacenter."
    ),
]
Node = Annotated[
    str, typer.Option("--node", metavar="NAME", help="The host it runs on; by default, the host of its address.")
]

OfflineOk = Annotated[
    bool, typer.Option("--offline-ok", help="Add even servers that do not answer now; else they are refused.")
]


@group.command("add")
def add_group(
    group_id: GroupId,
    servers: Annotated[
        list[str] | None, typer.Argument(metavar="[HOST:PORT]...", help="Its servers, master first.")
    ] = None,
    datacenter: Datacenter = "",
    node: Node = "",
    wipe: Annotated[
        bool,
        typer.Option("--wipe", help="Add them even if replicas among them hold keys of their own; these are lost."),
    ] = False,
    offline_ok: OfflineOk = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Add a group. It owns no slots until some are assigned or moved to it."""
    found = options.ask(
        topom,
        token,
        lambda client: client.add_group(group_id, servers or [], datacenter, node, wipe, offline_ok),
    )
    answer(found, form, lambda: say(f"group {group_id} added{_silence(found)}"))


@group.command("remove")
def remove_group(
    group_id: GroupId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Remove a group that owns no slots. Its servers and their data are left as they are."""
    found = options.ask(topom, token, lambda client: client.remove_group(group_id))
    answer(found, form, lambda: say(f"group {group_id} removed"))


@group.command("promote")
def promote(
    group_id: GroupId,
    address: Address,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Promote even if the master is gone. Writes that it had not sent to the replica are lost."
        ),
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Make a replica the master of its group, without losing anything. The former master becomes a replica.

    With ha = "sentinel" all Sentinels have to answer: they leave the group alone meanwhile. --force is refused then.
    """

    async def work(client: TopomClient) -> tuple[bool, Answer]:
        known = [found["servers"] for found in await client.groups() if found["id"] == group_id]
        was = bool(known and known[0]) and known[0][0]["address"] == address
        return was, await client.promote(group_id, address, force)

    was, found = options.ask(topom, token, work)
    already = " already; nothing was changed" if was else ""
    answer(found, form, lambda: say(f"{address} is the master of group {group_id}{already}"))


@server.command("add")
def add_server(
    group_id: GroupId,
    address: NewAddress,
    datacenter: Datacenter = "",
    node: Node = "",
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Add it even if it holds keys of its own; a replica loses them.")
    ] = False,
    offline_ok: OfflineOk = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Add a server to a group: the first is its master, the others are replicas, which the master fills."""
    found = options.ask(
        topom, token, lambda client: client.add_server(group_id, address, datacenter, node, wipe, offline_ok)
    )
    answer(found, form, lambda: say(f"server {address} added to group {group_id}{_silence(found)}"))


@server.command("set")
def set_server(
    address: Address,
    datacenter: Annotated[
        str | None, typer.Option("--datacenter", metavar="NAME", help='Its datacenter; "" removes it.')
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help='The host it runs on; "" removes it.'),
    ] = None,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Say in which datacenter a server is, and on which node."""
    if datacenter is None and node is None:
        raise typer.BadParameter("say --datacenter or --node")

    async def work(client: TopomClient, group_id: int) -> Answer:
        return await client.set_place(group_id, address, datacenter=datacenter, node=node)

    found = looking.ask_of_server(topom, token, address, work)
    said = []
    if datacenter is not None:
        said.append(f"is in datacenter {datacenter}" if datacenter else "is in no datacenter")
    if node is not None:
        said.append(f"is on node {node}" if node else "is on the node that its address names")
    answer(found, form, lambda: say(f"server {address} {' and '.join(said)}"))


@server.command("remove")
def remove_server(
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Remove a server from its group. Its data are left as they are."""
    found = looking.ask_of_server(
        topom, token, address, lambda client, group_id: client.remove_server(group_id, address)
    )
    answer(found, form, lambda: say(f"server {address} removed from group {found['id']}"))


@server.command("sweep")
def sweep_server(
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Remove keys of slots that other groups own from a master. They are lost, so save needed ones first."""
    found = looking.ask_of_server(
        topom, token, address, lambda client, group_id: client.sweep_server(group_id, address)
    )
    removed = found["removed"]
    said = (
        f"{counted(removed, 'key')} removed from {address}"
        if removed is not None
        else f"keys are being removed from {address}"
    )
    answer(found, form, lambda: say(said))


def _silence(found: Answer) -> str:
    """Sentence parts about added servers that do not answer, and about keys of theirs that clients do not see."""
    silent = found.get("silent", [])
    said = f"; no answer now from {', '.join(silent)}: start it, or look at the address" if silent else ""
    return said + "".join(f"; {sentence}" for sentence in [*hidden_keys(found), *_foreign_keys(found)])


def _foreign_keys(found: Answer) -> list[str]:
    """A sentence part about keys of an added master while other groups own slots; empty if there are none."""
    held = found.get("keys_held", 0)
    return (
        [
            f"it holds {counted(held, 'key')} already, and no client sees those whose slots other groups own: save "
            "what is needed, then remove them with slotferry server sweep, or remove the group and use an empty server"
        ]
        if held
        else []
    )


def hidden_keys(found: Answer) -> list[str]:
    """A sentence part about users' keys under Slotferry's names at an added server; empty if there are none."""
    names = ", ".join(found.get("strangers", []))
    return [f"no client reaches its keys {names} any more: their names are Slotferry's own"] if names else []
