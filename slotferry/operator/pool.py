"""``slotferry pool``: Redis servers that are in no group, for placement to take."""

from typing import Annotated

import typer

from slotferry.calls import Answer
from slotferry.operator import options
from slotferry.operator.groups import Datacenter, Node
from slotferry.operator.options import NewAddress
from slotferry.output import answer, in_words, say, size, table
from slots.forms import Form

app = typer.Typer(no_args_is_help=True, help="Add, remove and list the Redis servers that are in no group.")


@app.command("add")
def add(
    address: NewAddress,
    datacenter: Datacenter = "",
    node: Node = "",
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Add it even if it holds keys; they are lost once a group takes it.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Register a server that is in no group. It has to answer, and to be empty: taken into a group, it is wiped."""
    found = options.ask(topom, token, lambda client: client.add_to_pool(address, datacenter, node, wipe))
    answer(found, form, lambda: say(f"server {address} added to the pool"))


@app.command("remove")
def remove(
    address: NewAddress,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Forget a server of the pool. The server itself is not changed."""
    found = options.ask(topom, token, lambda client: client.remove_from_pool(address))
    answer(found, form, lambda: say(f"server {address} removed from the pool"))


@app.command("list")
def show(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """Show the servers that are in no group."""
    found = options.ask(topom, token, lambda client: client.pool())
    answer(found, form, lambda: say_pool(found))


def say_pool(found: Answer) -> None:
    """The servers of the pool as a table."""
    rows = [
        (
            one["address"],
            one["node"],
            one["datacenter"],
            "up" if one["up"] else "down",
            one["role"],
            one["keys"],
            size(one["memory_bytes"]),
            "yes" if one["wipe"] else "no",
        )
        for one in found["servers"]
    ]
    table(("server", "node", "datacenter", "state", "role", "keys", "memory", "may be wiped"), rows, title="pool")
    for one in found["servers"]:
        if one.get("reason"):
            say(f"pool: {in_words(one['reason'])}")
