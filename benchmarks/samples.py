"""Measured runs, and the ratios between runs of the same turn."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.load import Load, Outcome
from benchmarks.plan import Part
from benchmarks.report import Spread

PROXY = "proxy"
"""The role of the processes that requests pass through; their CPU time is the cost of a request."""
Figure = Literal["cpu", "p50", "p99"]


@dataclass(frozen=True)
class Sample:
    """One run of a load through a target; CPU is in microseconds a request, by role of the processes."""

    part: str
    turn: int
    target: str
    load: Load
    outcome: Outcome
    cpu_microseconds: dict[str, float]

    def figure(self, name: Figure) -> float | None:
        """One of its figures; None if it has none: a direct connection uses no proxy."""
        if name == "cpu":
            return self.cpu_microseconds.get(PROXY)
        return self.outcome.p50_milliseconds if name == "p50" else self.outcome.p99_milliseconds


def select(samples: Iterable[Sample], part: str, target: str, load: Load) -> dict[int, Sample]:
    """The samples of one target and load, by turn."""
    return {
        sample.turn: sample for sample in samples if (sample.part, sample.target, sample.load) == (part, target, load)
    }


def ratios(
    samples: Sequence[Sample], part: str, load: Load, figure: Figure, target: str, yardstick: str
) -> list[float]:
    """A figure of one target divided by another's, turn by turn; a turn without one of them gives none."""
    above, below = (select(samples, part, name, load) for name in (target, yardstick))
    found = []
    for turn in sorted(above.keys() & below.keys()):
        mine, other = above[turn].figure(figure), below[turn].figure(figure)
        if mine is not None and other:
            found.append(mine / other)
    return found


def summarise(samples: Sequence[Sample], part: Part) -> list[dict[str, Any]]:
    """A row for each load and target: the figures as :class:`Spread`, the ratios by yardstick."""
    rows = []
    for load in part.loads:
        for target in part.targets:
            mine = list(select(samples, part.name, target, load).values())
            if not mine:
                continue
            quotients = {
                name: found
                for name in part.yardsticks
                if name != target and (found := ratios(samples, part.name, load, "cpu", target, name))
            }
            rows.append(
                {
                    "part": part.name,
                    "load": load,
                    "target": target,
                    "cpu_microseconds": {
                        role: Spread.of([sample.cpu_microseconds[role] for sample in mine])
                        for role in mine[0].cpu_microseconds
                    },
                    "requests_per_second": Spread.of([sample.outcome.requests_per_second for sample in mine]),
                    "p50_milliseconds": Spread.of([sample.outcome.p50_milliseconds for sample in mine]),
                    "p99_milliseconds": Spread.of([sample.outcome.p99_milliseconds for sample in mine]),
                    "cpu_ratio": {name: Spread.of(found) for name, found in quotients.items()},
                }
            )
    return rows
