"""Shows a run on a terminal: a progress bar while it reads, then the summary as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from sizing.buckets import size

if TYPE_CHECKING:
    from sizing.outcome import Summary, Total

SHOWN = 8
"""The most rows of each table."""
_LINES = 10
"""Lines about the progress if there is no terminal."""


class Bar:
    """The progress of reading; without a terminal, a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._what = ""
        self._total = 1
        self._told = 0
        self._task: TaskID | None = None
        self._bar = Progress(
            *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
            console=console,
            disable=not console.is_terminal,
        )

    def begin(self, what: str, total: int, done: int) -> None:
        """The work is ``total`` in all; an earlier run has done ``done`` of it."""
        self._what, self._total = what, max(1, total)
        self._told = done * _LINES // self._total
        self._bar.start()
        self._task = self._bar.add_task(what, total=total, completed=done)

    def update(self, done: int) -> None:
        """So much has been done by now."""
        if self._task is not None:
            self._bar.update(self._task, completed=done)
        if not self._console.is_terminal and done * _LINES // self._total > self._told:
            self._told = done * _LINES // self._total
            self._console.print(f"{self._what}: {done:,} of {self._total:,}", highlight=False)

    def end(self) -> None:
        """The reading has ended."""
        self._bar.stop()

    def note(self, text: str) -> None:
        """Show a sentence beside the bar."""
        self._console.print(escape(text), highlight=False, soft_wrap=True)


def show(summary: Summary, console: Console) -> None:
    """The summary: all, by group, by type, by prefix, and the biggest keys."""
    total = summary.total
    moment = datetime.fromtimestamp(summary.taken_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    head = f"{summary.product + ', ' if summary.product else ''}{summary.source}, {moment}, {summary.seconds:.0f} s"
    console.print(
        f"\n[bold]{_bytes(total, summary)} in {_keys(total, summary)} keys[/] of {escape(head)}",
        highlight=False,
        soft_wrap=True,
    )
    if summary.sampled < 1:
        text = f"estimates from a sample of {summary.sampled:.2%} of the keys; ± is one standard error"
        console.print(text, highlight=False)
    for title, totals in (("group", summary.groups), ("type", summary.types), ("prefix", summary.prefixes)):
        _table(console, title, totals, summary)
    if summary.biggest:
        table = Table("biggest key", "type", "server", box=None, pad_edge=False, header_style="bold")
        for column in ("database", "slot", "bytes"):
            table.add_column(column, justify="right")
        for key in summary.biggest[:SHOWN]:
            table.add_row(
                escape(key.key), key.type, escape(key.server), str(key.database), str(key.slot), size(key.bytes)
            )
        console.print()
        console.print(table)
    if not summary.complete:
        console.print("\n[bold red]partial[/]: the numbers are without", highlight=False)
        for failure in summary.missing:
            console.print(f"  {escape(failure.place)}: {escape(failure.reason)}", highlight=False, soft_wrap=True)
        console.print("the same command again reads only these", highlight=False)


def _table(console: Console, title: str, totals: Sequence[Total], summary: Summary) -> None:
    if not totals:
        return
    table = Table(title, box=None, pad_edge=False, header_style="bold")
    for column in ("bytes", "share", "keys"):
        table.add_column(column, justify="right")
    for entry in totals[:SHOWN]:
        share = f"{entry.bytes / max(1, summary.total.bytes):.1%}"
        table.add_row(escape(entry.name), _bytes(entry, summary), share, _keys(entry, summary))
    console.print()
    console.print(table)
    if len(totals) > SHOWN:
        console.print(f"and {len(totals) - SHOWN} more", highlight=False)


def _bytes(total: Total, summary: Summary) -> str:
    return size(total.bytes) + (f" ± {size(total.bytes_error)}" if summary.sampled < 1 else "")


def _keys(total: Total, summary: Summary) -> str:
    return f"{total.keys:,}" + (f" ± {total.keys_error:,.0f}" if summary.sampled < 1 else "")
