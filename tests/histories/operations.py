"""The entries of a history: what a client asked, when, and with which outcome.

Everything that the checker knows about a run is in these records. So this module decides what a reply proves. An error
that guarantees that nothing was run takes the operation out of the history. An error that leaves it open makes the
operation *unknown*: it may take effect at any time after it was sent, or never.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Reply = Any
"""As hiredis parses it: bytes, an integer, None or a list."""


class Outcome(StrEnum):
    """What is known of an operation."""

    UNDER_WAY = "under way"
    ANSWERED = "answered"
    NOT_RUN = "not run"
    UNKNOWN = "unknown"


class Form(StrEnum):
    """How an operation's calls go over the wire."""

    PLAIN = "plain"
    TRANSACTION = "transaction"
    MGET = "mget"
    MSET = "mset"
    SCRIPT = "script"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class Call:
    """One command on one key of a partition.

    Attributes:
        name: of the command, in capitals.
        key: which of the partition's keys, counted from 0.
        arguments: those after the key.
    """

    name: str
    key: int = 0
    arguments: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, f"#{self.key}", *(argument.decode() for argument in self.arguments)])


@dataclass(eq=False, slots=True)
class Operation:
    """Calls that take effect at one moment, as one client sent them.

    Attributes:
        client: who sent it.
        proxy: index of the proxy it was sent to.
        calls: in order; several for a transaction, MGET and MSET.
        form: how they went.
        invoked: when it was sent, in seconds of the run.
        answered: when the reply came; infinite if none came, or one that leaves the outcome open.
        outcome: what the reply proves.
        replies: one for each call; None unless ``outcome`` is :attr:`Outcome.ANSWERED`.
        error: the text of the error, or how the connection was lost.
    """

    client: int
    proxy: int
    calls: tuple[Call, ...]
    form: Form
    invoked: float
    answered: float = math.inf
    outcome: Outcome = Outcome.UNDER_WAY
    replies: tuple[Reply, ...] | None = None
    error: str = ""

    def __str__(self) -> str:
        calls = "; ".join(map(str, self.calls))
        asked = calls if self.form is Form.PLAIN else f"{self.form.upper()} ({calls})"
        replies = self.replies if self.replies is None or len(self.replies) > 1 else self.replies[0]
        came = repr(replies) if self.outcome is Outcome.ANSWERED else f"{self.outcome}: {self.error}"
        until = f"{self.answered:.4f}" if self.answered < math.inf else "..."
        return f"[{self.invoked:.4f} - {until}] client {self.client} proxy {self.proxy + 1}: {asked} -> {came}"


@dataclass(eq=False, slots=True)
class Partition:
    """Keys whose operations are checked together: one key, or several of one hash tag.

    Attributes:
        kind: what its operations are; see :mod:`tests.histories.workload`.
        keys: their names.
        database: that they are in.
        operations: in the order of their invocation.
        unknown: how many of them have an unknown outcome.
    """

    kind: str
    keys: tuple[str, ...]
    database: int
    operations: list[Operation] = field(default_factory=list)
    unknown: int = 0

    @property
    def history(self) -> list[Operation]:
        """What may have run."""
        return [it for it in self.operations if it.outcome in (Outcome.ANSWERED, Outcome.UNKNOWN)]

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.keys)} (database {self.database})"


NOTHING_RUN = (
    "TRYAGAIN",
    "LOADING",
    "MISCONF",
    "OOM",
    "READONLY",
    "EXECABORT",
    "ERR max number of clients",
    "ERR no group has a server",
)
"""The beginnings of errors that guarantee that nothing was run."""
NOTHING_WAS_RUN = "nothing was run"
"""The ends of a proxy's errors that guarantee it."""
NOT_REACHED = ("cannot be connected to", "did not accept a connection")
"""A proxy's words about a server to which it has had no connection since the command came."""
MAY_HAVE_RUN = ("ERR server ", "ERR the proxy is out of memory", "UNBLOCKED")
"""The beginnings of errors after which the command may have run, or may still run."""


def outcome_of(error: str) -> Outcome | None:
    """What the text of an error reply proves; None for an error that no operation of the workload should get."""
    if error.startswith(NOTHING_RUN) or error.endswith(NOTHING_WAS_RUN):
        return Outcome.NOT_RUN
    if error.startswith("ERR server ") and any(text in error for text in NOT_REACHED):
        return Outcome.NOT_RUN
    if error.startswith(MAY_HAVE_RUN):
        return Outcome.UNKNOWN
    return None


SELECTING = b"redis.call('SELECT', ARGV[2]) return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 3))"
"""Runs a command in another database than its session's."""


def wire(operation_calls: Sequence[Call], form: Form, keys: Sequence[str], database: int) -> list[tuple[bytes, ...]]:
    """The commands that make up an operation on keys of a database, as they are sent in one piece."""
    if form is Form.MGET:
        return [(b"MGET", *(keys[call.key].encode() for call in operation_calls))]
    if form is Form.SCRIPT:
        (asked,) = operation_calls
        key = keys[asked.key].encode()
        return [(b"EVAL", SELECTING, b"1", key, asked.name.encode(), b"%d" % database, *asked.arguments)]
    if form is Form.FLUSH:
        return [(b"FLUSHDB",)]
    if form is Form.MSET:
        pairs = [part for call in operation_calls for part in (keys[call.key].encode(), *call.arguments)]
        return [(b"MSET", *pairs)]
    commands = [(call.name.encode(), keys[call.key].encode(), *call.arguments) for call in operation_calls]
    return [(b"MULTI",), *commands, (b"EXEC",)] if form is Form.TRANSACTION else commands
