"""What commands print: tables or JSON on standard output, everything else on standard error."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from slotferry.calls import TopomError
from slotferry.processes import ProcessError

FAILED = 1
"""Exit status of a command that could not do what was asked; wrong usage is 2, as the shell's custom is."""

PIPE_COLUMNS = 10_000
"""Width of what is no terminal: a table there is read by programs, and is not folded."""


def _console(error: bool) -> Console:
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, soft_wrap=True, width=None if stream.isatty() else PIPE_COLUMNS)


out = _console(error=False)
err = _console(error=True)
Result = TypeVar("Result")


def fail(message: str) -> typer.Exit:
    """Print why, and give what to raise to end the command with a status that says so."""
    err.print(f"[bold red]error:[/] {_plain(message)}", highlight=False)
    return typer.Exit(FAILED)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine; what an operator can mend ends the command with a sentence, without a traceback."""
    try:
        return asyncio.run(work)
    except (TopomError, ProcessError) as error:
        raise fail(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    out.print(json.dumps(value), markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table; numbers stand to the right."""
    listed = [[show(cell) for cell in row] for row in rows]
    drawn = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for place, name in enumerate(columns):
        numeric = bool(listed) and all(row[place].replace(",", "").isdigit() or row[place] == "-" for row in listed)
        drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        drawn.add_row(*(_plain(cell) for cell in row))
    out.print(drawn)


def show(cell: object) -> str:
    """A cell's text: nothing known is a dash, and numbers have their thousands apart."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 or cell.is_integer() else f"{cell:.3g}"
    return str(cell)


def size(count: int | None) -> str:
    """Bytes as a person reads them."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def moment(at: float) -> str:
    """Seconds since 1970, UTC, as a time of this computer's zone, which it says."""
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="milliseconds")


def answer(value: Any, as_json: bool, say: Callable[[], None]) -> None:
    """Print an answer as JSON, or by ``say``."""
    if as_json:
        print_json(value)
    else:
        say()


def say(text: str) -> None:
    """A sentence on standard output."""
    out.print(_plain(text), highlight=False)


def note(text: str) -> None:
    """A sentence on standard error: progress, hints."""
    err.print(_plain(text), highlight=False)


def _plain(text: str) -> str:
    """Text whose square brackets are not markup."""
    return text.replace("[", r"\[")
