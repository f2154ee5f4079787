"""Measures the cost of a request in Slotferry's proxy, compared with twemproxy, HAProxy and no proxy, and checks the
goals.

    python -m benchmarks.proxy [--quick]

All of them run at the same time, and take turns with short runs of redis-benchmark. So the machine's other work affects
all alike, and a ratio is made of two runs of the same turn. At the end many clients are held, and the figures are
compared with the goals. README.md says how to read them.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

if not __package__:
    # Run as a file, this folder must not be searched, for this file would hide the package `proxy`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks import clients, goals, peers, plan, processes, report, tables
from benchmarks.crowd import Crowd
from benchmarks.load import COMMANDS, Load, LoadFailed, fill, prefix_of, run
from benchmarks.samples import Sample, summarise
from slotferry.processes import ProcessError
from slotferry.signals import until_signal

CLIENTS = "clients"
"""The part that :mod:`benchmarks.clients` measures, with a cluster of its own."""
_WARM_REQUESTS = 10_000
_SETTLE_SECONDS = 0.1


@dataclass
class Measured:
    """The results of a run so far; ``failures`` describes runs without a result."""

    versions: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    crowd: Crowd | None = None
    failures: list[str] = field(default_factory=list)


async def measure(part: plan.Part, turn: int, load: Load, target: peers.Target) -> Sample:
    """Run a load through a target once. Raises LoadFailed, ProcessGone."""
    before = processes.cpu_by_role(target.processes)
    outcome = await run(target.address, load)
    await asyncio.sleep(_SETTLE_SECONDS)  # the end of the clients' connections is paid for by this run too
    used = processes.spent(before, processes.cpu_by_role(target.processes))
    cpu = {role: 1e6 * seconds / load.requests for role, seconds in used.items()}
    return Sample(part.name, turn, target.name, load, outcome, cpu)


async def measure_parts(parts: Sequence[plan.Part], measured: Measured, console: Console) -> None:
    """Start the targets, run every part through them, and end them. Raises ProcessError, ProcessGone, OSError."""
    names = {name for part in parts for name in part.targets}
    runs = [(part, *one) for part in parts for one in plan.turns(part)]
    keys = dict.fromkeys((load.keys, load.value_bytes) for _, _, load, _ in runs)
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(Progress(console=console, transient=True))
        task = progress.add_task("starting", total=len(runs))
        targets = {target.name: target for target in await peers.start(stack, sorted(names), console)}
        measured.versions = {name: target.version for name, target in targets.items()}
        progress.update(task, description="filling")
        for server in sorted({server for target in targets.values() for server in target.servers}):
            # Every server has all keys: HAProxy sends a GET to any of them.
            for count, value_bytes in keys:
                await asyncio.to_thread(fill, server, count, value_bytes, prefix_of(value_bytes))
        for target in targets.values():
            await run(target.address, replace(runs[0][2], requests=_WARM_REQUESTS))
        for part, turn, load, name in runs:
            progress.update(task, description=f"{name} {load.name}", advance=1)
            if name not in targets:
                continue
            try:
                measured.samples.append(await measure(part, turn, load, targets[name]))
            except LoadFailed as error:
                # The rest of the run is still useful.
                measured.failures.append(f"{name}: {error}")


async def measure_clients(scenario: clients.Scenario, measured: Measured, console: Console) -> None:
    """Hold many clients, if that is possible here."""
    with console.status(f"{scenario.clients} clients"):
        try:
            measured.crowd = await clients.measure(scenario)
        except (clients.ClientsFailed, LoadFailed, OSError) as error:
            measured.failures.append(f"{CLIENTS}: {error}")


async def benchmark(
    parts: Sequence[plan.Part], scenario: clients.Scenario | None, output: Path | None, console: Console
) -> Measured:
    """Measure everything, print it beside the goals, and save it."""
    before, begin = report.machine(), time.monotonic()
    measured = Measured()
    if parts:
        await measure_parts(parts, measured, console)
    if scenario:
        await measure_clients(scenario, measured, console)
    rows = {part.name: summarise(measured.samples, part) for part in parts}
    for part in parts:
        tables.show(part, rows[part.name], console)
    if scenario and measured.crowd:
        clients.show(measured.crowd, scenario, console)
    held = measured.crowd.values() if measured.crowd else {}
    controls = goals.judge(goals.CONTROLS, parts, measured.samples, held)
    verdicts = goals.judge(goals.GOALS, parts, measured.samples, held)
    if any(verdict.values for verdict in controls):
        goals.show("what two equal proxies differ by", controls, console, judged=False)
    goals.show("the goals", verdicts, console)
    seconds, loaded = time.monotonic() - begin, report.machine()["load_average"][0]
    console.print(
        f"{seconds:.0f} s; load of the machine: {before['load_average'][0]} before, {loaded} at the end, "
        f"on {before['cores']} cores",
        highlight=False,
    )
    content = {
        "machine": before,
        "load_average_after": loaded,
        "seconds": round(seconds, 1),
        "versions": measured.versions,
        "servers": peers.SERVERS,
        "goals": [verdict.row() for verdict in verdicts],
        "controls": [verdict.row() for verdict in controls],
        "failures": measured.failures,
        "parts": parts,
        "rows": [row for found in rows.values() for row in found],
        "scenario": scenario,
        "crowd": measured.crowd,
        "samples": measured.samples,
    }
    console.print(f"saved as {report.save('proxy', output, report.plain(content))}")
    return measured


def split(text: str, allowed: Sequence[str], option: str) -> list[str]:
    """The names in a comma-separated option."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise typer.BadParameter(f"{option} takes some of {', '.join(allowed)}, separated by commas")
    return names


def main(
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of an unpipelined run with small values; the others have their share.")
    ] = 50_000,
    turns: Annotated[int, typer.Option(min=1, help="How often what has a goal is measured.")] = 5,
    pairs: Annotated[int, typer.Option(min=1, help="How often two equal proxies are compared.")] = 20,
    parts: Annotated[str, typer.Option(help="What to measure.")] = ",".join((*plan.PARTS, CLIENTS)),
    commands: Annotated[str, typer.Option(help="Only these commands.")] = ",".join(COMMANDS),
    pipelines: Annotated[str, typer.Option(help="Only these pipeline depths.")] = ",".join(map(str, plan.DEPTHS)),
    targets: Annotated[str, typer.Option(help="Only through these.")] = ",".join(peers.NAMES),
    quick: Annotated[bool, typer.Option("--quick", help="One turn of short runs: to see that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """CPU, latency and memory of Slotferry's proxy beside other proxies, in one run, and whether it meets its goals."""
    console = report.console()
    if quick:
        requests, turns, pairs = 4_000, 1, 3
    names = split(parts, (*plan.PARTS, CLIENTS), "--parts")
    chosen = plan.only(
        plan.plan(requests, turns, pairs),
        names,
        split(commands, COMMANDS, "--commands"),
        [int(depth) for depth in split(pipelines, [str(depth) for depth in plan.DEPTHS], "--pipelines")],
        split(targets, peers.NAMES, "--targets"),
    )
    scenario = (clients.QUICK if quick else clients.FULL) if CLIENTS in names else None
    with report.failing(console, LoadFailed, processes.ProcessGone, ProcessError, OSError):
        measured = asyncio.run(until_signal(benchmark(chosen, scenario, output, console)))
    if measured is None:
        raise typer.Abort
    for failure in measured.failures:
        console.print(failure, style="red", markup=False, highlight=False)
    if measured.failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
