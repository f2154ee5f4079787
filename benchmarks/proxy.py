"""What a request costs in Slotferry's proxy, beside a direct connection, twemproxy and HAProxy.

    python -m benchmarks.proxy [--quick]

All of them run at the same time, and take turns with short runs of redis-benchmark, so that whatever else
the machine does hits all alike; a ratio is made of two runs of the same turn. README.md says how to read it.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    # Run as a file: this folder must not be searched, for this file would hide the package `proxy`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import peers, processes, report
from benchmarks.load import COMMANDS, Load, LoadFailed, Outcome, fill, run
from cli.processes import ProcessError
from cli.redis_server import find_binary, start_redis
from cli.signals import until_signal

SERVERS = 2
"""Redis servers behind each target."""
YARDSTICKS = ("twemproxy", "haproxy")
"""The targets that the others' figures are divided by."""
_SETTLE_SECONDS = 0.1


@dataclass(frozen=True)
class Sample:
    """One run of a load through a target; CPU is in microseconds a request, by role of the processes."""

    target: str
    repeat: int
    load: Load
    outcome: Outcome
    cpu_microseconds: dict[str, float]


def loads(commands: Sequence[str], pipelines: Sequence[int], shape: Load) -> list[Load]:
    """Every command at every pipeline depth.

    A run has ``shape.requests`` requests unpipelined and as many more with each doubling of the depth: a request
    is cheaper then, and the CPU time of a run has to stay well above what can be told apart.
    """
    return [
        replace(shape, command=command, pipeline=pipeline, requests=shape.requests * pipeline.bit_length())
        for command in commands
        for pipeline in pipelines
    ]


async def start_targets(
    stack: AsyncExitStack, names: Sequence[str], workers: int, console: Console
) -> list[peers.Target]:
    """Start what is to be measured and is installed; all end with ``stack``. Raises ProcessError."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slotferry-benchmark-")))
    binary = find_binary()
    servers = []
    for number in range(1, SERVERS + 1):
        server = await start_redis(f"redis-{number}", directory, binary=binary)
        stack.push_async_callback(server.stop)
        servers.append(server.address)
    targets = []
    for name in (name for name in peers.NAMES if name in names):
        if name == "direct":
            targets.append(peers.direct(servers[0], report.version(binary, "--version")))
        elif name == "slotferry":
            targets.append(await peers.start_slotferry(stack, SERVERS, workers))
        elif (program := peers.installed(name)) is None:
            console.print(f"[yellow]{name} is left out: it is not installed[/yellow]")
        elif name == "twemproxy":
            targets.append(await peers.start_twemproxy(stack, program, directory, servers))
        else:
            targets.append(await peers.start_haproxy(stack, program, directory, servers))
    return targets


async def measure(target: peers.Target, one: Load, repeat: int) -> Sample:
    """Run a load through a target once. Raises LoadFailed, ProcessGone."""
    before = processes.cpu_by_role(target.processes)
    outcome = await run(target.address, one)
    await asyncio.sleep(_SETTLE_SECONDS)  # the end of the clients' connections is paid for by this run too
    used = processes.spent(before, processes.cpu_by_role(target.processes))
    return Sample(target.name, repeat, one, outcome, {role: 1e6 * cpu / one.requests for role, cpu in used.items()})


async def measure_all(
    targets: Sequence[peers.Target], all_loads: Sequence[Load], repeats: int, console: Console
) -> list[Sample]:
    """All loads through all targets, target after target, as often as ``repeats`` says."""
    samples: list[Sample] = []
    turns = [(repeat, one, target) for repeat in range(repeats) for one in all_loads for target in targets]
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("filling", total=len(turns) + len(targets))
        for server in sorted({server for target in targets for server in target.servers}):
            # At every server all keys: HAProxy sends a GET to either.
            await asyncio.to_thread(fill, server, all_loads[0].keys, all_loads[0].value_bytes)
        for target in targets:
            progress.update(task, description=f"warming up {target.name}")
            await run(target.address, replace(all_loads[0], requests=max(1, all_loads[0].requests // 4)))
            progress.advance(task)
        for repeat, one, target in turns:
            progress.update(task, description=f"{target.name} {one.name}")
            samples.append(await measure(target, one, repeat))
            progress.advance(task)
    return samples


def select(samples: Sequence[Sample], target: str, one: Load) -> list[Sample]:
    """The samples of one target and load, in the order of the repeats."""
    return [sample for sample in samples if sample.target == target and sample.load == one]


def ratio(samples: Sequence[Sample], target: str, yardstick: str, one: Load) -> report.Spread | None:
    """CPU a request of one target divided by another's, turn by turn; None where either is not had."""
    pairs = zip(select(samples, target, one), select(samples, yardstick, one), strict=False)
    values = [
        above.cpu_microseconds[peers.PROXY] / below.cpu_microseconds[peers.PROXY]
        for above, below in pairs
        if peers.PROXY in above.cpu_microseconds and below.cpu_microseconds.get(peers.PROXY)
    ]
    return report.Spread.of(values) if values else None


def summarise(
    samples: Sequence[Sample], targets: Sequence[peers.Target], all_loads: Sequence[Load]
) -> list[dict[str, Any]]:
    """A row for each load and target: the figures as :class:`report.Spread`, the ratios by yardstick."""
    rows = []
    for one in all_loads:
        for target in targets:
            mine = select(samples, target.name, one)
            rows.append(
                {
                    "load": one,
                    "target": target.name,
                    "cpu_microseconds": {
                        role: report.Spread.of([sample.cpu_microseconds[role] for sample in mine])
                        for role in target.processes
                    },
                    "requests_per_second": report.Spread.of([s.outcome.requests_per_second for s in mine]),
                    "p50_milliseconds": report.Spread.of([s.outcome.p50_milliseconds for s in mine]),
                    "p99_milliseconds": report.Spread.of([s.outcome.p99_milliseconds for s in mine]),
                    "cpu_ratio": {
                        name: found for name in YARDSTICKS if (found := ratio(samples, target.name, name, one))
                    },
                }
            )
    return rows


def show_ratio(row: dict[str, Any], yardstick: str) -> str:
    """The cell of one target's ratio to a yardstick."""
    if row["target"] == yardstick:
        return "1"
    found: report.Spread | None = row["cpu_ratio"].get(yardstick)
    return found.show() if found else "-"


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print the rows as a table."""
    table = Table(title="median (least-greatest) of the repeats; CPU is user and system time of the proxy process")
    table.add_column("load", no_wrap=True)
    table.add_column("through", no_wrap=True)
    for heading in ("CPU us/request", "k requests/s", "p50 ms", "p99 ms", *(f"CPU / {name}" for name in YARDSTICKS)):
        table.add_column(heading, justify="right")
    for number, row in enumerate(rows):
        cpu = row["cpu_microseconds"].get(peers.PROXY)
        speed = row["requests_per_second"]
        thousands = report.Spread(speed.median / 1000, speed.least / 1000, speed.greatest / 1000)
        table.add_row(
            row["load"].name,
            row["target"],
            cpu.show() if cpu else "-",
            thousands.show(0),
            row["p50_milliseconds"].show(),
            row["p99_milliseconds"].show(),
            *(show_ratio(row, name) for name in YARDSTICKS),
            end_section=number + 1 == len(rows) or rows[number + 1]["load"] != row["load"],
        )
    console.print(table)
    beside = [(role, row) for row in rows for role in row["cpu_microseconds"] if role != peers.PROXY]
    for role in dict.fromkeys(role for role, _ in beside):
        figures = ", ".join(
            f"{row['load'].name} {row['cpu_microseconds'][role].median:.3f}" for r, row in beside if r == role
        )
        console.print(f"beside it, CPU us/request of {beside[0][1]['target']}'s {role}: {figures}")


def plain(value: Any) -> Any:
    """What JSON can hold of rows and samples."""
    if isinstance(value, Load | report.Spread | Sample):
        return asdict(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


async def benchmark(
    names: Sequence[str],
    all_loads: Sequence[Load],
    repeats: int,
    workers: int,
    output: Path | None,
    console: Console,
) -> Path:
    """Start everything, measure, print and save; say where."""
    before = report.machine()
    async with AsyncExitStack() as stack:
        targets = await start_targets(stack, names, workers, console)
        samples = await measure_all(targets, all_loads, repeats, console)
        rows = summarise(samples, targets, all_loads)
    show(rows, console)
    loaded = report.machine()["load_average"][0]
    console.print(
        f"load of the machine: {before['load_average'][0]} before, {loaded} at the end, on {before['cores']} cores"
    )
    path = report.save(
        "proxy",
        output,
        {
            "machine": before,
            "load_average_after": loaded,
            "versions": {target.name: target.version for target in targets},
            "workers": workers,
            "servers": SERVERS,
            "repeats": repeats,
            "rows": plain(rows),
            "samples": plain(samples),
        },
    )
    console.print(f"saved as {path}")
    return path


def split(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """The names in a comma-separated option."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise typer.BadParameter(f"{option} takes some of {', '.join(allowed)}, separated by commas")
    return names


def depths(text: str) -> list[int]:
    """The pipeline depths in a comma-separated option."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(1 <= depth <= 1024 for depth in found):
        raise typer.BadParameter("--pipelines takes depths from 1 to 1024, separated by commas")
    return found


def main(
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of an unpipelined run; deeper ones have more.")
    ] = 200_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = 5,
    value_bytes: Annotated[int, typer.Option(min=1, help="Size of the values.")] = 64,
    commands: Annotated[str, typer.Option(help=f"Some of {','.join(COMMANDS)}.")] = "get,set",
    pipelines: Annotated[str, typer.Option(help="Pipeline depths.")] = "1,16,64",
    clients: Annotated[int, typer.Option(min=1, help="Connections of redis-benchmark.")] = 50,
    keys: Annotated[int, typer.Option(min=1, help="Keys that the load takes at random.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of Slotferry's proxy.")] = 1,
    targets: Annotated[str, typer.Option(help="What to measure.")] = ",".join(peers.NAMES),
    quick: Annotated[bool, typer.Option("--quick", help="Two short repeats: to see that it works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """CPU per request and throughput of Slotferry's proxy beside other proxies, in one run."""
    console = Console() if sys.stdout.isatty() else Console(width=report.TABLE_WIDTH)
    shape = Load("", 1, 20_000 if quick else requests, clients, keys, value_bytes)
    all_loads = loads(split(commands, list(COMMANDS), "--commands"), depths(pipelines), shape)
    names = split(targets, peers.NAMES, "--targets")
    try:
        done = asyncio.run(until_signal(benchmark(names, all_loads, 2 if quick else repeats, workers, output, console)))
    except (LoadFailed, processes.ProcessGone, ProcessError, OSError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None
    if done is None:
        raise typer.Abort


if __name__ == "__main__":
    typer.run(main)
