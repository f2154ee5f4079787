"""What can go wrong while keys are sized. Messages name the server or the option, and never hold a secret."""

from __future__ import annotations


class SizingError(Exception):
    """A sentence for who runs the job."""


class OptionError(SizingError):
    """An option of the data source cannot be used; the message says which, and what it takes."""


class TopomFailed(SizingError):
    """topom did not say what the cluster is made of."""


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
