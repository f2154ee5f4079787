"""The command ``slotferry``: puts the families of verbs together."""

import os
from typing import Annotated

import typer

from slotferry import __version__, completing, demo, offline, serve, settingsfiles
from slotferry.operator import (
    contexts,
    digest,
    doctor,
    events,
    groups,
    importing,
    load,
    migration,
    nodes,
    options,
    pausing,
    placement,
    pool,
    protection,
    rebalance,
    reloading,
    rules,
    sentinels,
    sizing,
    slot,
    status,
    top,
    users,
)
from slotferry.operator.addressing import Line
from slotferry.output import written_or_told
from slotferry.usage import Root
from slots import topomtls
from slots.hangups import early_hangups
from slots.topomtls import Files

app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Many stock Redis servers made to look like one, with slots that move between them while clients work.\n\n"
        "Try it: `slotferry demo`, or `slotferry local` for a throw-away cluster. The verbs that look at or change a "
        "running cluster ask its topom: give --topom URL and --token behind the verb, set SLOTFERRY_TOPOM and "
        "SLOTFERRY_TOKEN, or keep both in a context: `slotferry context set NAME --topom URL`. For a topom that serves "
        f"TLS, a context keeps certificates, too; {topomtls.AUTHORITIES}, {topomtls.CERTIFICATE} and {topomtls.KEY} go "
        "before it, and the options --tls-* before all."
    ),
)

RUN = "Run"
LOOK = "Look at and change a running cluster"
OFFLINE = "Without a cluster"

app.add_typer(serve.proxy, name="proxy", rich_help_panel=RUN)
app.command("topom", rich_help_panel=RUN)(serve.topom)
app.add_typer(serve.migrator, name="migrator", rich_help_panel=RUN)
app.command("local", rich_help_panel=RUN)(serve.local)
app.command("demo", rich_help_panel=RUN)(demo.demo)
app.command("status", rich_help_panel=LOOK)(status.status)
app.command("doctor", rich_help_panel=LOOK)(doctor.doctor)
app.command("load", rich_help_panel=LOOK)(load.load)
app.command("top", rich_help_panel=LOOK)(top.top)
app.command("events", rich_help_panel=LOOK)(events.events)
app.add_typer(groups.group, name="group", rich_help_panel=LOOK)
app.add_typer(groups.server, name="server", rich_help_panel=LOOK)
app.add_typer(nodes.app, name="node", rich_help_panel=LOOK)
app.add_typer(pool.app, name="pool", rich_help_panel=LOOK)
app.add_typer(placement.app, name="placement", rich_help_panel=LOOK)
app.add_typer(slot.app, name="slot", rich_help_panel=LOOK)
app.add_typer(rules.app, name="rules", rich_help_panel=LOOK)
app.add_typer(digest.app, name="digest", rich_help_panel=LOOK)
app.add_typer(rebalance.app, name="rebalance", rich_help_panel=LOOK)
app.add_typer(migration.app, name="migration", rich_help_panel=LOOK)
app.command("pause", rich_help_panel=LOOK)(pausing.pause)
app.command("resume", rich_help_panel=LOOK)(pausing.resume)
app.add_typer(protection.app, name="protection", rich_help_panel=LOOK)
app.add_typer(users.app, name="user", rich_help_panel=LOOK)
app.add_typer(sentinels.app, name="sentinel", rich_help_panel=LOOK)
app.add_typer(importing.app, name="import", rich_help_panel=LOOK)
app.add_typer(sizing.app, name="sizing", rich_help_panel=LOOK)
app.add_typer(reloading.settings, name="settings", rich_help_panel=LOOK)
app.add_typer(contexts.app, name="context", rich_help_panel=LOOK)
app.add_typer(settingsfiles.app, name="config", rich_help_panel=OFFLINE)
app.command("plan", rich_help_panel=OFFLINE)(offline.plan)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slotferry {__version__}")
        raise typer.Exit


SERVING = frozenset({"proxy", "topom", "migrator"})
"""Commands that read their settings anew on SIGHUP, but for the verbs that some have."""


@app.callback()
def _root(
    line: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            show_default="the one in use",
            help="The cluster to talk to: one that `slotferry context` keeps. SLOTFERRY_CONTEXT may name it, too.",
            autocompletion=options.names_of_contexts,
        ),
    ] = "",
    tls_ca: options.TlsCa = "",
    tls_certificate: options.TlsCertificate = "",
    tls_key: options.TlsKey = "",
) -> None:
    """Options of the command itself."""
    if line.invoked_subcommand not in SERVING:
        early_hangups.over()
    options.begin(Line(context, Files(tls_ca, tls_certificate, tls_key)))


def main() -> None:
    """Run it (:mod:`slotferry.__main__` is the entry point)."""
    with completing.words_of_bash(os.environ, "_SLOTFERRY_COMPLETE"), written_or_told():
        app(prog_name="slotferry")
