"""``slotferry proxy``, ``topom``, ``migrator`` and ``local``: commands that run until they are told to stop."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from slotferry.lending import own_context
from slotferry.local import END_SECONDS, LocalCluster
from slotferry.operator.draining import drain_proxy
from slotferry.operator.proxies import list_migrators, list_proxies, remove_proxy, show_proxy
from slotferry.operator.reloading import reload_proxy
from slotferry.output import fail, note, run
from slotferry.redis_server import described, find_binary
from slotferry.signals import until_signal
from slots.counting import counted
from slots.hangups import early_hangups

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="File of settings, in TOML. The environment wins over it."),
]

proxy = typer.Typer(
    invoke_without_command=True,
    help="Run a proxy, or see, reload, drain and remove those that topom knows.",
)
proxy.command("list")(list_proxies)
proxy.command("show")(show_proxy)
proxy.command("reload")(reload_proxy)
proxy.command("drain")(drain_proxy)
proxy.command("remove")(remove_proxy)

migrator = typer.Typer(invoke_without_command=True, help="Run a migrator, or see those that topom knows.")
migrator.command("list")(list_migrators)


@proxy.callback()
def run_proxy(context: typer.Context, config: Config = None) -> None:
    """Run a proxy until SIGTERM, or, with a verb, look at those that topom knows.

    Clients connect to it as to one Redis server. Every setting of configs/proxy.toml may also come from the
    environment: SLOTFERRY_PROXY_LISTEN for listen, and so on. On SIGTERM it lets its clients go, one after
    another and between their requests, and ends. On SIGHUP it reads its settings anew.
    """
    if context.invoked_subcommand is not None:
        early_hangups.over()
        return
    # Imported here, as in topom below: no other command needs the compiled engine or the web server.
    from proxy.settings import ProxySettings
    from proxy.supervisor import supervisor
    from slots.settings import SettingsError

    try:
        settings = ProxySettings.load(config)
    except SettingsError as error:
        raise fail(str(error)) from None
    raise typer.Exit(supervisor.run(settings, file=config))


def topom(
    config: Config = None,
    newest: Annotated[
        bool,
        typer.Option(
            "--newest-store",
            help="This store is the newest, although a proxy has shown a newer table. Only if that table is none of "
            "this cluster's, as of a trial with a copy of the store; a wrong word here loses keys.",
        ),
    ] = False,
) -> None:
    """Run topom, the control plane, until SIGTERM.

    It keeps groups, proxies and slots, moves slots, and serves the HTTP API that the other commands use. On SIGHUP
    it reads its settings anew. Every
    setting of configs/topom.toml may also come from the environment: SLOTFERRY_TOPOM_LISTEN for listen, and so on.
    """
    from slots.settings import SettingsError
    from topom import server
    from topom.term.settings import TopomSettings

    try:
        settings = TopomSettings.load(config)
    except SettingsError as error:
        raise fail(str(error)) from None
    raise typer.Exit(server.run(settings, config, newest))


@migrator.callback()
def run_migrator(context: typer.Context, config: Config = None) -> None:
    """Run a migrator until SIGTERM: it makes copies by the replication stream for topom.

    topom starts one itself on its own machine if there is no other. Run migrators near the Redis servers, so that
    topom's machine carries no data. Every setting of configs/migrator.toml may also come from the environment:
    SLOTFERRY_MIGRATOR_TOKEN for token, and so on.
    """
    if context.invoked_subcommand is not None:
        early_hangups.over()
        return
    from migrator.process import process
    from migrator.process.settings import MigratorSettings
    from slots.settings import SettingsError

    try:
        settings = MigratorSettings.load(config)
    except SettingsError as error:
        raise fail(str(error)) from None
    raise typer.Exit(process.run(settings, file=config))


def local(
    groups: Annotated[int, typer.Option("--groups", min=1, max=64, help="Groups of one Redis server each.")] = 2,
    proxies: Annotated[int, typer.Option("--proxies", min=1, max=16, help="Proxies.")] = 1,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Worker processes of each proxy.")] = 1,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65000, help="Port of the first proxy, the others follow; 0: any free ones."),
    ] = 0,
    databases: Annotated[int, typer.Option("--databases", min=1, max=10_000, help="Databases of each server.")] = 16,
) -> None:
    """Run a whole throw-away cluster on this machine: Redis servers, topom and proxies.

    Once it serves it prints one line of JSON on standard output saying where everything is. It runs until
    SIGINT or SIGTERM, keeps nothing and leaves nothing behind.
    """
    cluster = LocalCluster(
        groups=groups, proxies=proxies, workers=workers, databases=databases, port=port, end_seconds=END_SECONDS
    )
    note(
        f"starting {counted(groups, 'Redis server')}, topom, and {'1 proxy' if proxies == 1 else f'{proxies} proxies'}"
    )
    run(until_signal(_run_local(cluster)))
    for name in cluster.killed:
        note(f"{name} did not end by itself and was killed")


async def _run_local(cluster: LocalCluster) -> None:
    async with cluster, own_context(cluster, "local") as command:
        print(json.dumps(cluster.describe()), flush=True)
        note(f"servers: {described(find_binary())}")
        note(f"page: {cluster.page_url}")
        note(f"look at it: {command} status")
        note(f"redis-cli -p {cluster.proxy_addresses[0].rpartition(':')[2]} talks to it; Ctrl-C ends it")
        await asyncio.Event().wait()
