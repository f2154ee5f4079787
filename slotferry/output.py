"""The output of commands: tables, JSON or YAML on standard output, everything else on standard error."""

import asyncio
import errno
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotferry.calls import TopomError
from slotferry.processes import ProcessError
from slots.forms import Form, written

FAILED = 1
"""Exit status of a command that could not do what was asked. Wrong usage is 2, by the shell's custom."""

NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_GAP = 2
"""Columns between two of a table."""
PIPE_COLUMNS = 10_000
"""Width without a terminal: programs read the table there, so that it is not folded."""


def _console(error: bool) -> Console:
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, soft_wrap=True, width=None if stream.isatty() else PIPE_COLUMNS)


out = _console(error=False)
err = _console(error=True)
Result = TypeVar("Result")


def fail(message: str) -> typer.Exit:
    """Print the reason, and give the exception that ends the command with a failure status."""
    err.print(Text.assemble(("error:", "bold red"), f" {message}"), highlight=False)
    return typer.Exit(FAILED)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine. An error that an operator can correct ends the command with a sentence, without a
    traceback."""
    try:
        return asyncio.run(work)
    except (TopomError, ProcessError) as error:
        raise fail(str(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@contextmanager
def written_or_told() -> Iterator[None]:
    """Standard output that cannot take what is printed, as on a full disk, ends the command with a sentence."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in NOT_WRITTEN or error.filename is not None:
            raise
        # What is left in the buffer is not tried again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        fail(f"what the command prints cannot be written: {error.strerror}")
        sys.exit(FAILED)


def print_written(value: Any, form: Form, many: bool = False) -> None:
    """One line of JSON, or YAML, on standard output (:func:`slots.forms.written`)."""
    out.print(written(value, form, many), markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", spare: Sequence[str] = ()) -> None:
    """Print a table; numbers are aligned to the right.

    Args:
        spare: columns that a terminal may be too narrow for: it then lacks as many of them, from the first.
    """
    out.print(drawn(columns, rows, title, spare))


def drawn(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", spare: Sequence[str] = ()
) -> Table:
    """The table that :func:`table` prints."""
    listed = [[show(cell) for cell in row] for row in rows]
    left = list(spare)
    while (needed := _needed(columns, listed)) > out.width and left:
        place = columns.index(left.pop(0))
        columns = [name for other, name in enumerate(columns) if other != place]
        listed = [[cell for other, cell in enumerate(row) if other != place] for row in listed]
    least = _least(columns, listed)
    made = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=None,
        pad_edge=False,
        width=needed if needed > out.width else None,
    )
    for place, name in enumerate(columns):
        numeric = bool(listed) and all(_is_number(row[place]) for row in listed)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold", min_width=least[place])
    for row in listed:
        # Names of keys are clients' choice: nothing in them is markup, or the name of an emoji.
        made.add_row(*(Text(cell) for cell in row))
    return made


def _needed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(_least(columns, rows)) + _GAP * (len(columns) - 1)


def _least(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width that each column needs. Only text is folded, and only between words: an address or a number that is
    cut in two can be neither read nor copied. A table that is too wide all the same is wider than the terminal."""
    least = []
    for place, name in enumerate(columns):
        texts = [row[place] for row in rows]
        folds = any(" " in text.strip() for text in texts)
        words = [word for text in (name, *texts) for word in text.split()] if folds else [name, *texts]
        least.append(max((cell_len(word) for word in words), default=1))
    return least


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).isdigit()


def show(cell: object) -> str:
    """A cell's text: an unknown value is a dash, and numbers have separators for thousands."""
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
    """Bytes as text for a person."""
    if count is None:
        return "-"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def moment(at: float) -> str:
    """Seconds since 1970, UTC, as a time of this computer's zone, with the name of the zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="milliseconds")


def in_words(reason: Mapping[str, Any] | None) -> str:
    """A reason of the API in words: what, for how long, and what can be done; empty where there is none."""
    if not reason:
        return ""
    lasts = f" (for {span(max(0.0, time.time() - reason['since']))})" if reason["since"] else ""
    to_do = f"; to do: {reason['to_do']}" if reason["to_do"] else ""
    return f"{reason['what']}{lasts}{to_do}"


def span(seconds: float) -> str:
    """A length of time as a person reads it: in seconds, minutes, hours or days."""
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def answer(value: Any, form: Form, say: Callable[[], None]) -> None:
    """Print an answer for a program, or by ``say`` for a person."""
    if form is Form.TABLE:
        say()
    else:
        print_written(value, form)


def say(text: str) -> None:
    """A sentence on standard output."""
    out.print(Text(text), highlight=False)


def note(text: str) -> None:
    """A sentence on standard error: progress, hints."""
    err.print(Text(text), highlight=False)
