"""Prints rows of :func:`benchmarks.samples.summarise`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.plan import Part
from benchmarks.report import Spread
from benchmarks.samples import PROXY


def ratio_cell(row: dict[str, Any], yardstick: str) -> str:
    """One target's CPU to a yardstick's."""
    if row["target"] == yardstick:
        return "1"
    found: Spread | None = row["cpu_ratio"].get(yardstick)
    return found.show() if found else "-"


def show(part: Part, rows: Sequence[dict[str, Any]], console: Console) -> None:
    """Print a part's table, and below it the CPU time of other processes beside the workers."""
    table = Table(
        title=f"{part.title}: median (least-greatest) of {part.turns} turns; CPU is that of the proxy process"
    )
    table.add_column("load", no_wrap=True)
    table.add_column("through", no_wrap=True)
    yardsticks = [name for name in part.yardsticks if any(name in row["cpu_ratio"] for row in rows)]
    for heading in ("CPU us/request", "k requests/s", "p50 ms", "p99 ms", *(f"CPU / {name}" for name in yardsticks)):
        table.add_column(heading, justify="right")
    for number, row in enumerate(rows):
        cpu = row["cpu_microseconds"].get(PROXY)
        speed = row["requests_per_second"]
        thousands = Spread(speed.median / 1000, speed.least / 1000, speed.greatest / 1000)
        table.add_row(
            row["load"].name,
            row["target"],
            cpu.show() if cpu else "-",
            thousands.show(0),
            row["p50_milliseconds"].show(),
            row["p99_milliseconds"].show(),
            *(ratio_cell(row, name) for name in yardsticks),
            end_section=number + 1 == len(rows) or rows[number + 1]["load"] != row["load"],
        )
    console.print(table)
    beside = [row for row in rows if row["target"] == "slotferry"]
    roles = {role for row in beside for role in row["cpu_microseconds"]} - {PROXY}
    for role in sorted(roles):
        figures = ", ".join(f"{row['load'].name}: {row['cpu_microseconds'][role].median:.3f}" for row in beside)
        console.print(f"beside slotferry's worker, CPU us/request of the {role}: {figures}")
