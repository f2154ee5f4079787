"""What something waits for, as kinds that a program can tell apart, and errors that carry one.

The migrator and topom say why something waits by such an error; :mod:`topom.reasons` makes a record of it.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What something waits for, by what an operator thinks of."""

    PAUSED = "paused"
    """An operator has had it stop."""
    PROTECTED = "protected"
    """So many members are lost at once that nothing is done by itself."""
    HOURS = "hours"
    """The hours of the day in which keys may move."""
    PACE = "pace"
    """It goes on, held back by what was set for speed or latency."""
    BUSY = "busy"
    """Something else that has to be over first. It passes by itself."""
    PROXY = "proxy"
    """Proxies that do not answer, refuse, or cannot be fenced."""
    SERVER = "server"
    """A Redis server that does not answer, refuses, or is not fit for it."""
    SENTINEL = "sentinel"
    """Redis Sentinels."""
    DATA = "data"
    """What servers hold: something would be lost, or a copy is not whole."""
    STORE = "store"
    """The store, or who leads."""
    OPERATOR = "operator"
    """A decision, or a setting, that is an operator's alone."""
    FAULT = "fault"
    """A fault of topom's; its log says more."""


class Explained(Exception):
    """An error that explains itself: its text is ``what``, followed by a semicolon and ``to_do`` if there is any.

    Attributes:
        kind: the kind of the class, unless one is given.
        what: what happened, or is so: one sentence, without a full stop.
        to_do: what an operator can do about it; empty if it passes by itself, or ``what`` says it.
    """

    kind: Kind = Kind.FAULT

    def __init__(self, what: str = "", to_do: str = "", *, kind: Kind | None = None) -> None:
        super().__init__(f"{what}; {to_do}" if to_do else what)
        self.what = what
        self.to_do = to_do
        if kind is not None:
            self.kind = kind
