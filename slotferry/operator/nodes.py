"""``slotferry node``: the hosts that Redis servers run on."""

import typer

from slotferry.calls import Answer
from slotferry.operator import draining, options
from slotferry.operator.looking import fields, the
from slotferry.operator.options import Node
from slotferry.output import answer, in_words, table
from slots.forms import Form

COLUMNS = ("node", "datacenter", "state", "leads", "follows", "pool")

app = typer.Typer(no_args_is_help=True, help="See the hosts of Redis servers, and have all servers of one leave.")
app.command("drain")(draining.drain_node)


@app.command("list")
def list_nodes(
    topom: options.Topom = options.DEFAULT_TOPOM, token: options.Token = "", form: options.Output = Form.TABLE
) -> None:
    """List the nodes that have servers, of groups or of the pool."""
    found = options.ask(topom, token, lambda client: client.placement())["nodes"]
    answer({"nodes": found}, form, lambda: say_nodes(found))


@app.command("show")
def show_node(
    node: Node,
    topom: options.Topom = options.DEFAULT_TOPOM,
    token: options.Token = "",
    form: options.Output = Form.TABLE,
) -> None:
    """Show one node: the groups that have their master or a replica there, and its servers of the pool."""
    known = options.ask(topom, token, lambda client: client.placement())["nodes"]
    found = the(known, "name", node, "node")
    answer(found, form, lambda: fields(dict(zip(COLUMNS, _cells(found), strict=True))))


def say_nodes(nodes: list[Answer]) -> None:
    """Nodes as a table."""
    table(COLUMNS, [_cells(node) for node in nodes], title="nodes")


def _cells(node: Answer) -> tuple[str, ...]:
    return (
        node["name"],
        node["datacenter"],
        in_words(node["reason"]) or "there",
        *(", ".join(str(group_id) for group_id in node[part]) for part in ("leads", "follows")),
        ", ".join(node["pool"]),
    )
