"""The command ``slotferry``: puts the families of verbs together."""

from typing import Annotated

import typer

from sizing import command as sizing
from slotferry import __version__, demo, offline, serve
from slotferry.operator import (
    digest,
    events,
    groups,
    importing,
    load,
    migration,
    nodes,
    pausing,
    placement,
    pool,
    protection,
    rebalance,
    sentinels,
    slots,
    status,
    top,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Many stock Redis servers made to look like one, with slots that move between them while clients work.\n\n"
        "Try it: `slotferry demo`, or `slotferry local` for a throw-away cluster. The verbs that look at or change a "
        "running cluster ask its topom: give --topom URL and --token TOKEN, or set SLOTFERRY_TOPOM and SLOTFERRY_TOKEN."
    ),
)

RUN = "Run"
LOOK = "Look at and change a running cluster"
OFFLINE = "Without a cluster"

app.add_typer(serve.proxy, name="proxy", rich_help_panel=RUN)
app.command("topom", rich_help_panel=RUN)(serve.topom)
app.command("migrator", rich_help_panel=RUN)(serve.migrator)
app.command("local", rich_help_panel=RUN)(serve.local)
app.command("demo", rich_help_panel=RUN)(demo.demo)
app.command("status", rich_help_panel=LOOK)(status.status)
app.command("load", rich_help_panel=LOOK)(load.load)
app.command("top", rich_help_panel=LOOK)(top.top)
app.command("events", rich_help_panel=LOOK)(events.events)
app.add_typer(groups.group, name="group", rich_help_panel=LOOK)
app.add_typer(groups.server, name="server", rich_help_panel=LOOK)
app.add_typer(nodes.app, name="node", rich_help_panel=LOOK)
app.add_typer(pool.app, name="pool", rich_help_panel=LOOK)
app.add_typer(placement.app, name="placement", rich_help_panel=LOOK)
app.add_typer(slots.app, name="slots", rich_help_panel=LOOK)
app.command("digest", rich_help_panel=LOOK)(digest.digest)
app.command("rebalance", rich_help_panel=LOOK)(rebalance.rebalance)
app.add_typer(migration.app, name="migration", rich_help_panel=LOOK)
app.command("pause", rich_help_panel=LOOK)(pausing.pause)
app.command("resume", rich_help_panel=LOOK)(pausing.resume)
app.add_typer(protection.app, name="protection", rich_help_panel=LOOK)
app.add_typer(sentinels.app, name="sentinel", rich_help_panel=LOOK)
app.add_typer(importing.app, name="import", rich_help_panel=LOOK)
app.add_typer(sizing.app, name="sizing", rich_help_panel=LOOK)
app.command("slot", rich_help_panel=OFFLINE)(offline.slot)
app.command("plan", rich_help_panel=OFFLINE)(offline.plan)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slotferry {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Entry point of the command."""
    app(prog_name="slotferry")
