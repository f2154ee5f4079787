"""``slotferry sizing``, and the same through ``spark-submit``: its options and its exit status.

PySpark is imported by nothing here before a command runs, so that ``slotferry`` starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import typer

from sizing import flags, interrupting, shipping
from sizing.access import TOKEN
from slots.forms import Form, written
from slots.logs import configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from sizing.job import Outcome
    from sizing.outcome import JobRequest

INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, help="Size every key of every slot, on Spark.")


@app.callback()
def _family() -> None:
    """Makes ``run`` a verb even while it is the only one."""


@app.command("run")
def run(
    into: flags.Into,
    topom: flags.Topom = "",
    token: flags.Token = "",
    servers: flags.Servers = "",
    rdb: flags.Rdb = "",
    master: flags.Master = "",
    conf: flags.Conf = None,
    ship: flags.Ship = False,
    sample_fraction: flags.SampleFraction = 1.0,
    samples: flags.Samples = None,
    scan_count: flags.ScanCount = None,
    keys_per_second: flags.KeysPerSecond = None,
    details: flags.Details = False,
    number_of_slots: flags.NumberOfSlots = None,
    function: flags.Function = None,
    option: flags.Other = None,
    separator: flags.Separator = ":",
    depth: flags.Depth = 2,
    prefixes: flags.Prefixes = 1000,
    biggest: flags.Biggest = 100,
    biggest_per_slot: flags.BiggestPerSlot = 10,
    parallel: flags.Parallel = 8,
    keep_keys: flags.KeepKeys = False,
    fresh: flags.Fresh = False,
    post: flags.Post = True,
    warm: flags.Warm = False,
    form: flags.Output = Form.TABLE,
) -> None:
    """Size every key: tables in DIR, one page as DIR/summary.png, and the sizes of slots to topom.

    The same command again goes on where it was: servers that were read are not read again. Exit status: 0 complete;
    1 failed; 3 partial, some servers or files could not be read; 4 sized, but topom did not take it.
    """
    from sizing.outcome import JobRequest

    _check(topom, servers, rdb, sample_fraction, separator, warm)
    # The data source looks for it there. One of another cluster than topom's does not stay.
    os.environ[TOKEN] = token
    named = {
        "samples": samples,
        "scan_count": scan_count,
        "max_keys_per_second": keys_per_second,
        "number_of_slots": number_of_slots,
        "function": function,
    }
    request = JobRequest(
        output=into if "://" in into else str(Path(into).absolute()),
        topom=topom,
        token=token,
        servers=servers,
        rdb=rdb,
        source=_pairs(option, "--option") | {name: str(value) for name, value in named.items() if value is not None},
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
    options = _pairs(conf, "--conf")
    with interrupting.heard(), tempfile.TemporaryDirectory(prefix="slotferry-sizing-") as folder:
        if ship:
            options = {**shipping.options(shipping.pack(Path(folder))), **options}
        raise typer.Exit(_work(request, master, options, form, warm))


def _check(topom: str, servers: str, rdb: str, fraction: float, separator: str, warm: bool) -> None:
    if servers and rdb:
        raise typer.BadParameter(
            "cannot be used with --rdb: keys are read from servers or from files", param_hint="--servers"
        )
    if not (topom or servers or rdb):
        raise typer.BadParameter("is needed to find the servers; or give --servers, or --rdb", param_hint="--topom")
    if not 0 < fraction <= 1:
        raise typer.BadParameter("has to be more than 0 and at most 1", param_hint="--sample-fraction")
    if rdb and fraction < 1:
        raise typer.BadParameter("cannot be used with --rdb: files are read whole", param_hint="--sample-fraction")
    if not separator:
        raise typer.BadParameter("cannot be empty", param_hint="--separator")
    if warm and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise typer.BadParameter(
            "cannot be used with spark-submit, which has already started Java", param_hint="--warm"
        )


def _pairs(settings: list[str] | None, hint: str) -> dict[str, str]:
    found = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint=hint)
        found[name] = value
    return found


def _work(request: JobRequest, master: str, options: dict[str, str], form: Form, warm: bool) -> int:
    """Begin a session of Spark, size, and say what came of it: the exit status."""
    from rich.console import Console

    from sizing import archive
    from sizing.errors import SizingError
    from sizing.outcome import read_options
    from sizing.session import close, leave, open_session

    said = Console(stderr=True)
    # Standard output is for the summary.
    configure("info")
    try:
        if not request.rdb:
            read_options(request)
        unfinished = archive.begin() if warm else None
        session = open_session(master, options, unfinished)
    except SizingError as error:
        return _fail(said, str(error))
    try:
        outcome = interrupting.interruptible(
            lambda told: _size(session, request, said, form, told), session.sparkContext.cancelAllJobs, leave
        )
    except KeyboardInterrupt:
        said.print("interrupted; the same command again goes on where this one was")
        return INTERRUPTED
    except SizingError as error:
        session.stop()
        return _fail(said, str(error))
    session.stop()
    if unfinished is not None:
        try:
            close(session, unfinished)
        except SizingError as error:
            said.print(f"later runs will not start sooner: {error}", highlight=False, soft_wrap=True)
    return _say(outcome, request, said, form)


def _size(session: SparkSession, request: JobRequest, said: Console, form: Form, told: Event) -> Outcome:
    # Only now, because these need PySpark and matplotlib.
    from rich.console import Console

    from sizing import job, terminal

    return job.run(
        session,
        request,
        terminal.Bar(said),
        lambda summary: None if form is not Form.TABLE else terminal.show(summary, Console()),
        told,
    )


def _say(outcome: Outcome, request: JobRequest, said: Console, form: Form) -> int:
    from sizing.summary import to_json

    if outcome.summary is None:
        return _fail(said, "nothing could be read, see above; the same command tries it again")
    if form is not Form.TABLE:
        sys.stdout.write(written(to_json(outcome.summary), form) + "\n")
    else:
        said.print(f"tables and the page are in {request.output}", highlight=False, soft_wrap=True)
    return int(outcome.status)


def _fail(said: Console, message: str) -> int:
    from rich.markup import escape

    said.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    return 1


def main() -> None:
    """Entry point for ``spark-submit`` and ``python -m sizing``."""
    app(prog_name="sizing")
