"""The verb ``drain`` of groups, servers, nodes and proxies: it has one of them leave without loss.

It is given the name of what leaves, and says what happens then. ``--cancel`` has it stay; a proxy that drains ends in
any case, so it cannot.
"""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.client import TopomClient
from slotferry.operator import options
from slotferry.operator.looking import ask_of_server
from slotferry.operator.options import Address, GroupId, Node, ProxyId
from slotferry.output import answer, say
from slots.counting import counted
from slots.forms import Form

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason for the drain, which others can see.")]
Cancel = Annotated[
    bool,
    typer.Option(
        "--cancel", help="End the drain, so that it stays. What has moved or left does not come back by itself."
    ),
]


def drain_group(
    group_id: GroupId,
    cancel: Cancel = False,
    why: Why = "",
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have a group leave: nothing new is put there, its slots move to the others, and then it is removed."""
    found = options.ask(
        topom, token, lambda client: client.keep_group(group_id) if cancel else client.drain_group(group_id, why)
    )
    text = "stays" if cancel else "leaves; it is removed once it has no slots: slotferry status"
    answer(found, form, lambda: _say(f"group {group_id} {text}", cancel))


def drain_server(
    address: Address,
    cancel: Cancel = False,
    why: Why = "",
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have a server leave: a replica at once, and it is no longer read; a master once a replica has replaced it.

    Nothing is lost, and clients see a short pause. With ha = "sentinel", have a replica take a master's place first,
    with group promote; and stop a replica before, or have it follow nobody and run slotferry sentinel resync
    afterwards: Sentinels never forget replicas and may elect it.
    """

    async def work(client: TopomClient, group_id: int) -> Answer:
        if cancel:
            return await client.keep_server(group_id, address)
        return await client.drain_server(group_id, address, why)

    found = ask_of_server(topom, token, address, work)
    if cancel:
        text = f"stays in group {found['id']}"
    elif address in found["servers"]:
        text = f"leaves group {found['id']} once a replica has taken its place: slotferry status"
    else:
        text = f"has left group {found['id']}"
    over = cancel or address not in found["servers"]
    answer(found, form, lambda: _say(f"server {address} {text}", over))


def drain_node(
    node: Node,
    cancel: Cancel = False,
    why: Why = "",
    fewer_copies: Annotated[
        bool, typer.Option("--fewer-copies", help="Drain it even if groups then have fewer copies than now.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have all servers of a node leave their groups, without loss: masters by promotion, replicas once replaced.

    Servers of the pool on other nodes are taken in where a group would have fewer copies. Nothing new is put there.
    """
    found = options.ask(
        topom, token, lambda client: client.keep_node(node) if cancel else client.drain_node(node, why, fewer_copies)
    )
    text = "stays" if cancel else "leaves; it is gone once none of its servers is in a group: slotferry status"
    answer(found, form, lambda: _say(f"node {node} {text}", cancel))


def drain_proxy(
    proxy_id: ProxyId,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Have a proxy let its clients go, between requests and spread over time; then it leaves and ends.

    That cannot be taken back. Start the proxy again afterwards if it is to stay.
    """
    found = options.ask(topom, token, lambda client: client.drain_proxy(proxy_id))

    def tell() -> None:
        clients = counted(found.get("counters", {}).get("clients", 0), "client")
        say(f"proxy {proxy_id} at {found['address']} leaves; it is gone once it has let {clients} go: slotferry status")
        say("this cannot be taken back; start the proxy again afterwards if it is to stay")
        if found["state"] == "lost":
            say("it has not been heard of lately; it is told when it comes back")

    answer(found, form, tell)


def _say(text: str, over: bool) -> None:
    say(text)
    if not over:
        say("until then the same command with --cancel has it stay")
