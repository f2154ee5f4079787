"""Measures how fast slots move from one group to another, and how a client's latency changes.

    python -m benchmarks.migration [--quick]

All slots and keys are on the first of two groups. A probe sends GET and SET through the proxy all the time: first in
quiet, then while the upper half of the slots moves to the second group, then in quiet again. It does so once for each
way and latency goal, each time with a new cluster. README.md says how to read the figures.
"""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

if not __package__:
    # Run as a file, this folder must not be searched, for its proxy.py would hide the package `proxy`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import redis
import typer
from rich.console import Console

from benchmarks import processes, report
from benchmarks.load import LoadFailed
from benchmarks.moved import Run, show
from benchmarks.onemove import MigrationFailed, Scenario, measure
from slotferry.calls import TopomError
from slotferry.processes import ProcessError
from slotferry.signals import until_signal


async def benchmark(scenario: Scenario, repeats: int, output: Path | None, console: Console) -> list[Run]:
    """Measure as often as asked, each time with a new cluster; print and save."""
    before = report.machine()
    # Ways and goals take turns, so that a disturbance affects all alike.
    runs = [
        await measure(scenario, way, goal, console)
        for _ in range(repeats)
        for goal in scenario.latency_goals
        for way in scenario.ways
    ]
    show(runs, console)
    content = {
        "machine": before,
        "load_average_after": report.machine()["load_average"][0],
        "scenario": asdict(scenario),
        "runs": [
            {
                "keys_per_second": run.keys_per_second,
                "keys_per_second_begun": run.keys_per_second_begun,
                "slower": run.slower,
                "added": run.added,
                **asdict(run),
            }
            for run in runs
        ],
    }
    console.print(f"saved as {report.save('migration', output, content)}")
    return runs


def main(
    keys: Annotated[int, typer.Option(min=1, help="Keys on the first group; about half of them move.")] = 1_000_000,
    value_bytes: Annotated[int, typer.Option(min=1, help="Size of the values.")] = 100,
    proxies: Annotated[int, typer.Option(min=1, help="Proxies, over which the probe's connections are spread.")] = 2,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of each proxy.")] = 1,
    parallel_slots: Annotated[int, typer.Option(min=0, help="Slots moved together; 0: topom's default.")] = 0,
    rate_limit: Annotated[int, typer.Option(min=0, help="Keys a second that may move; 0: no limit.")] = 0,
    big_keys: Annotated[int, typer.Option(min=0, help="Hashes that move besides.")] = 0,
    big_fields: Annotated[int, typer.Option(min=1, help="Fields of each of these, of 32 bytes.")] = 100_000,
    huge_fields: Annotated[int, typer.Option(min=0, help="Fields of one more hash; 0: there is none.")] = 0,
    random_values: Annotated[bool, typer.Option(help="Values that no server can compress.")] = False,
    replica: Annotated[bool, typer.Option(help="Fill a stock replica before, to see what the servers give.")] = False,
    hot_writes: Annotated[
        float, typer.Option(min=0, help="INCR a second, besides, of keys that move; none may be lost.")
    ] = 0,
    latency_goal: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Latency goal in milliseconds, 0 for none; may be given often. By default 0 and 10."),
    ] = None,
    way: Annotated[
        list[str] | None, typer.Option(help="How slots move, keys or stream; may be given often. By default both.")
    ] = None,
    connections: Annotated[int, typer.Option(min=1, max=64, help="Connections of the probe.")] = 8,
    rate: Annotated[
        float, typer.Option(min=0, help="The probe's requests a second; 0: as fast as replies come.")
    ] = 1000,
    writes: Annotated[float, typer.Option(min=0, max=1, help="Part of the probe's requests that are SET.")] = 0.2,
    quiet_seconds: Annotated[float, typer.Option(min=1, help="Length of the quiet phases before and after.")] = 10,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which a move has failed.")] = 600,
    repeats: Annotated[int, typer.Option(min=1, help="How often, each time with a new cluster.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="100,000 keys and short phases: to see that it works.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Keys a second moved between two groups, and a client's latency before, during and after."""
    console = report.console()
    if quick:
        keys, quiet_seconds = 100_000, 3.0
    scenario = Scenario(
        keys,
        value_bytes,
        proxies,
        workers,
        parallel_slots,
        rate_limit,
        big_keys,
        big_fields,
        huge_fields,
        random_values,
        replica,
        hot_writes,
        tuple(latency_goal or (0.0, 10.0)),
        tuple(way or ("keys", "stream")),
        connections,
        rate,
        writes,
        quiet_seconds,
        limit,
    )
    with report.failing(
        console, MigrationFailed, LoadFailed, TopomError, ProcessError, processes.ProcessGone, redis.RedisError, OSError
    ):
        runs = asyncio.run(until_signal(benchmark(scenario, repeats, output, console)))
    if runs is None:
        raise typer.Abort
    if any(phase.failed for run in runs for phase in run.phases.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
