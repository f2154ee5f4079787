"""The demo's display: a panel that is redrawn on a terminal, a line a second anywhere else."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slotferry.output import note, out
from slotferry.series import Sample, Series

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN_SECONDS = 48


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of small bars, the largest at full height."""
    highest = max(values, default=0)
    if highest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / highest * len(_BARS)))] for value in values)


class Counting:
    """A progress bar for a number of keys; without a terminal, a line now and then."""

    LINES = 4

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._told = 0
        self._task: TaskID | None = None
        self._bar = Progress(
            *(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("keys"),
                TimeElapsedColumn(),
            ),
            console=out,
            disable=not out.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, keys: int) -> None:
        """Show that ``keys`` are done."""
        if self._task is not None:
            self._bar.update(self._task, completed=keys)
        if not out.is_terminal and keys * self.LINES // max(1, self._total) > self._told:
            self._told = keys * self.LINES // max(1, self._total)
            out.print(f"{self._what}: {keys:,} of {self._total:,} keys", highlight=False)


class Display:
    """Shows the demo, second by second."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._phase = ""
        self._live = Live(console=out, auto_refresh=False, transient=False) if out.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def phase(self, name: str) -> None:
        """Show a sentence about the phase that begins."""
        self._phase = name
        if self._live is None:
            out.print(name, highlight=False)

    def show(self, sample: Sample) -> None:
        """Show the newest second."""
        if self._live is not None:
            self._live.update(self._panel(sample), refresh=True)
            return
        out.print(
            f"{sample.elapsed:5.0f} s  {sample.requests:7,.0f} requests/s  p50 {sample.p50_ms:.2f} ms  "
            f"p99 {sample.p99_ms:.2f} ms  {sample.slots_moved}/{self._series.slots_to_move} slots moved  "
            f"{sample.keys_per_second:7,.0f} keys/s  {self._series.errors} errors  "
            f"{self._series.differences} differences",
            highlight=False,
        )

    def _panel(self, sample: Sample) -> Panel:
        series = self._series
        recent = series.samples[-_SHOWN_SECONDS:]
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column(justify="right", min_width=16)
        grid.add_column()
        total = max(1, series.slots_to_move)
        grid.add_row(
            "slots moved",
            f"{sample.slots_moved} of {series.slots_to_move}",
            ProgressBar(total=total, completed=min(total, sample.slots_moved), width=_SHOWN_SECONDS),
        )
        rows: list[tuple[str, str, list[float]]] = [
            ("keys/s moved", f"{sample.keys_per_second:,.0f}", [each.keys_per_second for each in recent]),
            ("requests/s", f"{sample.requests:,.0f}", [each.requests for each in recent]),
            ("p50", f"{sample.p50_ms:.2f} ms", [each.p50_ms for each in recent]),
            ("p99", f"{sample.p99_ms:.2f} ms", [each.p99_ms for each in recent]),
        ]
        for name, value, values in rows:
            grid.add_row(name, value, Text(sparkline(values), style="cyan"))
        for name, count in (("errors", series.errors), ("differences", series.differences)):
            grid.add_row(name, Text(f"{count:,}", style="bold red" if count else "bold green"), "")
        return Panel(
            grid, title=self._phase, subtitle=f"{sample.elapsed:.0f} s, {series.requests:,} requests", expand=False
        )


def hint(text: str) -> None:
    """A sentence beside the display, on standard error."""
    note(text)
