"""Measures how fast slots move from one group to another, and how a client's latency changes.

    python -m benchmarks.migration [--quick]

All slots and keys are on the first of two groups. A probe sends GET and SET through the proxy all the time: first in
quiet, then while the upper half of the slots moves to the second group, then in quiet again. It does so once for each
way and latency goal, each time with a new cluster. README.md says how to read the figures.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

if not __package__:
    # Run as a file, this folder must not be searched, for its proxy.py would hide the package `proxy`.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.load import LoadFailed, fill
from benchmarks.load import key as key_of
from benchmarks.moves import STEP_MILLISECONDS, Looking, Writing, client_of, memory_bytes, moving_names
from benchmarks.probe import Kind, Request, read
from benchmarks.samples import PROXY
from slotferry.calls import TopomError
from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess, ProcessError
from slotferry.redis_server import ask
from slotferry.signals import until_signal
from slots.ranges import show as show_slots
from slots.reserved import RESERVED_KEYS

SOURCE = 1
TARGET = 2
OTHERS = "all others"
"""The role of all other work of the machine, including this program's."""
WARM_SECONDS = 2.0
"""The probe's first seconds, which are not counted."""
REDIS_ARGUMENTS = ("--repl-diskless-sync-delay", "0")
"""A server waits 5 s by default before it begins a snapshot. Figures count from its beginning."""
_POLL_SECONDS = 0.1
_PROBE_STOP_SECONDS = 30.0
_WINDOW_SECONDS = 0.1
_FILL_BYTES = 1_000_000
_ROOT = Path(__file__).resolve().parent.parent


class MigrationFailed(RuntimeError):
    """The slots did not move in time, or not to where they should."""


@dataclass(frozen=True)
class Scenario:
    """The move, and the probe's requests meanwhile. 0 means topom's default, or no limit."""

    keys: int
    value_bytes: int
    workers: int
    parallel_slots: int
    keys_per_second: int
    big_keys: int
    big_fields: int
    huge_fields: int
    random_values: bool
    hot_writes: float
    latency_goals: tuple[float, ...]
    ways: tuple[str, ...]
    connections: int
    rate: float
    writes: float
    quiet_seconds: float
    limit_seconds: float


@dataclass(frozen=True)
class Phase:
    """The probe's figures in one span of time; times are in milliseconds."""

    seconds: float
    requests: int
    p50: float
    p99: float
    p999: float
    maximum: float
    failed: dict[str, int]

    @classmethod
    def of(cls, requests: Sequence[Request], begin: float, end: float) -> "Phase":
        """The phase of the requests that began between two moments of the monotonic clock."""
        within = [request for request in requests if begin <= request.at < end]
        times = sorted(1000 * request.seconds for request in within)
        failed = {
            kind.name.lower(): count
            for kind in Kind
            if kind != Kind.ANSWERED and (count := sum(request.kind == kind for request in within))
        }
        p50, p99, p999, maximum = (processes.percentile(times, percent) for percent in (50, 99, 99.9, 100))
        return cls(end - begin, len(within), p50, p99, p999, maximum, failed)


@dataclass(frozen=True)
class Run:
    """One move from beginning to end. CPU is in seconds, by process, from the request to the end of the move.

    ``snapshot_seconds`` are those from the beginning of the source's snapshot to the end, None if there was none.
    ``long_steps`` are milliseconds and command of steps above :data:`benchmarks.moves.STEP_MILLISECONDS`, by phase and
    server.
    ``topom_bytes`` is the most memory of topom and each of its processes. ``writes`` are those into what moves.
    ``way`` is how slots moved. ``goal`` is the latency goal in milliseconds, 0 for none. ``speeds`` has the share of
    the full speed at each request to topom for the state of the move.
    """

    way: str
    goal: float
    speeds: list[float]
    keys_moved: int
    keys_left: int
    seconds: float
    phases: dict[str, Phase]
    cpu_seconds: dict[str, float]
    windows: list[dict[str, float]]
    snapshot_seconds: float | None
    long_steps: dict[str, dict[str, list[tuple[float, str]]]]
    topom_bytes: int
    writes: dict[str, float]

    @property
    def keys_per_second(self) -> float:
        """The speed of the whole move, including barriers, scans and the last look for keys."""
        return self.keys_moved / self.seconds

    @property
    def keys_per_second_of_snapshot(self) -> float:
        """The speed from the beginning of the snapshot to the last switch; 0 if there was none."""
        return self.keys_moved / self.snapshot_seconds if self.snapshot_seconds else 0.0

    @property
    def slower(self) -> float:
        """The client's p99 while the slots move, divided by its p99 in the quiet around it."""
        around = fmean(self.phases[name].p99 for name in ("quiet", "after"))
        return self.phases["moving"].p99 / around


def windows(requests: Sequence[Request], begin: float, end: float) -> list[dict[str, float]]:
    """The number of requests and the longest request in each tenth of a second, to draw the move over time."""
    longest: dict[int, float] = {}
    counts: dict[int, int] = {}
    for request in requests:
        if begin <= request.at < end:
            place = int((request.at - begin) / _WINDOW_SECONDS)
            longest[place] = max(longest.get(place, 0.0), 1000 * request.seconds)
            counts[place] = counts.get(place, 0) + 1
    return [
        {"at": round(place * _WINDOW_SECONDS, 1), "requests": counts[place], "max_milliseconds": longest[place]}
        for place in sorted(counts)
    ]


async def keys_at(address: str) -> int:
    """How many keys a server holds in database 0, without Slotferry's own. Raises OSError, MigrationFailed."""
    numbers = []
    for command in (["DBSIZE"], ["EXISTS", *(key.decode() for key in RESERVED_KEYS)]):
        reply = await ask(address, *command)
        if not reply.startswith(":"):
            raise MigrationFailed(f"{address} answered {command[0]} with {reply}")
        numbers.append(int(reply[1:]))
    return numbers[0] - numbers[1]


def fill_random(address: str, scenario: Scenario) -> None:
    """Give all keys values that cannot be compressed. Raises redis.RedisError."""
    blocks = [os.urandom(scenario.value_bytes) for _ in range(64)]
    step = max(1, _FILL_BYTES // (scenario.value_bytes + 64))
    with client_of(address) as client:
        for first in range(0, scenario.keys, step):
            numbers = range(first, min(scenario.keys, first + step))
            client.mset({key_of(number): blocks[number % len(blocks)] for number in numbers})


def fill_big(address: str, sizes: Sequence[int]) -> None:
    """Store hashes with these numbers of fields, all in slots that will move. Raises redis.RedisError."""
    with client_of(address) as client:
        for name, fields in zip(moving_names("big"), sizes, strict=False):
            for first in range(0, fields, 1000):
                some = range(first, min(fields, first + 1000))
                client.hset(name, mapping={f"field:{number}": f"value {number:026d}" for number in some})


def start_probe(address: str, scenario: Scenario, directory: Path) -> tuple[ManagedProcess, Path]:
    """Start the probe; give it and its output file. Raises ProcessError."""
    output = directory / "probe.times"
    arguments = [
        *(sys.executable, "-m", "benchmarks.probe", address, "--output", str(output)),
        *("--keys", str(scenario.keys), "--value-bytes", str(scenario.value_bytes)),
        *("--connections", str(scenario.connections), "--rate", str(scenario.rate), "--writes", str(scenario.writes)),
        *("--limit", str(WARM_SECONDS + 2 * scenario.quiet_seconds + scenario.limit_seconds)),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    probe = ManagedProcess("probe", arguments, directory / "probe.log", environment)
    probe.start()
    return probe, output


async def quiet(probe: ManagedProcess, seconds: float) -> tuple[float, float]:
    """Let the probe run undisturbed; give the moments of begin and end."""
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    if not probe.running:
        raise MigrationFailed(f"the probe ended with status {probe.status}:\n{probe.tail()}")
    return begin, time.monotonic()


async def move(
    topom: TopomClient, scenario: Scenario, way: str, goal: float, speeds: list[float] | None = None
) -> tuple[float, float]:
    """Move the upper half of the slots by a latency goal; give the moments of the request and of the end.

    What is left at the source of slots that have moved is deleted before this returns; that is not in the time.

    ``speeds`` gets the speeds, see :class:`Run`.

    Raises:
        MigrationFailed: when it is not done in time, or slots are not where they should be.
    """
    wanted: dict[str, int | float | str] = {"latency_goal_milliseconds": goal, "way": way}
    if scenario.parallel_slots:
        wanted["parallel_slots"] = scenario.parallel_slots
    if scenario.keys_per_second:
        wanted["keys_per_second"] = scenario.keys_per_second
    await topom.set_migration(**wanted)
    number_of_slots = (await topom.status())["number_of_slots"]
    moving = range(number_of_slots // 2, number_of_slots)
    begin = time.monotonic()
    await topom.move_slots(show_slots(moving), TARGET)
    state: dict[str, Any] = {}
    try:
        async with asyncio.timeout(scenario.limit_seconds):
            while True:
                state = await topom.migration()
                if speeds is not None:
                    speeds += [batch["pacing"]["speed"] for batch in state["batches"] if batch["pacing"]]
                if not state["slots_pending"] and not state["slots_moving"]:
                    break
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise MigrationFailed(
            f"not done after {scenario.limit_seconds:g} s: {state.get('slots_pending')} slots pending, "
            f"{state.get('slots_moving')} moving, {state.get('keys_moved')} keys moved, batches {state.get('batches')}"
        ) from None
    end = time.monotonic()
    async with asyncio.timeout(scenario.limit_seconds):
        while (await topom.migration())["batches"]:
            await asyncio.sleep(_POLL_SECONDS)
    wrong = [
        slot["id"]
        for slot in (await topom.slots())["slots"]
        if slot["action"] or slot["group_id"] != (TARGET if slot["id"] in moving else SOURCE)
    ]
    if wrong:
        raise MigrationFailed(f"after the move, slots {show_slots(wrong)} are not where they should be")
    return begin, end


async def measure(scenario: Scenario, way: str, goal: float, console: Console) -> Run:
    """Start a cluster, fill it, move half of it under the probe, and end it. Raises the errors that :func:`main`
    catches."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            LocalCluster(
                groups=2,
                proxies=1,
                workers=scenario.workers,
                slots_on=[SOURCE],
                redis_arguments=REDIS_ARGUMENTS,
            )
        )
        source, target = cluster.groups[SOURCE][0], cluster.groups[TARGET][0]
        console.print(f"putting in {scenario.keys} keys of {scenario.value_bytes} bytes")
        await asyncio.to_thread(fill, source, scenario.keys, scenario.value_bytes)
        if scenario.random_values:
            await asyncio.to_thread(fill_random, source, scenario)
        sizes = [scenario.big_fields] * scenario.big_keys + [scenario.huge_fields] * bool(scenario.huge_fields)
        await asyncio.to_thread(fill_big, source, sizes)
        writing = Writing(cluster.proxy_addresses[0], scenario.hot_writes) if scenario.hot_writes else None
        if writing is not None:
            writing.fill(source)
            writing.start()
        held = await keys_at(source)
        probe, output = start_probe(cluster.proxy_addresses[0], scenario, cluster.directory)
        stack.push_async_callback(probe.stop)
        supervisor = cluster.proxies[0].pid
        roles: Mapping[str, Sequence[int]] = {
            "source": [cluster.servers[SOURCE][0].pid],
            "target": [cluster.servers[TARGET][0].pid],
            PROXY: processes.running(supervisor, "proxy.worker.worker"),
            "supervisor": [supervisor],
            "topom": [cluster.topom.pid, *processes.descendants(cluster.topom.pid)],
            "probe": [probe.pid],
        }
        looking = Looking({"source": source, "target": target})
        await quiet(probe, WARM_SECONDS)
        await asyncio.to_thread(looking.begin)
        console.print(f"quiet for {scenario.quiet_seconds:g} s")
        spans = {"quiet": await quiet(probe, scenario.quiet_seconds)}
        long_steps = {"quiet": await asyncio.to_thread(looking.long_steps)}
        console.print(f"moving half of the slots, {say(way, goal)}")
        speeds: list[float] = []
        topom = await stack.enter_async_context(cluster.client())
        before, busy = processes.cpu_by_role(roles), processes.machine_busy_seconds()
        snapshot = asyncio.create_task(looking.snapshot())
        spans["moving"] = await move(topom, scenario, way, goal, speeds)
        cpu = processes.spent(before, processes.cpu_by_role(roles))
        snapshot.cancel()
        await asyncio.gather(snapshot, return_exceptions=True)
        long_steps["moving"] = await asyncio.to_thread(looking.long_steps)
        cpu[OTHERS] = max(0.0, processes.machine_busy_seconds() - busy - sum(cpu.values()))
        spans["after"] = await quiet(probe, scenario.quiet_seconds)
        long_steps["after"] = await asyncio.to_thread(looking.long_steps)
        writes: dict[str, float] = {}
        if writing is not None:
            lost = await asyncio.to_thread(writing.stop)
            writes = {
                "acknowledged": writing.acknowledged,
                "lost": lost,
                "longest_milliseconds": 1000 * writing.longest_seconds,
            }
            if writing.failed or lost > 0:
                raise MigrationFailed(f"of {writing.acknowledged} writes {lost} were lost; {writing.failed}")
        await probe.stop(_PROBE_STOP_SECONDS)
        if probe.status != 0:
            raise MigrationFailed(f"the probe ended with status {probe.status}:\n{probe.tail()}")
        requests = list(read(output))
        moved, left = await keys_at(target), await keys_at(source)
        if moved + left != held:
            raise MigrationFailed(f"{held} keys before the move, {moved} + {left} after it")
        if (said := probe.log.read_text(errors="replace").strip()) != "":
            console.print(said, style="red", markup=False, highlight=False)
        begin, end = spans["moving"]
        return Run(
            way,
            goal,
            speeds,
            moved,
            left,
            end - begin,
            {name: Phase.of(requests, *span) for name, span in spans.items()},
            cpu,
            windows(requests, begin, end),
            end - looking.snapshot_at if looking.snapshot_at else None,
            long_steps,
            max(memory_bytes(pid) for pid in [cluster.topom.pid, *processes.descendants(cluster.topom.pid)]),
            writes,
        )


def say(way: str, goal: float) -> str:
    """A way and a latency goal in words."""
    return f"{way}, goal {goal:g} ms" if goal else f"{way}, no goal"


def show(runs: Sequence[Run], console: Console) -> None:
    """Print the table of every run, and the speed."""
    table = Table(title="what the client saw, in milliseconds")
    for heading in ("way", "phase", "seconds", "requests", "p50", "p99", "p99.9", "max", "failed"):
        table.add_column(heading, justify="left" if heading in ("way", "phase") else "right")
    for run in runs:
        for name, phase in run.phases.items():
            figures = (phase.p50, phase.p99, phase.p999, phase.maximum)
            failed = ", ".join(f"{count} {kind}" for kind, count in phase.failed.items()) or "0"
            cells = (f"{phase.seconds:.1f}", str(phase.requests), *(f"{figure:.2f}" for figure in figures), failed)
            table.add_row(say(run.way, run.goal), name, *cells, end_section=name == "after")
    console.print(table)
    for run in runs:
        shares = ", ".join(f"{role} {100 * seconds / run.seconds:.0f}%" for role, seconds in run.cpu_seconds.items())
        console.print(
            f"{say(run.way, run.goal)}: {run.keys_moved} keys moved, {run.keys_left} left, in {run.seconds:.2f} s; "
            f"share of a core: {shares}"
        )
        steps = ", ".join(
            f"{phase} {role} {len(found)} (longest {found[0][0]:.1f} ms, {found[0][1]})"
            for phase, by_role in run.long_steps.items()
            for role, found in by_role.items()
            if found
        )
        console.print(
            f"  steps above {STEP_MILLISECONDS} ms: {steps or 'none'}; "
            f"most memory of topom and each of its processes: {run.topom_bytes >> 20} MiB"
        )
        if run.writes:
            acknowledged, lost, longest = run.writes.values()
            console.print(f"  {acknowledged:.0f} writes into what moves, {lost:.0f} lost, longest {longest:.0f} ms")
    for way, goal in dict.fromkeys((run.way, run.goal) for run in runs):
        mine = [run for run in runs if (run.way, run.goal) == (way, goal)]
        speed = report.Spread.of([run.keys_per_second / 1000 for run in mine])
        p99 = report.Spread.of([run.phases["moving"].p99 for run in mine])
        of_snapshot = report.Spread.of([run.keys_per_second_of_snapshot / 1000 for run in mine])
        streamed = f" (from the snapshot's beginning {of_snapshot.show(1)})" if of_snapshot.median else ""
        slower = report.Spread.of([run.slower for run in mine])
        paced = [speed for run in mine for speed in run.speeds]
        held = f"; speed {report.Spread.of(paced).show()} of the full one" if paced else ""
        console.print(
            f"{say(way, goal)}: moved, k keys/s: {speed.show(1)}{streamed}; client p99 meanwhile, ms: {p99.show()}, "
            f"times the quiet one: {slower.show()}{held}"
        )


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
        "runs": [{"keys_per_second": run.keys_per_second, "slower": run.slower, **asdict(run)} for run in runs],
    }
    console.print(f"saved as {report.save('migration', output, content)}")
    return runs


def main(
    keys: Annotated[int, typer.Option(min=1, help="Keys on the first group; about half of them move.")] = 1_000_000,
    value_bytes: Annotated[int, typer.Option(min=1, help="Size of the values.")] = 100,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of the proxy.")] = 1,
    parallel_slots: Annotated[int, typer.Option(min=0, help="Slots moved together; 0: topom's default.")] = 0,
    rate_limit: Annotated[int, typer.Option(min=0, help="Keys a second that may move; 0: no limit.")] = 0,
    big_keys: Annotated[int, typer.Option(min=0, help="Hashes that move besides.")] = 0,
    big_fields: Annotated[int, typer.Option(min=1, help="Fields of each of these, of 32 bytes.")] = 100_000,
    huge_fields: Annotated[int, typer.Option(min=0, help="Fields of one more hash; 0: there is none.")] = 0,
    random_values: Annotated[bool, typer.Option(help="Values that no server can compress.")] = False,
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
    console = Console() if sys.stdout.isatty() else Console(width=report.TABLE_WIDTH)
    if quick:
        keys, quiet_seconds = 100_000, 3.0
    scenario = Scenario(
        keys,
        value_bytes,
        workers,
        parallel_slots,
        rate_limit,
        big_keys,
        big_fields,
        huge_fields,
        random_values,
        hot_writes,
        tuple(latency_goal or (0.0, 10.0)),
        tuple(way or ("keys", "stream")),
        connections,
        rate,
        writes,
        quiet_seconds,
        limit,
    )
    try:
        runs = asyncio.run(until_signal(benchmark(scenario, repeats, output, console)))
    except (
        MigrationFailed,
        LoadFailed,
        TopomError,
        ProcessError,
        processes.ProcessGone,
        redis.RedisError,
        OSError,
    ) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None
    if runs is None:
        raise typer.Abort
    if any(phase.failed for run in runs for phase in run.phases.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
