"""``slotferry sizing``: measures the sizes of slots on Spark, and shows what was measured last."""

import functools
from typing import Any

import typer

from sizing import command
from slotferry.operator import options, sizes
from slots.topomtls import into_environment

app = typer.Typer(no_args_is_help=True, help="Size every key of every slot, on Spark, and see what was measured.")
app.command("show")(sizes.show_sizes)
app.command("list")(sizes.list_biggest)


@app.command("run")
@functools.wraps(command.run)
def run(**given: Any) -> None:
    """Size keys; topom is the one of the options, the environment or a context.

    Servers or files that are named need no topom, so only a context that the command line names gets their sizes.
    """
    named = given["servers"] or given["rdb"]
    if not named or given["topom"] or options.context_of_the_line():
        where = options.resolve(given["topom"], given["token"])
        given["topom"], given["token"] = where.topom, where.token
        # The data source looks for them there.
        into_environment(where.tls)
    command.run(**given)
