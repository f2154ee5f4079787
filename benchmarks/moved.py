"""The figures of a move between two groups, and how they are printed (:mod:`benchmarks.migration`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks import processes, report
from benchmarks.moves import STEP_MILLISECONDS
from benchmarks.probe import Kind, Request
from benchmarks.switches import Locked

WINDOW_SECONDS = 0.1
BEGINNINGS = {"keys": "the first key's turn", "stream": "the snapshot's first byte"}
"""What counts as the beginning of a move, by way."""


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

    ``seconds`` are those from the request to the last switch, and ``begun_seconds`` those from the beginning:
    of the source's snapshot, or of the first keys that move one by one. ``locks`` are those of all switches.
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
    begun_seconds: float
    locks: list[Locked]
    phases: dict[str, Phase]
    cpu_seconds: dict[str, float]
    windows: list[dict[str, float]]
    long_steps: dict[str, dict[str, list[tuple[float, str]]]]
    topom_bytes: int
    writes: dict[str, float]

    @property
    def keys_per_second(self) -> float:
        """The speed of the whole move, including checks, barriers and scans."""
        return self.keys_moved / self.seconds

    @property
    def keys_per_second_begun(self) -> float:
        """The speed from the beginning on."""
        return self.keys_moved / self.begun_seconds

    @property
    def quiet(self) -> float:
        """The client's p99 in the quiet around the move, in milliseconds."""
        return fmean(self.phases[name].p99 for name in ("quiet", "after"))

    @property
    def slower(self) -> float:
        """The client's p99 while the slots move, divided by that in the quiet."""
        return self.phases["moving"].p99 / self.quiet

    @property
    def added(self) -> float:
        """The client's p99 while the slots move, less that in the quiet, in milliseconds."""
        return self.phases["moving"].p99 - self.quiet


def windows(requests: Sequence[Request], begin: float, end: float) -> list[dict[str, float]]:
    """The number of requests and the longest request in each tenth of a second, to draw the move over time."""
    longest: dict[int, float] = {}
    counts: dict[int, int] = {}
    for request in requests:
        if begin <= request.at < end:
            place = int((request.at - begin) / WINDOW_SECONDS)
            longest[place] = max(longest.get(place, 0.0), 1000 * request.seconds)
            counts[place] = counts.get(place, 0) + 1
    return [
        {"at": round(place * WINDOW_SECONDS, 1), "requests": counts[place], "max_milliseconds": longest[place]}
        for place in sorted(counts)
    ]


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
        if run.locks:
            longest = max(lock.longest_milliseconds for lock in run.locks)
            console.print(
                f"  locks: {len(run.locks)}, the longest {1000 * max(lock.seconds for lock in run.locks):.0f} ms by "
                f"topom's log; longest request meanwhile {longest:.0f} ms"
            )
    for way, goal in dict.fromkeys((run.way, run.goal) for run in runs):
        mine = [run for run in runs if (run.way, run.goal) == (way, goal)]
        speed = report.Spread.of([run.keys_per_second / 1000 for run in mine])
        begun = report.Spread.of([run.keys_per_second_begun / 1000 for run in mine])
        p99 = report.Spread.of([run.phases["moving"].p99 for run in mine])
        added = report.Spread.of([run.added for run in mine])
        slower = report.Spread.of([run.slower for run in mine])
        paced = [speed for run in mine for speed in run.speeds]
        held = f"; speed {report.Spread.of(paced).show()} of the full one" if paced else ""
        beginning = BEGINNINGS.get(way, "its beginning")
        console.print(
            f"{say(way, goal)}: moved, k keys/s to the last switch: {speed.show(1)} from the request, "
            f"{begun.show(1)} from {beginning}; client p99 meanwhile, ms: {p99.show()}, minus the quiet one: "
            f"{added.show()}, times the quiet one: {slower.show()}{held}"
        )
    for goal in dict.fromkeys(run.goal for run in runs):
        if found := ratios(runs, goal):
            shown = ", ".join(
                f"{name} {report.Spread.of([pair[place] for pair in found]).show()}"
                for place, name in enumerate(("from the request", "from the beginning"))
            )
            console.print(f"stream to keys, {f'goal {goal:g} ms' if goal else 'no goal'}: keys/s {shown}")


def ratios(runs: Sequence[Run], goal: float) -> list[tuple[float, float]]:
    """The speed by the stream divided by that key by key, of each turn: from the request, and from the beginning."""
    by_way = [[run for run in runs if (run.way, run.goal) == (way, goal)] for way in ("stream", "keys")]
    return [
        (above.keys_per_second / below.keys_per_second, above.keys_per_second_begun / below.keys_per_second_begun)
        for above, below in zip(*by_way, strict=False)
    ]
