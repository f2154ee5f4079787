"""Prints figures of repeated runs, one line each, describes the machine, and saves the results in a file."""

import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

RESULTS = Path(__file__).resolve().parent / "results"
TABLE_WIDTH = 184
"""Columns of the tables if the output is not a terminal with a known width."""
_VERSION_SECONDS = 10.0


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of the repeats of one measurement."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int = 2) -> str:
        """``median (least-greatest)``."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.greatest:.{digits}f})"


def interval_of_median(values: Sequence[float], doubt: float = 0.05) -> tuple[float, float]:
    """The interval of the median of infinitely many such values, with a ``doubt`` of 5%, for any distribution.

    It goes by ranks: the median is below the k-th of n values if fewer than k of them fell below it, each with a chance
    of a half. With five values or fewer, no interval is that certain; then it is the least and the greatest value.
    """
    ascending = sorted(values)
    count = len(ascending)
    rank, tail = 0, 1.0
    while rank + 1 < (count + 1) // 2 and 2 * (tail + math.comb(count, rank + 1)) <= doubt * 2**count:
        rank += 1
        tail += math.comb(count, rank)
    return ascending[rank], ascending[count - 1 - rank]


def console() -> Console:
    """Where a benchmark prints."""
    return Console() if sys.stdout.isatty() else Console(width=TABLE_WIDTH)


@contextmanager
def failing(console: Console, *kinds: type[Exception]) -> Iterator[None]:
    """An error of these kinds ends the benchmark with its sentence and status 1."""
    try:
        yield
    except kinds as error:
        console.print(str(error) or "it took too long", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from None


def plain(value: Any) -> Any:
    """A value with dataclasses in it, in a form that JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def version(program: Path | str, *arguments: str) -> str:
    """The first line that a program prints about its version."""
    try:
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return (done.stdout + done.stderr).strip().partition("\n")[0]


def machine() -> dict[str, Any]:
    """The machine of the figures. A load well above zero means that other programs were at work meanwhile."""
    processor = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    except OSError:
        pass
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def save(name: str, output: Path | None, content: Mapping[str, Any]) -> Path:
    """Write ``content`` as JSON to ``output``, or else to a file named after ``name`` and the time; say where."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = output or RESULTS / f"{name}-{stamp}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
