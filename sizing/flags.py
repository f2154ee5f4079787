"""Options of ``slotferry sizing run``: what each is called, what it takes, and what is said of it."""

from typing import Annotated

import typer

from slots import functions
from slots.forms import Form
from slots.slot import MAXIMUM_SLOTS
from slots.table import DEFAULT_SLOTS

DEFAULTS_OF_SPARK = "local[*], or what spark-submit says"

# What is read, and where the results go.

Into = Annotated[
    str,
    typer.Option("--into", metavar="DIR", help="Folder of the results: a path, or an address that Spark writes."),
]
Topom = Annotated[
    str,
    typer.Option(
        "--topom",
        envvar="SLOTFERRY_TOPOM",
        metavar="URL,...",
        help="topom, which knows the servers and gets the sizes.",
        show_default=False,
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="SLOTFERRY_TOKEN",
        metavar="TOKEN",
        show_default=False,
        help="topom's bearer token. Better in the environment, where other users do not see it.",
    ),
]
Servers = Annotated[
    str, typer.Option("--servers", metavar="HOST:PORT,...", help="Servers to read, where there is no topom.")
]
Rdb = Annotated[
    str,
    typer.Option("--rdb", metavar="GLOB", help="Read these RDB files instead of servers. Quote it: 'backups/*.rdb'."),
]

# Spark.

Master = Annotated[
    str,
    typer.Option(
        "--master", metavar="MASTER", help=f"Spark's master, as spark://host:7077. Default: {DEFAULTS_OF_SPARK}."
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's own. Repeatable.")
]
Ship = Annotated[bool, typer.Option("--ship", help="Send this installation's code to executors that do not have it.")]
Warm = Annotated[
    bool,
    typer.Option(
        "--warm", help="Have later runs here start sooner: leaves 160 MB of Java's classes in ~/.cache/slotferry."
    ),
]

# The data source.

SampleFraction = Annotated[
    float, typer.Option("--sample-fraction", metavar="P", help="Share of the keys to size; totals are scaled up.")
]
Samples = Annotated[
    int | None,
    typer.Option("--samples", min=0, help="Elements that MEMORY USAGE looks at in a big key; 0: all of them."),
]
ScanCount = Annotated[int | None, typer.Option("--scan-count", min=1, help="COUNT of each SCAN.")]
KeysPerSecond = Annotated[
    int | None,
    typer.Option("--max-keys-per-second", min=0, help="Keys read a second from one server; 0: no limit."),
]
Details = Annotated[
    bool, typer.Option("--details", help="Ask for each key's encoding and length as well, which takes longer.")
]
NumberOfSlots = Annotated[
    int | None,
    typer.Option("--slots", min=1, max=MAXIMUM_SLOTS, help=f"Slots, without topom. [default: {DEFAULT_SLOTS}]"),
]
Function = Annotated[
    str | None,
    typer.Option("--slot-function", help=f"Without topom: {', '.join(functions.names())}. [default: crc32]"),
]
Other = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Another option of the data source, as timeout_seconds=60. Repeatable.",
    ),
]
Parallel = Annotated[int, typer.Option("--parallel", min=1, help="Servers or files read at once.")]

# The tables.

Separator = Annotated[str, typer.Option("--separator", help="What ends a prefix in the names of keys.")]
Depth = Annotated[int, typer.Option("--depth", min=1, max=8, help="Separators in the longest prefix.")]
Prefixes = Annotated[
    int,
    typer.Option("--prefixes", min=0, help="Prefixes of each depth at most. 0: none, so topom is told none either."),
]
Biggest = Annotated[int, typer.Option("--biggest", min=1, help="Biggest keys of all, so many.")]
BiggestPerSlot = Annotated[int, typer.Option("--biggest-per-slot", min=1, help="Biggest keys of each slot, so many.")]
KeepKeys = Annotated[
    bool, typer.Option("--keep-keys", help="Keep all keys under DIR/keys; else they go when the run is complete.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew in a DIR that has a run.")]
Post = Annotated[bool, typer.Option("--post/--no-post", help="Whether topom is told the sizes of slots.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="Print the summary as tables, one line of JSON, or YAML.")]
