"""``slotferry group`` and ``slotferry server``: groups and the Redis servers in them."""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.output import answer, say

group = typer.Typer(no_args_is_help=True, help="Add and remove groups. A group is a master with its replicas.")
server = typer.Typer(no_args_is_help=True, help="Add and remove the Redis servers of a group.")

GroupId = Annotated[int, typer.Argument(metavar="GROUP", min=1, help="The group's id, 1 or larger.")]
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="A Redis server.")]
Datacenter = Annotated[
    str,
    typer.Option(
        "--datacenter", metavar="NAME", help="Its datacenter. Proxies first read from replicas in their own datacenter."
    ),
]
Node = Annotated[
    str, typer.Option("--node", metavar="NAME", help="The host it runs on; by default, the host of its address.")
]

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason for the drain, which others can see.")]


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
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Add a group. It owns no slots until some are assigned or moved to it."""
    found = options.ask(topom, token, lambda client: client.add_group(group_id, servers or [], datacenter, node, wipe))
    answer(found, as_json, lambda: say(f"group {group_id} added{_silence(found)}"))


@group.command("remove")
def remove_group(
    group_id: GroupId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Remove a group that owns no slots. Its servers and their data are left as they are."""
    found = options.ask(topom, token, lambda client: client.remove_group(group_id))
    answer(found, as_json, lambda: say(f"group {group_id} removed"))


@group.command("drain")
def drain_group(
    group_id: GroupId,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="End the drain, so that it stays. Slots that have moved do not come back by themselves."
        ),
    ] = False,
    why: Why = "",
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Have a group leave: nothing new is put there, its slots move to the others, and then it is removed."""
    found = options.ask(
        topom, token, lambda client: client.keep_group(group_id) if cancel else client.drain_group(group_id, why)
    )
    text = "stays" if cancel else "leaves; it is removed once it has no slots: slotferry status"
    answer(found, as_json, lambda: say(f"group {group_id} {text}"))


@server.command("drain")
def drain_server(
    group_id: GroupId,
    address: Address,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="End the drain, so that it stays. A master that was replaced stays as a replica."
        ),
    ] = False,
    why: Why = "",
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Have a server leave: a replica at once, and it is no longer read; a master once a replica has replaced it.

    Nothing is lost, and clients see a short pause. With ha = "sentinel", have a replica take a master's place first,
    with group promote; and stop a replica before, or have it follow nobody and run slotferry sentinel resync
    afterwards: Sentinels never forget replicas and may elect it.
    """

    async def work(client: TopomClient) -> Answer:
        if cancel:
            return await client.keep_server(group_id, address)
        return await client.drain_server(group_id, address, why)

    found = options.ask(topom, token, work)
    if cancel:
        text = f"server {address} stays in group {group_id}"
    elif address in found["servers"]:
        text = f"server {address} leaves group {group_id} once a replica has taken its place: slotferry status"
    else:
        text = f"server {address} has left group {group_id}"
    answer(found, as_json, lambda: say(text))


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
    as_json: options.Json = False,
) -> None:
    """Make a replica the master of its group, without losing anything. The former master becomes a replica.

    With ha = "sentinel" all Sentinels have to answer: they leave the group alone meanwhile. --force is refused then.
    """
    found = options.ask(topom, token, lambda client: client.promote(group_id, address, force))
    answer(found, as_json, lambda: say(f"{address} is the master of group {group_id}"))


@server.command("add")
def add_server(
    group_id: GroupId,
    address: Address,
    datacenter: Datacenter = "",
    node: Node = "",
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Add it even if it holds keys of its own; a replica loses them.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Add a server to a group: the first is its master, the others are replicas, which the master fills."""
    found = options.ask(topom, token, lambda client: client.add_server(group_id, address, datacenter, node, wipe))
    answer(found, as_json, lambda: say(f"server {address} added to group {group_id}{_silence(found)}"))


@server.command("set")
def set_server(
    group_id: GroupId,
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
    as_json: options.Json = False,
) -> None:
    """Say in which datacenter a server is, and on which node."""
    if datacenter is None and node is None:
        raise typer.BadParameter("say --datacenter or --node")
    found = options.ask(
        topom, token, lambda client: client.set_place(group_id, address, datacenter=datacenter, node=node)
    )
    said = []
    if datacenter is not None:
        said.append(f"is in datacenter {datacenter}" if datacenter else "is in no datacenter")
    if node is not None:
        said.append(f"is on node {node}" if node else "is on the node that its address names")
    answer(found, as_json, lambda: say(f"server {address} {' and '.join(said)}"))


@server.command("remove")
def remove_server(
    group_id: GroupId,
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Remove a server from a group. Its data are left as they are."""
    found = options.ask(topom, token, lambda client: client.remove_server(group_id, address))
    answer(found, as_json, lambda: say(f"server {address} removed from group {group_id}"))


@server.command("sweep")
def sweep_server(
    group_id: GroupId,
    address: Address,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Remove keys of slots that other groups own from a group's master. They are lost, so save needed ones first."""
    found = options.ask(topom, token, lambda client: client.sweep_server(group_id, address))
    removed = found["removed"]
    said = f"{removed} keys removed from {address}" if removed is not None else f"keys are being removed from {address}"
    answer(found, as_json, lambda: say(said))


def _silence(found: Answer) -> str:
    """A sentence part about added servers that do not answer, or that have keys where Slotferry's own belong."""
    silent = found.get("silent", [])
    said = f"; no answer now from {', '.join(silent)}: start it, or look at the address" if silent else ""
    return said + "".join(f"; {sentence}" for sentence in hidden_keys(found))


def hidden_keys(found: Answer) -> list[str]:
    """A sentence part about users' keys under Slotferry's names at an added server; empty if there are none."""
    names = ", ".join(found.get("strangers", []))
    return [f"no client reaches its keys {names} any more: their names are Slotferry's own"] if names else []
