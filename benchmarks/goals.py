"""The goals of speed and memory, each with its bound, and whether the measurements meet them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.plan import AGAIN, EQUAL, SEVERAL, SMALL, TWO_WORKERS, Part
from benchmarks.report import Spread, interval_of_median
from benchmarks.samples import Figure, Sample, ratios

IDLE_BYTES = "bytes an idle client"
MEMORY_TO_LIMITS = "growth beside stuck readers, to the limits"
LATENCY_TO_NOISE = "p99 beside stuck readers, to the worst quiet window"


@dataclass(frozen=True)
class Ratio:
    """A figure of one target divided by another's, turn by turn, for each load of a part at one pipeline depth."""

    part: str
    figure: Figure
    pipeline: int
    target: str
    yardstick: str


@dataclass(frozen=True)
class Held:
    """A series of :mod:`benchmarks.clients`, by its name."""

    name: str


@dataclass(frozen=True)
class Goal:
    """A goal: the median of a measurement is at most ``bound``."""

    name: str
    bound: float
    of: Ratio | Held


GOALS = (
    Goal("CPU a request, to twemproxy's", 0.75, Ratio(SMALL, "cpu", 1, "slotferry", "twemproxy")),
    Goal("CPU a request, to twemproxy's", 0.28, Ratio(SMALL, "cpu", 16, "slotferry", "twemproxy")),
    Goal("CPU a request, to twemproxy's", 0.15, Ratio(SMALL, "cpu", 64, "slotferry", "twemproxy")),
    Goal("CPU a request, to HAProxy's", 1.25, Ratio(SMALL, "cpu", 16, "slotferry", "haproxy")),
    Goal("CPU a request, to HAProxy's", 1.25, Ratio(SMALL, "cpu", 64, "slotferry", "haproxy")),
    *(
        Goal("CPU a request with ten keys, to twemproxy's", 0.9, Ratio(SEVERAL, "cpu", depth, "slotferry", "twemproxy"))
        for depth in (1, 16)
    ),
    Goal("p99, to twemproxy's", 1.0, Ratio(SMALL, "p99", 1, "slotferry", "twemproxy")),
    *(
        Goal("CPU a request of two workers, to one's", 1.1, Ratio(SMALL, "cpu", depth, TWO_WORKERS, "slotferry"))
        for depth in (1, 16, 64)
    ),
    Goal(IDLE_BYTES, 4096, Held(IDLE_BYTES)),
    Goal(MEMORY_TO_LIMITS, 1.0, Held(MEMORY_TO_LIMITS)),
    Goal(LATENCY_TO_NOISE, 1.0, Held(LATENCY_TO_NOISE)),
)

CONTROLS = tuple(
    Goal("two equal proxies, one to the other", 1.03, Ratio(EQUAL, "cpu", depth, AGAIN, "slotferry"))
    for depth in (1, 16, 64)
)
"""Not goals: the ratio of equal proxies should be 1. Its error is the possible error of other ratios."""


@dataclass(frozen=True)
class Verdict:
    """The measurement for a goal; for a goal about loads, of one load."""

    goal: str
    load: str
    bound: float
    values: tuple[float, ...]

    @property
    def met(self) -> bool | None:
        """Whether the median is within the bound; None when nothing was measured."""
        return Spread.of(self.values).median <= self.bound if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the median of infinitely many repeats, with 95% confidence."""
        return interval_of_median(self.values) if len(self.values) > 1 else None

    @property
    def sure(self) -> bool:
        """Whether the bound is outside of :attr:`interval`, so that more repeats would hardly change the verdict."""
        return self.interval is None or not self.interval[0] <= self.bound < self.interval[1]

    @property
    def word(self) -> str:
        """The verdict as a word for the table."""
        if self.met is None:
            return "not measured"
        return ("met" if self.met else "not met") + ("" if self.sure else ", unsure")

    def row(self) -> dict[str, object]:
        """The verdict as a row for the file."""
        return {
            "goal": self.goal,
            "load": self.load,
            "bound": self.bound,
            "measured": Spread.of(self.values) if self.values else None,
            "interval": self.interval,
            "values": self.values,
            "met": self.met,
            "sure": self.sure,
        }


def judge(
    goals: Sequence[Goal], parts: Sequence[Part], samples: Sequence[Sample], held: Mapping[str, Sequence[float]]
) -> list[Verdict]:
    """A verdict for each goal, or one for each of its loads. A goal without a measurement has one without values."""
    found = []
    for goal in goals:
        of = goal.of
        if isinstance(of, Held):
            found.append(Verdict(goal.name, "", goal.bound, tuple(held.get(of.name, ()))))
            continue
        loads = [load for part in parts if part.name == of.part for load in part.loads if load.pipeline == of.pipeline]
        found += [
            Verdict(
                goal.name,
                load.name,
                goal.bound,
                tuple(ratios(samples, of.part, load, of.figure, of.target, of.yardstick)),
            )
            for load in loads
        ] or [Verdict(goal.name, f"-P {of.pipeline}", goal.bound, ())]
    return found


def number(value: float) -> str:
    """A ratio with three digits after the point, bytes with none."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3f}"


def show(title: str, verdicts: Sequence[Verdict], console: Console, judged: bool = True) -> None:
    """Print a table. Without verdicts, leave out the bounds and words."""
    table = Table(title=title)
    table.add_column("goal" if judged else "control", no_wrap=True)
    table.add_column("load", no_wrap=True)
    headings = ("measured: median (range)", "median, 95% sure", "repeats")
    for heading in ("at most", *headings, "verdict") if judged else headings:
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    for at, verdict in enumerate(verdicts):
        spread, interval = (Spread.of(verdict.values) if verdict.values else None), verdict.interval
        cells = [
            f"{number(spread.median)} ({number(spread.least)}-{number(spread.greatest)})" if spread else "-",
            f"{number(interval[0])}-{number(interval[1])}" if interval else "-",
            str(len(verdict.values)),
        ]
        if judged:
            color = {True: "green", False: "red", None: "yellow"}[verdict.met]
            cells = [f"{verdict.bound:g}", *cells, f"[{color}]{verdict.word}[/{color}]"]
        last = at + 1 == len(verdicts) or verdicts[at + 1].goal != verdict.goal
        table.add_row(verdict.goal, verdict.load, *cells, end_section=last)
    console.print(table)
