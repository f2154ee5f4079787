"""Measures what the live page of a large fleet costs the browser that shows it.

    python -m benchmarks.page [--quick]

The page shows 1,000 groups and 16,384 slots, of which 512 always move; two messages a second change all groups' figures
and 1,024 slots. README.md says how to read the figures.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.livefleet import served
from tests import chromium

OPENED_GOAL_MILLISECONDS = 1000.0
FRAME_GOAL_MILLISECONDS = 8.0
MEMORY_GOAL_BYTES = 30 * 10**6
START_SECONDS = 60
"""Beside what is watched: for the browser's own start, and for all pages to open."""


def measure(page: Any, url: str, opens: int, watched_seconds: float) -> dict[str, Any]:
    """Open the page some times, and watch it while slots move."""
    session = page.context.new_cdp_session(page)
    # The time that the main thread computes, and not what others take from it.
    session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
    session.send("Performance.enable")

    def metric(name: str) -> float:
        found = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
        return float(found[name])

    opened = []
    for _ in range(opens):
        page.goto(url)
        page.wait_for_selector("canvas.cells[data-drawn]")
        page.wait_for_selector("#groups tbody tr")
        opened.append(float(page.evaluate("performance.getEntriesByName('slots-drawn')[0].startTime")))
    page.evaluate("Object.assign(slotferry.spent, { frames: 0, long: 0, total: 0 })")
    before = metric("TaskDuration")
    page.wait_for_timeout(1000 * watched_seconds)
    spent, computed = page.evaluate("slotferry.spent"), metric("TaskDuration") - before
    session.send("HeapProfiler.collectGarbage")
    return {
        "opened_milliseconds": opened,
        "frames": spent["frames"],
        "frame_milliseconds": 1000 * computed / spent["frames"],
        "core_share": computed / watched_seconds,
        "long_frames": spent["long"],
        "heap_bytes": metric("JSHeapUsedSize"),
    }


def benchmark(opens: int, watched_seconds: float, output: Path | None, console: Console) -> bool:
    """Measure, print and save; say whether the goals are met."""
    before = report.machine()
    with served() as url, chromium.browser() as browser, chromium.watched(START_SECONDS + watched_seconds):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        found = measure(page, url, opens, watched_seconds)
    opened = report.Spread.of(found["opened_milliseconds"])
    met = (
        opened.median < OPENED_GOAL_MILLISECONDS,
        found["frame_milliseconds"] < FRAME_GOAL_MILLISECONDS,
        found["heap_bytes"] < MEMORY_GOAL_BYTES,
    )
    table = Table("", "measured", "goal")
    table.add_row("until all slots are drawn", f"{opened.show(0)} ms", f"< {OPENED_GOAL_MILLISECONDS:.0f} ms")
    frame = f"{found['frame_milliseconds']:.2f} ms"
    table.add_row("the main thread's time for a frame", frame, f"< {FRAME_GOAL_MILLISECONDS:.0f} ms")
    table.add_row("frames", f"{found['frames']} in {watched_seconds:.0f} s", "")
    table.add_row("of which drew for longer than the goal", f"{found['long_frames']}", "")
    table.add_row("share of a core", f"{100 * found['core_share']:.0f}%", "")
    table.add_row("memory of scripts", f"{found['heap_bytes'] / 1e6:.1f} MB", f"< {MEMORY_GOAL_BYTES / 1e6:.0f} MB")
    console.print(table)
    content = {"machine": before, "load_average_after": report.machine()["load_average"][0], **found}
    console.print(f"saved as {report.save('page', output, content)}")
    return all(met)


def main(
    opens: Annotated[int, typer.Option(min=1, max=100, help="How often the page is opened.")] = 10,
    seconds: Annotated[float, typer.Option(min=1, max=300, help="How long it is watched.")] = 30,
    quick: Annotated[bool, typer.Option("--quick", help="Two and 4 s: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Measure what the live page of a large fleet costs the browser that shows it."""
    console = report.console()
    with report.failing(console, chromium.NoBrowserError, OSError):
        chromium.find()
        met = benchmark(2 if quick else opens, 4 if quick else seconds, output, console)
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
