"""``slotferry node``: the hosts that Redis servers run on."""

from typing import Annotated

import typer

from slotferry.operator import options
from slotferry.operator.groups import Why
from slotferry.output import answer, say

app = typer.Typer(no_args_is_help=True, help="Have all Redis servers of a host leave.")


@app.command("drain")
def drain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name: slotferry status shows it.")],
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="End the drain, so that it stays. Servers that have left do not come back by themselves."
        ),
    ] = False,
    why: Why = "",
    fewer_copies: Annotated[
        bool, typer.Option("--fewer-copies", help="Drain it even if groups then have fewer copies than now.")
    ] = False,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    as_json: options.Json = False,
) -> None:
    """Have all servers of a node leave their groups, without loss: masters by promotion, replicas once replaced.

    Servers of the pool on other nodes are taken in where a group would have fewer copies. Nothing new is put there.
    """
    found = options.ask(
        topom, token, lambda client: client.keep_node(node) if cancel else client.drain_node(node, why, fewer_copies)
    )
    text = "stays" if cancel else "leaves; it is gone once none of its servers is in a group: slotferry status"
    answer(found, as_json, lambda: say(f"node {node} {text}"))
