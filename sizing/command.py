"""``slotferry sizing``, and the same through ``spark-submit``: options, and what comes of them as an exit status.

PySpark is imported by nothing here before a command runs, so that ``slotferry`` starts without it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sizing import shipping
from sizing.access import TOKEN
from slots import functions
from slots.logs import configure
from slots.table import DEFAULT_SLOTS, MAXIMUM_SLOTS

if TYPE_CHECKING:
    from rich.console import Console

    from sizing.outcome import Wishes

INTERRUPTED = 130
DEFAULTS_OF_SPARK = "local[*], or what spark-submit says"

app = typer.Typer(no_args_is_help=True, help="Size every key of every slot, on Spark.")


@app.callback()
def _family() -> None:
    """So that ``run`` is a verb also while it is the only one."""


@app.command("run")
def run(
    output: Annotated[
        str,
        typer.Option("--output", metavar="DIR", help="Folder of the results: a path, or an address that Spark writes."),
    ],
    topom: Annotated[
        str,
        typer.Option(
            "--topom",
            envvar="SLOTFERRY_TOPOM",
            metavar="URL,...",
            help="topom, which knows the servers and gets the sizes.",
        ),
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            "--token",
            envvar="SLOTFERRY_TOKEN",
            metavar="TOKEN",
            show_default=False,
            help="topom's bearer token. Better in the environment, where other users do not see it.",
        ),
    ] = "",
    servers: Annotated[
        str, typer.Option("--servers", metavar="HOST:PORT,...", help="Servers to read, where there is no topom.")
    ] = "",
    rdb: Annotated[
        str,
        typer.Option(
            "--rdb", metavar="GLOB", help="Read these RDB files instead of servers. Quote it: 'backups/*.rdb'."
        ),
    ] = "",
    master: Annotated[
        str,
        typer.Option(
            "--master", metavar="MASTER", help=f"Spark's master, as spark://host:7077. Default: {DEFAULTS_OF_SPARK}."
        ),
    ] = "",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's own. Repeatable.")
    ] = None,
    ship: Annotated[
        bool, typer.Option("--ship", help="Send this installation's code to executors that do not have it.")
    ] = False,
    sample_fraction: Annotated[
        float, typer.Option("--sample-fraction", metavar="P", help="Share of the keys to size; totals are scaled up.")
    ] = 1.0,
    samples: Annotated[
        int | None,
        typer.Option("--samples", min=0, help="Elements that MEMORY USAGE looks at in a big key; 0: all of them."),
    ] = None,
    scan_count: Annotated[int | None, typer.Option("--scan-count", min=1, help="COUNT of each SCAN.")] = None,
    keys_per_second: Annotated[
        int | None,
        typer.Option("--max-keys-per-second", min=0, help="Keys read a second from one server; 0: no limit."),
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Ask for each key's encoding and length as well, which takes longer.")
    ] = False,
    number_of_slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, max=MAXIMUM_SLOTS, help=f"Slots, without topom. [default: {DEFAULT_SLOTS}]"),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--slot-function", help=f"Without topom: {', '.join(functions.names())}. [default: crc32]"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="Another option of the data source, as timeout_seconds=60. Repeatable.",
        ),
    ] = None,
    separator: Annotated[str, typer.Option("--separator", help="What ends a prefix in the names of keys.")] = ":",
    depth: Annotated[int, typer.Option("--depth", min=1, max=8, help="Separators in the longest prefix.")] = 2,
    prefixes: Annotated[int, typer.Option("--prefixes", min=1, help="Prefixes of each depth at most.")] = 1000,
    biggest: Annotated[int, typer.Option("--biggest", min=1, help="Biggest keys of all, so many.")] = 100,
    biggest_per_slot: Annotated[
        int, typer.Option("--biggest-per-slot", min=1, help="Biggest keys of each slot, so many.")
    ] = 10,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="Servers or files read at once.")] = 8,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys", help="Keep all keys under DIR/keys; else they go when the run is complete.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew in a DIR that has a run.")] = False,
    post: Annotated[bool, typer.Option("--post/--no-post", help="Whether topom is told the sizes of slots.")] = True,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm", help="Have later runs here start sooner: leaves 160 MB of Java's classes in ~/.cache/slotferry."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one line of JSON.")] = False,
) -> None:
    """Size every key: tables in DIR, one page as DIR/summary.png, and the sizes of slots to topom.

    The same command again goes on where it was: servers that were read are not read again. Exit status: 0 complete;
    1 failed; 3 partial, some servers or files could not be read; 4 sized, but topom did not take it.
    """
    from sizing.outcome import Wishes

    _check(topom, servers, rdb, sample_fraction, separator)
    if warm and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise typer.BadParameter("goes without spark-submit, which has started Java already", param_hint="--warm")
    if token:
        # Where the data source looks for it.
        os.environ[TOKEN] = token
    given = {
        "samples": samples,
        "scan_count": scan_count,
        "max_keys_per_second": keys_per_second,
        "number_of_slots": number_of_slots,
        "function": function,
    }
    wishes = Wishes(
        output=output if "://" in output else str(Path(output).absolute()),
        topom=topom,
        token=token,
        servers=servers,
        rdb=rdb,
        source={
            **_pairs(option or [], "--option"),
            **{name: str(value) for name, value in given.items() if value is not None},
        },
        fraction=sample_fraction,
        details=details,
        separator=separator,
        depth=depth,
        prefixes=prefixes,
        biggest=biggest,
        biggest_per_slot=biggest_per_slot,
        parallel=parallel,
        keep_keys=keep_keys,
        fresh=fresh,
        post=post,
    )
    options = _pairs(conf or [], "--conf")
    with tempfile.TemporaryDirectory(prefix="slotferry-sizing-") as folder:
        if ship:
            options = {**shipping.options(shipping.pack(Path(folder))), **options}
        raise typer.Exit(_work(wishes, master, options, as_json, warm))


def _check(topom: str, servers: str, rdb: str, fraction: float, separator: str) -> None:
    if servers and rdb:
        raise typer.BadParameter("goes without --rdb: keys are read from servers or from files", param_hint="--servers")
    if not (topom or servers or rdb):
        raise typer.BadParameter("is needed to find the servers; or give --servers, or --rdb", param_hint="--topom")
    if not 0 < fraction <= 1:
        raise typer.BadParameter("has to be more than 0 and at most 1", param_hint="--sample-fraction")
    if rdb and fraction < 1:
        raise typer.BadParameter("goes without --rdb: files are read whole", param_hint="--sample-fraction")
    if not separator:
        raise typer.BadParameter("cannot be empty", param_hint="--separator")


def _pairs(settings: list[str], hint: str) -> dict[str, str]:
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint=hint)
        found[name] = value
    return found


def _work(wishes: Wishes, master: str, options: dict[str, str], as_json: bool, warm: bool) -> int:
    from rich.console import Console

    from sizing import archive
    from sizing.errors import SizingError
    from sizing.outcome import read_options
    from sizing.session import close, open_session

    said = Console(stderr=True)
    # Standard output is the summary's.
    configure("info")
    try:
        if not wishes.rdb:
            read_options(wishes)
        unfinished = archive.begin() if warm else None
        session = open_session(master, options, unfinished)
    except SizingError as error:
        return _fail(said, str(error))
    # Only now, for these need PySpark and matplotlib to be there.
    from sizing import job, terminal
    from sizing.summary import to_json

    try:
        outcome = job.run(
            session,
            wishes,
            terminal.Bar(said),
            lambda summary: None if as_json else terminal.show(summary, Console()),
        )
    except SizingError as error:
        return _fail(said, str(error))
    except KeyboardInterrupt:
        said.print("interrupted; the same command again goes on where this one was")
        return INTERRUPTED
    finally:
        session.stop()
    if unfinished is not None:
        try:
            close(session, unfinished)
        except SizingError as error:
            said.print(f"later runs will not start sooner: {error}", highlight=False, soft_wrap=True)
    if outcome.summary is None:
        return _fail(said, "nothing could be read, see above; the same command tries it again")
    if as_json:
        sys.stdout.write(json.dumps(to_json(outcome.summary)) + "\n")
    else:
        said.print(f"tables and the page are in {wishes.output}", highlight=False, soft_wrap=True)
    return int(outcome.status)


def _fail(said: Console, message: str) -> int:
    from rich.markup import escape

    said.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return 1


def main() -> None:
    """Entry point for ``spark-submit`` and ``python -m sizing``."""
    app(prog_name="sizing")
