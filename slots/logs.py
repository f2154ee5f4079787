"""Log events of every process on standard error: lines to read at a terminal, JSON lines elsewhere.

What libraries log by themselves, from warnings on, is an event like any other: ``library_said``.

If the log cannot be written (a full disk, a closed pipe), events are lost, and no client notices.
"""

import contextlib
import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict

ANSWERS = frozenset({"settings_reloaded"})
"""Events that answer an operator who looks for them, whatever the level."""


class _Lossy:
    """Writes to a stream, and drops what the stream does not take."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class _Events(logging.Handler):
    """Makes events of what libraries log."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # its arguments do not fit its text
            text = str(record.msg)
        structlog.get_logger().log(
            record.levelno, "library_said", library=record.name, text=text, exc_info=record.exc_info
        )


class _Least:
    """Drops events that are less important than a level, which may change at any time; but for :data:`ANSWERS`."""

    level = logging.INFO

    def __call__(self, logger: object, method: str, event: EventDict) -> EventDict:
        if _LEVELS[method.upper()] < self.level and event["event"] not in ANSWERS:
            raise structlog.DropEvent
        return event


_LEVELS = logging.getLevelNamesMapping()
_least = _Least()


def set_level(level: str) -> None:
    """Have this process write events from this level on."""
    _least.level = _LEVELS[level.upper()]


def configure(level: str) -> None:
    """Set structlog up for this process. ``level``: the least important events that are written."""
    set_level(level)
    readable = sys.stderr.isatty()
    structlog.configure(
        processors=[
            _least,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        # One write an event: other processes write to the same stream, and no line comes into another.
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Lossy(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[_Events()], level=logging.WARNING)
