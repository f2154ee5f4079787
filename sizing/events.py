"""Structured log events for processes that Spark starts for a moment: the logging library is loaded with the first
event."""

from __future__ import annotations


def warning(event: str, **values: object) -> None:
    """Log that something is not as it should be, and that the reading goes on."""
    import structlog

    structlog.get_logger().warning(event, **values)


def error(event: str, **values: object) -> None:
    """Log that something is left out."""
    import structlog

    structlog.get_logger().error(event, **values)
