"""The errors of sizing. Messages name the server or the option, and never contain a secret."""

from __future__ import annotations


class SizingError(Exception):
    """An error with a sentence for the person who runs the job."""


class Interrupted(SizingError):
    """The run was told to end."""


class OptionError(SizingError):
    """An option of the data source cannot be used; the message says which, and what it takes."""


class TopomFailed(SizingError):
    """topom did not give the description of the cluster."""


class ServerFailed(SizingError):
    """A server could not be read.

    Args:
        server: ``host:port``.
        reason: what happened, as the end of a sentence.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(server, reason)
        self.server = server
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.server} {self.reason}"


class CommandRefused(SizingError):
    """A server answered a command with an error. ``text`` is the server's own."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
